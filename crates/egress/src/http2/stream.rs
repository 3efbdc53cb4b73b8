//! One stream: one request, judged like every other.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, PROXY_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};

use super::duplex::Duplex;
use super::{exchange, head};
use crate::admit::{Through, admit};
use crate::connection::Peer;
use crate::decide::Case;
use crate::engine::Engine;
use crate::reply::{CHALLENGE, Reply, TEXT};
use crate::request::Request;
use crate::tunnel;

/// How a stream ended.
pub(super) enum Ended {
    /// The client got what it had asked for, or was refused.
    Used,
    /// The client broke it off in the middle.
    Cut,
    /// The client took it back before anything came of it.
    Useless,
}

/// Serves one request.
pub(super) async fn serve(
    engine: &Arc<Engine>,
    peer: &Peer,
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Ended {
    // What is judged is recorded, so that a client can ask no faster than evidence is kept.
    engine.journal.room().await;
    let (parts, body) = request.into_parts();
    let (method, target) = (parts.method.clone(), head::target(&parts));
    let head_only = method == Method::HEAD;
    let head = match head::head(parts, body.is_end_stream()) {
        Ok(head) => head,
        Err(unfit) => {
            let case = Case::open(engine, &peer.who, method.as_str());
            let reply = Reply::bad_request(unfit.status, unfit.reason);
            let reply = case.refuse_form("request", unfit.reason, &target, reply);
            return refuse(&mut respond, &reply, head_only);
        }
    };
    let gone = async {
        let _ = poll_fn(|context| respond.poll_reset(context)).await;
    };
    let admitted = Box::pin(admit(engine, peer, head, gone)).await;
    let Through { request, permit, server } = match admitted {
        Ok(through) => through,
        Err(refused) => return refuse(&mut respond, &refused.reply, head_only),
    };
    match request {
        Request::Tunnel(_) => {
            let traffic = Arc::clone(permit.traffic());
            let to = match respond.send_response(Response::new(()), false) {
                Ok(to) => to,
                Err(error) => {
                    permit.close(&format!("client: {error}"));
                    return Ended::Useless;
                }
            };
            let mut client = Duplex::new(body, to);
            let early = BytesMut::new();
            tunnel::run(&mut client, early, server, permit, &engine.limits).await;
            match (client.was_reset(), traffic.totals()) {
                (false, _) => Ended::Used,
                (true, (_, 0)) => Ended::Useless,
                (true, _) => Ended::Cut,
            }
        }
        Request::Exchange(request) => {
            exchange::run(request, body, &mut respond, server, permit, &engine.limits).await
        }
    }
}

/// Writes an answer of our own.
pub(super) fn refuse(respond: &mut SendResponse<Bytes>, reply: &Reply, head_only: bool) -> Ended {
    let text = Bytes::from(reply.text());
    let mut answer = Response::new(());
    *answer.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    headers.insert(CONTENT_LENGTH, text.len().into());
    if reply.status == 407 {
        headers.insert(PROXY_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    }
    let Ok(mut to) = respond.send_response(answer, head_only) else { return Ended::Useless };
    if !head_only {
        let _ = to.send_data(text, true);
    }
    Ended::Used
}
