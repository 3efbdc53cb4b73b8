//! From a request to its answer, whatever carried it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::revision::{META_SERVER, META_VERSION, meta, to_handshake, to_stateless};
use crate::{Answer, Asker, Backend, Client, Revision, RpcError, code};

/// The two ways of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Begins with `initialize` (up to 2025-11-25).
    Handshake,
    /// Each request stands alone (from 2026-07-28).
    Stateless,
}

impl Era {
    /// Which one a request is in. `initialize` is the beginning of a handshake, unless it names a
    /// stateless revision itself: there it is not a method.
    pub(crate) fn of(method: &str, params: Option<&Value>, header: Option<&str>) -> Self {
        let header = header.and_then(Revision::parse).is_some_and(|r| r.is_stateless());
        let stateless =
            header || meta(params, META_VERSION).is_some() || method == "server/discover";
        // A client of a revision with a handshake does not name another one in `_meta`.
        let initialize = method == "initialize" && meta(params, META_VERSION).is_none();
        if stateless && !initialize { Self::Stateless } else { Self::Handshake }
    }
}

pub(crate) fn cancelled() -> RpcError {
    RpcError::new(code::CANCELLED, "the request was cancelled")
}

/// Asks the backend, and gives its answer the form of the asker's revision.
pub(crate) async fn answer(
    backend: &dyn Backend,
    era: Era,
    asker: &Asker,
    client: &Arc<dyn Client>,
    method: &str,
    params: Option<Value>,
) -> Answer {
    match (method, era) {
        ("ping", Era::Handshake) => return Ok(json!({})),
        (
            "ping"
            | "initialize"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe",
            Era::Stateless,
        )
        | ("server/discover" | "subscriptions/listen", Era::Handshake) => {
            let words = format!("{method} is not a method of this revision");
            return Err(RpcError::new(code::METHOD_NOT_FOUND, words));
        }
        _ => {}
    }
    let mut result = backend.request(asker, client, method, params).await?;
    if !result.is_object() {
        return Err(RpcError::new(code::INTERNAL, "the server's result is not an object"));
    }
    match method {
        "initialize" => result["protocolVersion"] = json!(asker.revision.as_str()),
        "server/discover" => discover(&mut result),
        _ => {}
    }
    match era {
        // Questions go through [`Client::ask`]: a state that was not made here is nobody's to send.
        Era::Stateless if result.get("resultType").is_some_and(|t| t == "input_required") => {
            let words = "the server asks for more input in a way that cannot be passed on";
            return Err(RpcError::new(code::INTERNAL, words));
        }
        Era::Stateless => to_stateless(method, &mut result),
        Era::Handshake if to_handshake(&mut result) => {}
        Era::Handshake => {
            let words = "the server asks for more input, which this revision cannot carry";
            return Err(RpcError::new(code::INTERNAL, words));
        }
    }
    Ok(result)
}

fn discover(result: &mut Value) {
    let Some(object) = result.as_object_mut() else { return };
    object.insert("supportedVersions".into(), json!(Revision::names()));
    if let Some(info) = object.shift_remove("serverInfo") {
        let meta = object.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(META_SERVER.into(), info);
        }
    }
}
