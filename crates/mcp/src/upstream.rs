//! One MCP server that we ask.

mod connect;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::{CancelledNotification, CancelledNotificationParam, ErrorData, RequestId};
use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, RequestContext, RunningService, Service,
    ServiceError,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http_client::{Http, HttpError};
use crate::lines::{Ended, Lines};
use crate::revision::address;
use crate::role::{Call, Note, RawClient, Reply as Said};
use crate::{Boxed, Client, Listening, Revision, RpcError, Wanted, code};

/// Bounds on what a server may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// Bytes of one message.
    pub message: usize,
    /// Lines over stdio that are not messages, before the server is given up.
    pub junk: usize,
    /// JSON values of one message: each takes some 70 bytes of memory, however short.
    pub values: usize,
}

impl Default for UpstreamLimits {
    /// 16 MiB, 1,000 lines, 250,000 values.
    fn default() -> Self {
        Self { message: 16 * 1024 * 1024, junk: 1000, values: 250_000 }
    }
}

/// How a server is reached over HTTP.
#[derive(Clone)]
pub struct HttpOptions {
    /// Added to each request. Values are secrets: they are never shown.
    pub headers: Vec<(String, String)>,
    /// For a connection to stand. Default 10 s.
    pub connect_timeout: Duration,
    /// Certificates (DER) trusted beside the machine's.
    pub extra_roots: Vec<Vec<u8>>,
    /// Where `Authorization` comes from, when it is not among the headers.
    pub authorize: Option<Arc<dyn Authorize>>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            extra_roots: Vec::new(),
            authorize: None,
        }
    }
}

impl std::fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpOptions").field("headers", &names).finish_non_exhaustive()
    }
}

/// Has the credentials of one HTTP server beside its declared headers.
pub trait Authorize: Send + Sync + 'static {
    /// The value of `Authorization` for the next request, if there is one. A secret.
    ///
    /// # Errors
    /// In words, for the person at the machine: what to do about it.
    fn header(&self) -> Boxed<'_, Result<Option<String>, String>>;

    /// The server answered with 401 or 403 and this `WWW-Authenticate`. True when there are other
    /// credentials now, so that asking again is worth it.
    fn challenged<'a>(&'a self, status: u16, challenge: Option<&'a str>) -> Boxed<'a, bool>;
}

/// What a server answers to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The result.
    Done(Value),
    /// It needs answers from the client first (2026-07-28, multi-round-trip requests).
    Wants(Wants),
}

/// Questions of a server, and what it wants to be given back with their answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Wants {
    /// By the server's own keys: method and parameters of each question.
    pub requests: BTreeMap<String, (String, Option<Value>)>,
    /// Opaque; goes back to this server alone, never to a client.
    pub state: Option<String>,
}

impl Wants {
    /// The parameters of the next round: those of the first with the answers and the state.
    #[must_use]
    pub fn answered(self, params: Option<Value>, answers: BTreeMap<String, Value>) -> Value {
        let mut params = match params {
            Some(Value::Object(params)) => params,
            _ => serde_json::Map::new(),
        };
        let answers = answers.into_iter().collect();
        params.insert("inputResponses".into(), Value::Object(answers));
        params.shift_remove("requestState");
        if let Some(state) = self.state {
            params.insert("requestState".into(), Value::String(state));
        }
        Value::Object(params)
    }
}

/// How to begin with a server over stdio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// `initialize`: the safe way, since servers older than 2026-07-28 may hang on or die of
    /// anything else.
    Handshake,
    /// `server/discover`: for a server that ended when it was sent `initialize`.
    Stateless,
}

