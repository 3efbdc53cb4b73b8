//! One plain exchange for a client that speaks HTTP/2; the server is spoken to in HTTP/1.1 as always.

use std::future::poll_fn;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::header::CONTENT_LENGTH;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::net::TcpStream;

use super::duplex::CHUNK;
use super::stream::{Ended, refuse};
use crate::body::{BodyError, Fed, Feed, PIECE};
use crate::decide::Permit;
use crate::engine::Limits;
use crate::forward::{After, Broken, carry};
use crate::head::Framing;
use crate::request::{Exchange, strip_hop_by_hop};

/// Runs an exchange to its end and records it.
pub(super) async fn run(
    exchange: Exchange,
    body: RecvStream,
    respond: &mut SendResponse<Bytes>,
    server: TcpStream,
    permit: Permit,
    limits: &Limits,
) -> Ended {
    let head_only = exchange.method == Method::HEAD;
    if exchange.expects_continue && exchange.framing != Framing::Empty {
        let mut go_on = Response::new(());
        *go_on.status_mut() = StatusCode::CONTINUE;
        if respond.send_informational(go_on).is_err() {
            permit.close("client: gone");
            return Ended::Useless;
        }
    }
    let framing = exchange.framing;
    let mut whole = false;
    let up = |feed| upload(body, framing, feed);
    let (told, done) = (&mut *respond, &mut whole);
    let down = move |answer| async move {
        download(answer, told, head_only).await?;
        *done = true;
        Ok(false)
    };
    match carry(exchange, server, permit, limits, up, down).await {
        After::Tell(reply) => refuse(respond, &reply, head_only),
        After::Next | After::Close if whole => Ended::Used,
        // A stream that is dropped before its end is reset.
        After::Next | After::Close => Ended::Cut,
    }
}

/// Moves the body from the client to the feed. The window opens by what was taken.
async fn upload(mut body: RecvStream, framing: Framing, feed: Feed) -> Result<(), BodyError> {
    if framing == Framing::Empty {
        return Ok(());
    }
    while let Some(data) = poll_fn(|context| body.poll_data(context)).await {
        let mut data = data.map_err(|_| BodyError::Cut)?;
        let length = data.len();
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(PIECE));
            // When nobody takes it, the exchange is over: its other half says why.
            feed.send(Fed::Data(piece)).await.map_err(|_| BodyError::Cut)?;
        }
        let _ = body.flow_control().release_capacity(length);
    }
    let _ = feed.send(Fed::End).await;
    Ok(())
}

/// Passes the answer on.
async fn download(
    answer: Response<Incoming>,
    respond: &mut SendResponse<Bytes>,
    head_only: bool,
) -> Result<(), Broken> {
    let (parts, mut body) = answer.into_parts();
    if parts.status.is_informational() {
        let reason = "server: an upgrade that nobody asked for".to_owned();
        return Err(Broken { reason, untold: true });
    }
    let bodiless =
        head_only || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let mut head = Response::new(());
    *head.status_mut() = parts.status;
    *head.headers_mut() = parts.headers;
    strip_hop_by_hop(head.headers_mut());
    if !bodiless {
        head.headers_mut().remove(CONTENT_LENGTH);
        if let Some(length) = body.size_hint().exact() {
            head.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
    }
    let gone = |error: h2::Error| Broken { reason: format!("client: {error}"), untold: false };
    let mut to = respond.send_response(head, bodiless).map_err(gone)?;
    if bodiless {
        return Ok(());
    }
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Broken { reason: format!("server: {error}"), untold: false })?;
        // Trailers are left out, as towards a client of HTTP/1.
        let Ok(mut data) = frame.into_data() else { continue };
        while !data.is_empty() {
            let room = room(&mut to, data.len().min(CHUNK)).await?;
            to.send_data(data.split_to(room), false).map_err(gone)?;
        }
    }
    to.send_data(Bytes::new(), true).map_err(gone)
}

/// Waits until the client wants some bytes, at most so many.
async fn room(to: &mut SendStream<Bytes>, wanted: usize) -> Result<usize, Broken> {
    let gone = |error: String| Broken { reason: format!("client: {error}"), untold: false };
    to.reserve_capacity(wanted);
    while to.capacity() == 0 {
        poll_fn(|context| to.poll_capacity(context))
            .await
            .ok_or_else(|| gone("the stream is closed".to_owned()))?
            .map_err(|error| gone(error.to_string()))?;
    }
    Ok(to.capacity().min(wanted))
}
