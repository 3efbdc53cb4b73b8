//! One MCP server that we ask.

mod connect;
pub(crate) mod desk;
mod error;
pub(crate) mod exchange;
mod link;
mod listen;
pub(crate) mod listener;
pub(crate) mod mailbox;
mod options;
mod pipe;
pub(crate) mod questions;
#[cfg(test)]
mod tests;
pub(crate) mod tied;
mod wants;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::exchange::LEVELS;
use crate::http_client::Http;
use crate::revision::{META_LOG, address};
use crate::{Client, Party, Revision, RpcError, Share, code};

pub use desk::Unheard;
pub use error::UpstreamError;
pub use options::{Authorize, HttpOptions, Opening, UpstreamLimits};
pub use wants::{Reply, Wants};

use desk::Desk;
use link::{Link, Wire};
use pipe::Pipe;

/// How long a new session's own stream is waited for: what comes before it is there is lost.
const HEARING: Duration = Duration::from_millis(250);

/// A connected server. Any number of requests may wait at once.
pub struct Upstream {
    link: Arc<Link>,
    /// Ends the connection when dropped.
    running: Option<pipe::Running>,
    /// Listens to the stream of a session.
    hearing: Mutex<Option<JoinHandle<()>>>,
    revision: Revision,
    hello: Value,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Connects to a server over its stdin and stdout, with this share of the memory for replies. Ends
    /// when `timeout` has passed.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn stdio(
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        limits: UpstreamLimits,
        replies: Share,
        opening: Opening,
        timeout: Duration,
    ) -> Result<Self, UpstreamError> {
        let desk = Desk::with(replies);
        let (pipe, running) = Pipe::new(stdout, stdin, limits, &desk);
        let link = Link::new(Wire::Pipe(pipe), desk);
        let (revision, hello) = link.begin_stdio(opening, timeout).await?;
        Ok(Self { link, running: Some(running), hearing: Mutex::default(), revision, hello })
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
        let desk = Desk::with(options.replies.clone());
        let http = Http::new(url, options, limits, Arc::clone(&desk))?;
        let link = Link::new(Wire::Http(http), desk);
        let (revision, hello) = link.begin_http(options.prefer.as_ref(), timeout).await?;
        let upstream = Self { link, running: None, hearing: Mutex::default(), revision, hello };
        if let Some(open) = upstream.hear() {
            let _ = tokio::time::timeout(HEARING, open).await;
        }
        Ok(upstream)
    }

    /// Listens to the stream of a session, unless that is done already. Gives what is told when it
    /// is open.
    fn hear(&self) -> Option<oneshot::Receiver<()>> {
        let Wire::Http(http) = &self.link.wire else { return None };
        let mut hearing = self.hearing.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = hearing.as_ref().is_some_and(|task| !task.is_finished());
        if alive || self.revision.is_stateless() {
            return None;
        }
        let (opened, open) = oneshot::channel();
        *hearing = Some(tokio::spawn(Arc::clone(http).hear(opened)));
        Some(open)
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

    /// Whether it has said, since this was last asked, that its tools changed: over a connection or
    /// session of its own, or on any stream that somebody listens to.
    #[must_use]
    pub fn take_tools_changed(&self) -> bool {
        self.link.desk.take_tools_changed()
    }

    /// What of its words reached nobody.
    #[must_use]
    pub fn unheard(&self) -> Unheard {
        self.link.desk.unheard()
    }

    /// Whether it has gone. Over HTTP that is not known before something is asked.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.link.wire {
            Wire::Pipe(pipe) => pipe.is_closed(),
            Wire::Http(_) => false,
        }
    }

    /// Asks on behalf of a client: what the server tells or asks about this request while it is
    /// under way goes to it. When the future is dropped before it is done, the server is told.
    /// Time in which the client has a question to answer does not count, and progress gives it
    /// `timeout` again, for an hour in all.
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
        match method {
            // Whoever else follows it goes on to.
            "resources/unsubscribe" if self.is_followed(params.as_ref()) => {
                return Ok(Reply::Done(json!({})));
            }
            // What the stateless revision does not have: each subscription is a stream, and each
            // request names its level.
            "resources/unsubscribe" if self.revision.is_stateless() => {
                return Ok(Reply::Done(json!({})));
            }
            "logging/setLevel" if self.revision.is_stateless() => {
                return is_level(params.as_ref());
            }
            _ => {}
        }
        let params = address(params, &self.revision, client.capabilities());
        let result = self.link.request(client, method, params, timeout).await?;
        if self.revision.is_stateless() {
            wants::read(method, result, client.capabilities())
        } else {
            Ok(Reply::Done(result))
        }
    }

    /// Whether somebody listens to this resource, so that it cannot be unsubscribed yet.
    fn is_followed(&self, params: Option<&Value>) -> bool {
        let uri = params.and_then(|params| params.get("uri")).and_then(Value::as_str);
        uri.is_some_and(|uri| self.link.desk.is_followed(uri))
    }

    /// Passes a notification of this client on, for example that its roots changed. A server of the
    /// stateless revision takes none: it is told nothing.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn tell(
        &self,
        party: &Party,
        method: &str,
        params: Option<Value>,
    ) -> Result<(), UpstreamError> {
        if self.revision.is_stateless() {
            return Ok(());
        }
        self.link.desk.told_by(party);
        self.link.tell(method, address(params, &self.revision, &json!({}))).await
    }
}

/// The answer to `logging/setLevel` of a server that does not have it.
fn is_level(params: Option<&Value>) -> Result<Reply, UpstreamError> {
    let level = params.and_then(|params| params.get("level"));
    if level.is_some_and(|level| LEVELS.iter().any(|known| level == known)) {
        return Ok(Reply::Done(json!({})));
    }
    Err(UpstreamError::Rpc(RpcError::new(code::INVALID_PARAMS, "no such log level")))
}

/// The parameters of a request to a server of the stateless revision, which is to say of its log what
/// is at least of this level; one that a client has named itself stays.
#[must_use]
pub fn with_log_level(params: Option<Value>, level: Option<&str>) -> Option<Value> {
    let Some(level) = level else { return params };
    let mut params = params.unwrap_or_else(|| json!({}));
    if let Some(params) = params.as_object_mut() {
        let meta = params.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.entry(META_LOG).or_insert_with(|| level.into());
        }
    }
    Some(params)
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.link.desk.close();
        if let Some(task) = self.hearing.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
        if let Wire::Http(http) = &self.link.wire {
            http.leave();
        }
        drop(self.running.take());
    }
}