/// Why a server gave no result. Display is fit for an agent: it names no address. What names one is
/// in [`UpstreamError::detail`], for the person at the machine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// It could not be reached or started, or the exchange broke.
    #[error("the server cannot be reached: {reason}")]
    Down {
        /// In words.
        reason: String,
        /// May name addresses.
        detail: String,
    },
    /// It was there and ended while calls were waiting, or before.
    #[error("the server ended the connection: {reason}")]
    Closed {
        /// In words.
        reason: String,
    },
    /// No answer in time. It was told that nobody waits any more.
    #[error("the server did not answer within {} s", after.as_secs_f32())]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// What it sent is not MCP.
    #[error("the server's answer cannot be used: {reason}")]
    Nonsense {
        /// In words.
        reason: String,
    },
    /// It wants other credentials. Check the server's `headers` and the variables they name.
    #[error("the server refused our credentials (HTTP {status})")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
    },
    /// It refused at the level of HTTP.
    #[error("the server answered with HTTP {status}")]
    Status {
        /// The status.
        status: u16,
    },
    /// It no longer knows the session and did nothing: ask again over a new connection.
    #[error("the server has forgotten the session")]
    SessionLost,
    /// Whoever asked went away.
    #[error("the request was cancelled")]
    Cancelled,
    /// It answered with an error.
    #[error("{0}")]
    Rpc(RpcError),
}

impl UpstreamError {
    /// What to tell the person at the machine; may name addresses.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::Down { detail, .. } => format!("{self} ({detail})"),
            Self::Rpc(error) => format!("error {}", error.code),
            _ => self.to_string(),
        }
    }
}

/// A connected server. Any number of requests may wait at once.
pub struct Upstream {
    peer: Peer<RawClient>,
    /// Ends the connection when dropped.
    running: RunningService<RawClient, Mute>,
    revision: Revision,
    hello: Value,
    ended: Ended,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Connects to a server over its stdin and stdout. Ends when `timeout` has passed.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn stdio(
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        limits: UpstreamLimits,
        opening: Opening,
        timeout: Duration,
    ) -> Result<Self, UpstreamError> {
        let ended = Ended::default();
        let lines = Lines::new(stdout, stdin, limits, Arc::clone(&ended));
        let running =
            rmcp::service::serve_directly::<RawClient, _, _, _, _>(Mute::default(), lines, None);
        let link = Link { peer: running.peer().clone(), ended, timeout };
        let (revision, hello) = match opening {
            Opening::Stateless => link.discover().await?,
            Opening::Handshake => match link.initialize(None).await {
                Err(UpstreamError::Rpc(_)) => link.discover().await?,
                other => other?,
            },
        };
        Ok(Self { peer: link.peer, running, revision, hello, ended: link.ended })
    }

    /// Connects to a server over Streamable HTTP. Each step ends when `timeout` has passed.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn http(
        url: &str,
        options: &HttpOptions,
        limits: UpstreamLimits,
        timeout: Duration,
    ) -> Result<Self, UpstreamError> {
        let (http, shared) = Http::new(url, options, limits)?;
        let running =
            rmcp::service::serve_directly::<RawClient, _, _, _, _>(Mute::default(), http, None);
        let link = Link { peer: running.peer().clone(), ended: Ended::default(), timeout };
        // `server/discover` first: an older server answers it with an error, and changes nothing.
        let (revision, hello) = match link.discover().await {
            Err(
                UpstreamError::Rpc(_)
                | UpstreamError::Status { .. }
                | UpstreamError::Nonsense { .. },
            ) => link.initialize(Some(&shared.agreed)).await?,
            other => other?,
        };
        Ok(Self { peer: link.peer, running, revision, hello, ended: link.ended })
    }

    /// The revision agreed on.
    #[must_use]
    pub fn revision(&self) -> &Revision {
        &self.revision
    }

    /// What it said of itself: `capabilities`, `serverInfo`, `instructions`.
    #[must_use]
    pub fn hello(&self) -> &Value {
        &self.hello
    }

    /// Whether it has said, since this was last asked, that its tools changed.
    #[must_use]
    pub fn take_tools_changed(&self) -> bool {
        self.running.service().tools_changed.swap(false, Ordering::AcqRel)
    }

    /// Whether it has gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.peer.is_transport_closed()
    }

    /// Asks on behalf of a client: what the server tells or asks about this request while it is
    /// under way goes to it. When the future is dropped before it is done, the server is told.
    /// Time in which the client has a question to answer does not count.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn request(
        &self,
        client: &Arc<dyn Client>,
        method: &str,
        params: Option<Value>,
        timeout: Duration,
    ) -> Result<Reply, UpstreamError> {
        let _ = client;
        let params = address(params, &self.revision);
        ask(&self.peer, &self.ended, method, params, timeout).await.map(Reply::Done)
    }

    /// Begins a stream of what the server says outside requests: `subscriptions/listen`, or what
    /// comes over the connection of a revision with a handshake.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn listen(
        &self,
        client: &Arc<dyn Client>,
        wanted: Wanted,
    ) -> Result<Listening, UpstreamError> {
        let _ = (client, wanted);
        let passing = Box::pin(std::future::pending());
        Ok(Listening { granted: Wanted::default(), passing })
    }
}

