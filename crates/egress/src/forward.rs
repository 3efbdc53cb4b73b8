//! One plain HTTP exchange: the judged request goes over a fresh connection, the answer comes back.

use std::future::Future;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::task::JoinSet;

use crate::body::{BodyError, Decoder, Fed, Feed, PIECE, Piece, UploadBody};
use crate::decide::Permit;
use crate::engine::Limits;
use crate::head::{Framing, MAX_HEAD};
use crate::reply::Reply;
use crate::request::{Exchange, strip_hop_by_hop};
use crate::traffic::Counted;

/// The client's side of an exchange.
pub(crate) struct Side<'a> {
    pub(crate) stream: &'a mut TcpStream,
    pub(crate) buffer: &'a mut BytesMut,
    /// HTTP/1.1, which knows chunks.
    pub(crate) chunks: bool,
    /// The connection is wanted for another request.
    pub(crate) keep: bool,
}

/// What can follow an exchange.
pub(crate) enum After {
    /// Another request on this connection.
    Next,
    /// Nothing: the connection must be closed.
    Close,
    /// An answer of our own, then nothing.
    Tell(Reply),
}

/// Why an answer could not be passed on.
pub(crate) struct Broken {
    pub(crate) reason: String,
    /// The client has had no byte of an answer yet.
    pub(crate) untold: bool,
}

/// Runs an exchange with a client that speaks HTTP/1 to its end and records it.
pub(crate) async fn run(
    side: Side<'_>,
    exchange: Exchange,
    server: TcpStream,
    permit: Permit,
    limits: &Limits,
) -> After {
    if exchange.expects_continue
        && exchange.framing != Framing::Empty
        && side.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err()
    {
        permit.close("client: gone");
        return After::Close;
    }
    let (framing, head_only) = (exchange.framing, exchange.method == Method::HEAD);
    let Side { stream, buffer, chunks, keep } = side;
    let (reads, writes) = stream.split();
    let manner = Manner { chunks, keep, head_only };
    let up = |feed| upload(reads, buffer, framing, feed);
    let down = |answer| download(answer, writes, manner);
    carry(exchange, server, permit, limits, up, down).await
}

/// Sends a judged request over a fresh connection: `up` feeds its body, `down` passes the answer on and
/// says whether the client's connection can be kept.
pub(crate) async fn carry<U, D>(
    exchange: Exchange,
    server: TcpStream,
    permit: Permit,
    limits: &Limits,
    up: impl FnOnce(Feed) -> U,
    down: impl FnOnce(hyper::Response<Incoming>) -> D,
) -> After
where
    U: Future<Output = Result<(), BodyError>>,
    D: Future<Output = Result<bool, Broken>>,
{
    let traffic = Arc::clone(permit.traffic());
    let io = TokioIo::new(Counted { stream: server, traffic: Arc::clone(&traffic) });
    let handshake = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(io).await;
    let (mut sender, connection) = match handshake {
        Ok(made) => made,
        Err(error) => return failed(permit, &format!("server: {error}")),
    };
    // Ends with the exchange: the set aborts what is left in it when it is dropped.
    let mut driver = JoinSet::new();
    driver.spawn(connection);

    let (feed, body) = UploadBody::new(exchange.framing);
    let request = request(exchange, body);
    let upload = up(feed);
    let download = async {
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| Broken { reason: format!("server: {error}"), untold: true })?;
        down(answer).await
    };
    tokio::pin!(upload, download);
    let mut uploaded = None;
    let cut = |reason: String| Broken { reason, untold: false };
    let total = tokio::time::sleep(limits.total);
    tokio::pin!(total);
    let downloaded = loop {
        tokio::select! {
            ended = &mut upload, if uploaded.is_none() => uploaded = Some(ended),
            ended = &mut download => break ended,
            () = traffic.idle_for(limits.idle) => {
                break Err(cut(format!("idle for {} s", limits.idle.as_secs())));
            }
            () = &mut total => break Err(cut(format!("open for {} s", limits.total.as_secs()))),
        }
    };
    match (downloaded, uploaded) {
        (Ok(kept), Some(Ok(()))) => {
            permit.close("closed");
            if kept { After::Next } else { After::Close }
        }
        // The server has answered without waiting for the rest: what is left is not a request.
        (Ok(_), _) => {
            permit.close("closed");
            After::Close
        }
        (Err(broken), Some(Err(error))) if broken.untold => {
            permit.close(&format!("client: {error}"));
            After::Tell(Reply::bad_request(400, &error.to_string()))
        }
        (Err(broken), _) if broken.untold => failed(permit, &broken.reason),
        (Err(broken), _) => {
            permit.close(&broken.reason);
            After::Close
        }
    }
}

