//! The server's end of a pair of byte streams, over any backend.

use std::sync::Arc;

use rmcp::model::ErrorData;
use rmcp::service::{NotificationContext, RequestContext, Service};
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::door::answer::{self, Era};
use crate::revision::{META_VERSION, meta};
use crate::role::{CANCELLED, Call, Note, RawServer, Reply};
use crate::{Asker, Backend, Revision};

/// Serves a backend over stdio, in every revision, until the input ends.
///
/// # Errors
/// When the serving task failed.
pub async fn serve_stdio(
    backend: Arc<dyn Backend>,
    stdin: impl AsyncRead + Send + Unpin + 'static,
    stdout: impl AsyncWrite + Send + Unpin + 'static,
) -> std::io::Result<()> {
    let transport = AsyncRwTransport::<RawServer, _, _>::new(stdin, stdout);
    let running =
        rmcp::service::serve_directly::<RawServer, _, _, _, _>(Serve(backend), transport, None);
    running.waiting().await.map(drop).map_err(std::io::Error::other)
}

struct Serve(Arc<dyn Backend>);

fn asker(params: Option<&Value>) -> Asker {
    let named = meta(params, META_VERSION).and_then(Value::as_str).and_then(Revision::parse);
    let revision = named.unwrap_or(Revision::HANDSHAKE);
    Asker { session: None, revision, principal: None }
}

impl Service<RawServer> for Serve {
    async fn handle_request(
        &self,
        request: Call,
        context: RequestContext<RawServer>,
    ) -> Result<Reply, ErrorData> {
        let params = request.params;
        let era = Era::of(&request.method, params.as_ref(), None);
        let asker = asker(params.as_ref());
        let answered = tokio::select! {
            answered = answer::answer(self.0.as_ref(), era, &asker, &request.method, params) => answered,
            () = context.ct.cancelled() => Err(answer::cancelled()),
        };
        answered.map(Reply).map_err(crate::RpcError::into_model)
    }

    async fn handle_notification(
        &self,
        note: Note,
        _context: NotificationContext<RawServer>,
    ) -> Result<(), ErrorData> {
        if note.method != CANCELLED && note.method != "notifications/initialized" {
            self.0.notification(&asker(note.params.as_ref()), &note.method, note.params).await;
        }
        Ok(())
    }

    fn get_info(&self) {}
}