/// A connection before the handshake.
struct Link {
    peer: Peer<RawClient>,
    ended: Ended,
    timeout: Duration,
}

async fn ask(
    peer: &Peer<RawClient>,
    ended: &Ended,
    method: &str,
    params: Option<Value>,
    timeout: Duration,
) -> Result<Value, UpstreamError> {
    let call = Call::new(method, params);
    let mut handle = peer
        .send_request_with_option(call, PeerRequestOptions::no_options())
        .await
        .map_err(|error| failed(error, ended))?;
    let mut abandon = Abandon { peer, id: Some(handle.id.clone()) };
    let answer = tokio::time::timeout(timeout, &mut handle.rx).await;
    match answer {
        Err(_) => Err(UpstreamError::Timeout { after: timeout }),
        Ok(answer) => {
            abandon.id = None;
            match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                Ok(Said(result)) => Ok(result),
                Err(error) => Err(failed(error, ended)),
            }
        }
    }
}

fn failed(error: ServiceError, ended: &OnceLock<String>) -> UpstreamError {
    match error {
        ServiceError::McpError(error) => UpstreamError::Rpc(error.into()),
        ServiceError::TransportSend(error) => match error.error.downcast::<HttpError>() {
            Ok(error) => error.0,
            Err(error) => UpstreamError::Closed {
                reason: ended.get().cloned().unwrap_or_else(|| words(error.as_ref())),
            },
        },
        ServiceError::Cancelled { .. } => UpstreamError::Cancelled,
        _ => UpstreamError::Closed {
            reason: ended.get().cloned().unwrap_or_else(|| "it is gone".into()),
        },
    }
}

fn words(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<std::io::Error>() {
        Some(error) => format!("its input cannot be written: {}", error.kind()),
        None => "its input cannot be written".into(),
    }
}

/// Tells the server that nobody waits any more, unless there was an answer.
struct Abandon<'p> {
    peer: &'p Peer<RawClient>,
    id: Option<RequestId>,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let params =
                CancelledNotificationParam::new(Some(id), Some("no longer waited for".into()));
            let _ = peer.send_notification(CancelledNotification::new(params).into()).await;
        });
    }
}

/// Says no to whatever a server asks. Sampling, elicitation and roots are not offered to it.
#[derive(Default)]
pub(crate) struct Mute {
    tools_changed: AtomicBool,
}

impl Service<RawClient> for Mute {
    async fn handle_request(
        &self,
        request: Call,
        _context: RequestContext<RawClient>,
    ) -> Result<Said, ErrorData> {
        if request.method == "ping" {
            return Ok(Said(serde_json::json!({})));
        }
        let words = format!("{} is not offered", request.method.escape_debug());
        Err(RpcError::new(code::METHOD_NOT_FOUND, words).into_model())
    }

    async fn handle_notification(
        &self,
        note: Note,
        _context: NotificationContext<RawClient>,
    ) -> Result<(), ErrorData> {
        if note.method == "notifications/tools/list_changed" {
            self.tools_changed.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn get_info(&self) {}
}
