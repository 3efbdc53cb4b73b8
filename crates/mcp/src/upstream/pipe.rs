//! A server at the other end of a pair of byte streams. RMCP's loop keeps request and answer together.

use std::sync::{Arc, OnceLock};

use rmcp::model::{CancelledNotification, CancelledNotificationParam, ErrorData, RequestId};
use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, RequestContext, RunningService, Service,
    ServiceError,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::desk::Desk;
use super::{UpstreamError, UpstreamLimits};
use crate::http_client::On;
use crate::lines::{Ended, Lines};
use crate::role::{Call, Note, RawClient, Reply as Said};
use crate::{RpcError, code};

/// Ends the connection when dropped.
pub(super) type Running = RunningService<RawClient, Sorted>;

pub(crate) struct Pipe {
    peer: Peer<RawClient>,
    ended: Ended,
}

impl Pipe {
    pub(super) fn new(
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        limits: UpstreamLimits,
        desk: &Arc<Desk>,
    ) -> (Self, Running) {
        let ended = Ended::default();
        let lines = Lines::new(stdout, stdin, limits, Arc::clone(desk), Arc::clone(&ended));
        let running = rmcp::service::serve_directly::<RawClient, _, _, _, _>(Sorted, lines, None);
        (Self { peer: running.peer().clone(), ended }, running)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.peer.is_transport_closed()
    }

    /// Sends a request and waits for its answer. Dropping the future tells the server. A listener
    /// hears what belongs to the subscription that this opens.
    pub(super) async fn ask(
        &self,
        method: &str,
        params: Option<Value>,
        on: On<'_>,
    ) -> Result<Value, UpstreamError> {
        let call = Call::new(method, params);
        let call = match on {
            On::Request(exchange) => call.carrying(Arc::downgrade(exchange)),
            On::Listener(listener) => call.carrying(Arc::clone(listener)),
        };
        let mut handle = self
            .peer
            .send_request_with_option(call, PeerRequestOptions::no_options())
            .await
            .map_err(|error| failed(error, &self.ended))?;
        // A handshake is never cancelled (2025-11-25, cancellation).
        let id = (method != "initialize").then(|| handle.id.clone());
        let mut abandon = Abandon { peer: &self.peer, id };
        let answer = (&mut handle.rx).await;
        abandon.id = None;
        match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
            Ok(Said(result)) => Ok(result),
            Err(error) => Err(failed(error, &self.ended)),
        }
    }

    pub(super) async fn tell(
        &self,
        method: &str,
        params: Option<Value>,
    ) -> Result<(), UpstreamError> {
        let note = Note::new(method, params);
        self.peer.send_notification(note).await.map_err(|error| failed(error, &self.ended))
    }
}

fn failed(error: ServiceError, ended: &OnceLock<String>) -> UpstreamError {
    let why = |otherwise: &str| ended.get().cloned().unwrap_or_else(|| otherwise.into());
    match error {
        ServiceError::McpError(error) => UpstreamError::Rpc(error.into()),
        ServiceError::TransportSend(error) => {
            let kind = error.error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            let kind = kind.map(|kind| format!(": {kind}")).unwrap_or_default();
            UpstreamError::Closed { reason: why(&format!("its input cannot be written{kind}")) }
        }
        ServiceError::Cancelled { .. } => UpstreamError::Cancelled,
        _ => UpstreamError::Closed { reason: why("it is gone") },
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

/// What a server asks and tells is sorted before it gets to RMCP's loop.
pub(super) struct Sorted;

impl Service<RawClient> for Sorted {
    async fn handle_request(
        &self,
        request: Call,
        _context: RequestContext<RawClient>,
    ) -> Result<Said, ErrorData> {
        let words = format!("{} is not offered", request.method.escape_debug());
        Err(RpcError::new(code::METHOD_NOT_FOUND, words).into_model())
    }

    async fn handle_notification(
        &self,
        _note: Note,
        _context: NotificationContext<RawClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) {}
}