fn failed(permit: Permit, reason: &str) -> After {
    let host = permit.to().host.to_string();
    permit.close(reason);
    After::Tell(Reply::bad_gateway(&format!("no answer from {host}: {reason}")))
}

/// The request as it goes upstream, made anew from what was judged.
fn request(exchange: Exchange, body: UploadBody) -> hyper::Request<UploadBody> {
    let Exchange { authority, path, method, headers, framing, .. } = exchange;
    let host = match authority.port {
        80 => authority.host.to_string(),
        port => format!("{}:{port}", authority.host),
    };
    let mut request = hyper::Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = path;
    let out = request.headers_mut();
    out.insert(HOST, HeaderValue::from_str(&host).expect("a canonical host is visible ASCII"));
    out.extend(headers);
    if let Framing::Length(length) = framing {
        out.insert(CONTENT_LENGTH, length.into());
    }
    out.insert(CONNECTION, HeaderValue::from_static("close"));
    request
}

/// Moves the body from the client to the feed. Nothing is read while a piece waits there.
async fn upload(
    mut reads: ReadHalf<'_>,
    buffer: &mut BytesMut,
    framing: Framing,
    feed: Feed,
) -> Result<(), BodyError> {
    let mut decoder = Decoder::new(framing);
    loop {
        match decoder.next(buffer)? {
            // When nobody takes it, the exchange is over: its other half says why.
            Piece::Data(data) => feed.send(Fed::Data(data)).await.map_err(|_| BodyError::Cut)?,
            Piece::More => {
                buffer.reserve(PIECE);
                if reads.read_buf(buffer).await.map_err(|_| BodyError::Cut)? == 0 {
                    return Err(BodyError::Cut);
                }
            }
            Piece::End => {
                // An empty body is not waited for, so that its end may find nobody.
                let _ = feed.send(Fed::End).await;
                return Ok(());
            }
        }
    }
}

/// How an answer is to be written.
#[derive(Clone, Copy)]
struct Manner {
    chunks: bool,
    keep: bool,
    head_only: bool,
}

/// How the end of an answer's body is shown to the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    None,
    Length(u64),
    Chunks,
    Close,
}

/// Passes the answer on. True when the connection can be kept.
async fn download(
    answer: hyper::Response<Incoming>,
    mut writes: WriteHalf<'_>,
    manner: Manner,
) -> Result<bool, Broken> {
    let (parts, mut body) = answer.into_parts();
    if parts.status.is_informational() {
        let reason = "server: an upgrade that nobody asked for".to_owned();
        return Err(Broken { reason, untold: true });
    }
    let bodiless = manner.head_only
        || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let ending = match body.size_hint().exact() {
        _ if bodiless => Ending::None,
        Some(length) => Ending::Length(length),
        None if manner.chunks => Ending::Chunks,
        None => Ending::Close,
    };
    let keep = manner.keep && ending != Ending::Close;
    let head = answer_head(parts.status, parts.headers, ending, keep);
    let gone = |error: std::io::Error| Broken { reason: format!("client: {error}"), untold: false };
    writes.write_all(&head).await.map_err(gone)?;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Broken { reason: format!("server: {error}"), untold: false })?;
        // Trailers are left out, as an intermediary may (RFC 9112, section 7.1.2).
        let Ok(data) = frame.into_data() else { continue };
        if data.is_empty() {
            continue;
        }
        let sent = match ending {
            Ending::Chunks => {
                let size = Bytes::from(format!("{:x}\r\n", data.len()));
                let mut chunk = size.chain(data).chain(&b"\r\n"[..]);
                writes.write_all_buf(&mut chunk).await
            }
            _ => writes.write_all(&data).await,
        };
        sent.map_err(gone)?;
    }
    if ending == Ending::Chunks {
        writes.write_all(b"0\r\n\r\n").await.map_err(gone)?;
    }
    Ok(keep)
}

fn answer_head(status: StatusCode, mut headers: HeaderMap, ending: Ending, keep: bool) -> Vec<u8> {
    strip_hop_by_hop(&mut headers);
    if ending != Ending::None {
        headers.remove(CONTENT_LENGTH);
    }
    let phrase = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {phrase}\r\n", status.as_u16()).into_bytes();
    for (name, value) in &headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    match ending {
        Ending::Length(length) => {
            head.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
        }
        Ending::Chunks => head.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Ending::None | Ending::Close => {}
    }
    if !keep {
        head.extend_from_slice(b"connection: close\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}
