//! The two ways to begin: `server/discover` (2026-07-28) and `initialize` (before it).

use std::sync::OnceLock;

use http::HeaderValue;
use serde_json::{Value, json};

use super::{Link, UpstreamError, ask};
use crate::Revision;
use crate::revision::{META_SERVER, address, implementation};
use crate::role::Note;

impl Link {
    /// Stateless: the server says what it is, and keeps nothing.
    pub(super) async fn discover(&self) -> Result<(Revision, Value), UpstreamError> {
        let revision = Revision::STATELESS;
        let params = address(None, &revision);
        let mut found =
            ask(&self.peer, &self.ended, "server/discover", params, self.timeout).await?;
        let versions = found.get("supportedVersions").and_then(Value::as_array);
        if !versions.is_some_and(|all| all.iter().any(|v| v == revision.as_str())) {
            return Err(UpstreamError::Nonsense {
                reason: format!("it does not speak {}", revision.as_str()),
            });
        }
        if let Some(info) = found.get("_meta").and_then(|meta| meta.get(META_SERVER)).cloned() {
            found["serverInfo"] = info;
        }
        Ok((revision, hello(&found)))
    }

    /// With a handshake; `agreed` is where the HTTP side keeps the revision for its header.
    pub(super) async fn initialize(
        &self,
        agreed: Option<&OnceLock<HeaderValue>>,
    ) -> Result<(Revision, Value), UpstreamError> {
        let params = json!({
            "protocolVersion": Revision::HANDSHAKE.as_str(),
            "capabilities": {},
            "clientInfo": implementation(),
        });
        let found = ask(&self.peer, &self.ended, "initialize", Some(params), self.timeout).await?;
        let named = found.get("protocolVersion").and_then(Value::as_str);
        let revision = named.and_then(Revision::parse).filter(|r| !r.is_stateless());
        let revision = revision.ok_or_else(|| UpstreamError::Nonsense {
            reason: "it answered the handshake in a revision that is not spoken here".into(),
        })?;
        if let Some(agreed) = agreed
            && let Ok(value) = HeaderValue::from_str(revision.as_str())
        {
            let _ = agreed.set(value);
        }
        let note = Note::new("notifications/initialized", None);
        self.peer
            .send_notification(note)
            .await
            .map_err(|error| super::failed(error, &self.ended))?;
        Ok((revision, hello(&found)))
    }
}

/// What is kept of a server's words about itself.
fn hello(found: &Value) -> Value {
    let keep = ["capabilities", "serverInfo", "instructions"];
    let kept = keep.iter().filter_map(|key| Some(((*key).to_owned(), found.get(*key)?.clone())));
    Value::Object(kept.collect())
}
