//! The two ways to begin: `server/discover` (2026-07-28) and `initialize` (before it).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::link::{Link, Wire};
use super::{Opening, UpstreamError};
use crate::revision::{META_SERVER, address, implementation};
use crate::{Client, Nobody, Revision, RpcError, code};

/// What was agreed on, and what the server said of itself.
type Agreed = (Revision, Value);

impl Link {
    pub(super) async fn begin_stdio(
        &self,
        opening: Opening,
        timeout: Duration,
    ) -> Result<Agreed, UpstreamError> {
        match opening {
            Opening::Stateless => self.discover(timeout).await,
            Opening::Handshake => match self.initialize(&Revision::HANDSHAKE, timeout).await {
                Err(UpstreamError::Rpc(_)) => self.discover(timeout).await,
                other => other,
            },
        }
    }

    pub(super) async fn begin_http(
        &self,
        prefer: Option<&Revision>,
        timeout: Duration,
    ) -> Result<Agreed, UpstreamError> {
        if let Some(dated) = prefer.filter(|prefer| !prefer.is_stateless()) {
            return match self.initialize(dated, timeout).await {
                Err(error) if is_other_era(&error) => {
                    self.discover(timeout).await.map_err(|_| error)
                }
                other => other,
            };
        }
        // `server/discover` first: an older server answers it with an error, and changes nothing.
        match self.discover(timeout).await {
            Err(UpstreamError::Rpc(error)) if speaks_stateless(&error) => {
                self.discover(timeout).await
            }
            Err(error) if is_other_era(&error) => {
                self.initialize(&Revision::HANDSHAKE, timeout).await
            }
            other => other,
        }
    }

    /// Stateless: the server says what it is, and keeps nothing.
    async fn discover(&self, timeout: Duration) -> Result<Agreed, UpstreamError> {
        let revision = Revision::STATELESS;
        let params = address(None, &revision, &json!({}));
        let mut found = self.plain("server/discover", params, timeout).await?;
        let versions = found.get("supportedVersions").and_then(Value::as_array);
        if !versions.is_some_and(|all| all.iter().any(|v| v == revision.as_str())) {
            return Err(UpstreamError::Nonsense {
                reason: format!("it does not speak {}", revision.as_str()),
            });
        }
        if let Some(info) = found.get("_meta").and_then(|meta| meta.get(META_SERVER)).cloned() {
            found["serverInfo"] = info;
        }
        self.desk.stateless.store(true, Ordering::Release);
        Ok((revision, hello(&found)))
    }

    /// With a handshake. What a client can do is not known yet: everything that can be carried to
    /// one is declared, and refused later where it cannot.
    async fn initialize(
        &self,
        wanted: &Revision,
        timeout: Duration,
    ) -> Result<Agreed, UpstreamError> {
        let params = json!({
            "protocolVersion": wanted.as_str(),
            "capabilities": {
                "sampling": { "tools": {}, "context": {} },
                "elicitation": { "form": {}, "url": {} },
                "roots": { "listChanged": true },
            },
            "clientInfo": implementation(),
        });
        let found = self.plain("initialize", Some(params), timeout).await?;
        let named = found.get("protocolVersion").and_then(Value::as_str);
        let revision = named.and_then(Revision::parse).filter(|r| !r.is_stateless());
        let revision = revision.ok_or_else(|| UpstreamError::Nonsense {
            reason: "it answered the handshake in a revision that is not spoken here".into(),
        })?;
        if let Wire::Http(http) = &self.wire {
            http.agree(&revision);
        }
        let told = self.tell("notifications/initialized", None);
        tokio::time::timeout(timeout, told)
            .await
            .unwrap_or(Err(UpstreamError::Timeout { after: timeout }))?;
        Ok((revision, hello(&found)))
    }

    /// A request of nobody's.
    async fn plain(
        &self,
        method: &str,
        params: Option<Value>,
        timeout: Duration,
    ) -> Result<Value, UpstreamError> {
        let nobody: Arc<dyn Client> = Arc::new(Nobody);
        self.request(&nobody, method, params, timeout).await
    }
}

/// Whether the other way to begin is worth a try.
fn is_other_era(error: &UpstreamError) -> bool {
    use UpstreamError::{Nonsense, Rpc, Status};
    matches!(error, Rpc(_) | Status { .. } | Nonsense { .. })
}

/// Whether it refused the revision and named the same among those that it speaks.
fn speaks_stateless(error: &RpcError) -> bool {
    let named = error.data.as_ref().and_then(|data| data.get("supported")?.as_array());
    let named = named.is_some_and(|all| all.iter().any(|v| v == Revision::STATELESS.as_str()));
    error.code == code::UNSUPPORTED_VERSION && named
}

/// What is kept of a server's words about itself.
fn hello(found: &Value) -> Value {
    let keep = ["capabilities", "serverInfo", "instructions"];
    let kept = keep.iter().filter_map(|key| Some(((*key).to_owned(), found.get(*key)?.clone())));
    Value::Object(kept.collect())
}
