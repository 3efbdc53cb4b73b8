//! Which revision of MCP a message is in.

use rmcp::model::ProtocolVersion;
use serde_json::{Map, Value, json};

/// Key of `_meta` that names a stateless request's revision.
pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Key of `_meta` that names the client.
pub(crate) const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// Key of `_meta` with what the client can do.
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Key of `_meta` that names the server.
pub(crate) const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// Key of `_meta` with the least severe log message that a stateless request wants to hear.
pub(crate) const META_LOG: &str = "io.modelcontextprotocol/logLevel";
/// Key of `_meta` that names the subscription that a notification belongs to.
pub(crate) const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A revision that this program speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision(ProtocolVersion);

impl Revision {
    /// The stateless revision, 2026-07-28.
    pub const STATELESS: Self = Self(ProtocolVersion::V_2026_07_28);
    /// The newest that begins with `initialize`, 2025-11-25.
    pub const HANDSHAKE: Self = Self(ProtocolVersion::V_2025_11_25);

    /// The revision of this name, if it is spoken here.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let known = ProtocolVersion::KNOWN_VERSIONS;
        known.iter().find(|version| version.as_str() == text).cloned().map(Self)
    }

    /// Its name, for example `2025-11-25`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether each request stands alone, without handshake and session.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        !self.0.has_initialize()
    }

    /// What to answer a client that asked for `wanted` in `initialize`: the same, or the newest
    /// that has this handshake.
    #[must_use]
    pub fn negotiate(wanted: &str) -> Self {
        Self::parse(wanted).filter(|wanted| !wanted.is_stateless()).unwrap_or(Self::HANDSHAKE)
    }

    pub(crate) fn names() -> Vec<&'static str> {
        ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect()
    }
}

/// Who we are, to servers and clients.
pub(crate) fn implementation() -> Value {
    json!({ "name": "ringfence", "version": env!("CARGO_PKG_VERSION") })
}

/// The value of a `_meta` key of some parameters.
pub(crate) fn meta<'v>(params: Option<&'v Value>, key: &str) -> Option<&'v Value> {
    params?.get("_meta")?.get(key)
}

/// Makes a result one of the stateless revision: `resultType`, and cache hints that let nobody
/// keep what needs them (2026-07-28, caching).
pub(crate) fn to_stateless(method: &str, result: &mut Value) {
    let Some(result) = result.as_object_mut() else { return };
    result.entry("resultType").or_insert_with(|| json!("complete"));
    let cacheable =
        method == "server/discover" || method.ends_with("/list") || method == "resources/read";
    if cacheable {
        result.entry("ttlMs").or_insert_with(|| json!(0));
        result.entry("cacheScope").or_insert_with(|| json!("private"));
    }
}

/// Makes a result one of the revisions with a handshake.
///
/// # Errors
/// False when it cannot be: the server asks for input in a way that these do not have.
pub(crate) fn to_handshake(result: &mut Value) -> bool {
    let Some(result) = result.as_object_mut() else { return true };
    match result.get("resultType").and_then(Value::as_str) {
        None => true,
        Some("complete") => {
            result.shift_remove("resultType");
            true
        }
        Some(_) => false,
    }
}

/// What a client can be asked, and in which ways.
const ASKABLE: [(&str, &[&str]); 3] = [
    ("elicitation", &["form", "url"]),
    ("sampling", &["context", "tools"]),
    ("roots", &["listChanged"]),
];

/// What of its declared capabilities a server is told: that it has them, and none of its own words,
/// which nobody has judged.
fn offered(capabilities: &Value) -> Value {
    let offered = ASKABLE.iter().filter_map(|(name, ways)| {
        let declared = capabilities.get(name)?.as_object()?;
        let way = |way: &&str| match declared.get(*way)? {
            Value::Object(_) => Some(((*way).to_owned(), json!({}))),
            Value::Bool(flag) => Some(((*way).to_owned(), json!(flag))),
            _ => None,
        };
        let ways: Map<_, _> = ways.iter().filter_map(way).collect();
        Some(((*name).to_owned(), Value::Object(ways)))
    });
    Value::Object(offered.collect())
}

/// Writes `_meta` for a server of this revision: its stateless keys are ours, never the asker's, but
/// for what the client can be asked.
pub(crate) fn address(
    params: Option<Value>,
    revision: &Revision,
    capabilities: &Value,
) -> Option<Value> {
    let ours = [META_VERSION, META_CLIENT, META_CAPABILITIES];
    let mut params = match params {
        Some(Value::Object(params)) => params,
        None if !revision.is_stateless() => return None,
        _ => Map::new(),
    };
    let meta = params.get_mut("_meta").and_then(Value::as_object_mut);
    if revision.is_stateless() {
        let mut meta = meta.cloned().unwrap_or_default();
        meta.insert(ours[0].into(), json!(revision.as_str()));
        meta.insert(ours[1].into(), implementation());
        meta.insert(ours[2].into(), offered(capabilities));
        params.insert("_meta".into(), Value::Object(meta));
    } else if let Some(meta) = meta {
        let before = meta.len();
        ours.iter().for_each(|key| drop(meta.shift_remove(*key)));
        if meta.is_empty() && before > 0 {
            params.shift_remove("_meta");
        }
    }
    Some(Value::Object(params))
}
