//! One client connection: request after request, each judged on its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use ringfence_policy::Principal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::admit::{Through, admit};
use crate::decide::{Case, Permit};
use crate::engine::{Engine, Limits};
use crate::forward::{self, After, Side};
use crate::head::{Framing, Head, HeadError, find_end};
use crate::http2;
use crate::proxy::Begun;
use crate::reply::Reply;
use crate::request::{Exchange, Request};
use crate::slots::Slots;
use crate::token::Token;
use crate::tunnel;

/// How long, and how much, a refused client is listened to, so that it can read the answer: a socket
/// that is closed with unread bytes takes the answer back.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;

/// The peer of one listener.
pub(crate) struct Peer {
    pub(crate) who: Principal,
    pub(crate) token: Token,
    pub(crate) begun: Begun,
}

/// Serves one connection until it ends.
pub(crate) async fn serve(
    engine: Arc<Engine>,
    peer: Arc<Peer>,
    slots: Arc<Slots>,
    stream: TcpStream,
) {
    // Without it the answers only come later.
    let _ = stream.set_nodelay(true);
    let mut client = Client { stream, buffer: BytesMut::new(), deadline: None };
    if !peer.begun.has() {
        return client.turn_away(&engine.limits).await;
    }
    match client.speaks_http2(&engine.limits).await {
        None => return,
        Some(true) => {
            let Client { stream, buffer, .. } = client;
            return Box::pin(http2::serve(engine, peer, slots, stream, buffer)).await;
        }
        Some(false) => {}
    }
    while let Some(kept) = client.serve_one(&engine, &peer).await {
        client = kept;
    }
}

/// A connection from the sandbox, and what has been read from it and not yet used.
struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    /// Until when the head must be whole of which the first bytes are in the buffer.
    deadline: Option<Instant>,
}

/// What a refusal must know of the request.
#[derive(Clone, Copy)]
struct Shape {
    keep: bool,
    head_only: bool,
}

impl Client {
    /// Serves the next request; gives the connection back when another may follow.
    async fn serve_one(mut self, engine: &Arc<Engine>, peer: &Peer) -> Option<Self> {
        let head = self.read_head(&engine.limits).await;
        // What is judged is recorded, so that a client can ask no faster than evidence is kept.
        engine.journal.room().await;
        let head = match head {
            Ok(head) => head?,
            Err(error) => {
                let case = Case::open(engine, &peer.who, "?");
                // The request line alone: a header line may hold a secret.
                let line =
                    self.buffer.as_ref().split(|byte: &u8| matches!(byte, b'\r' | b'\n')).next();
                let given = String::from_utf8_lossy(line.unwrap_or_default());
                let reply = Reply::bad_request(400, error.0);
                let reply = case.refuse_form("request", error.0, &given, reply);
                return self.refuse(&reply, Shape { keep: false, head_only: false }).await;
            }
        };
        let shape = Shape {
            keep: head.keeps_alive() && head.framing == Framing::Empty,
            head_only: head.method == Method::HEAD,
        };
        let (minor, keep) = (head.minor, head.keeps_alive());
        // A client that goes away meanwhile is noticed when it is answered.
        let admitted = Box::pin(admit(engine, peer, head, std::future::pending())).await;
        let Through { request, permit, server } = match admitted {
            Ok(through) => through,
            Err(refused) => {
                let keep = shape.keep && refused.understood;
                return self.refuse(&refused.reply, Shape { keep, ..shape }).await;
            }
        };
        match request {
            Request::Tunnel(_) => {
                self.tunnel(server, permit, &engine.limits).await;
                None
            }
            Request::Exchange(exchange) => {
                let spoken = Spoken { chunks: minor == 1, keep, head_only: shape.head_only };
                Box::pin(self.exchange(exchange, spoken, server, permit, &engine.limits)).await
            }
        }
    }

    /// Answers the probe of a sandbox in which nothing was started: any answer will do.
    async fn turn_away(mut self, limits: &Limits) {
        if let Ok(None) = self.read_head(limits).await {
            return;
        }
        let _ = self.refuse(&Reply::no_token(), Shape { keep: false, head_only: false }).await;
    }

    async fn tunnel(mut self, server: TcpStream, permit: Permit, limits: &Limits) {
        if let Err(error) = self.stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await {
            return permit.close(&format!("client: {error}"));
        }
        tunnel::run(&mut self.stream, self.buffer, server, permit, limits).await;
    }

    async fn exchange(
        mut self,
        exchange: Exchange,
        spoken: Spoken,
        server: TcpStream,
        permit: Permit,
        limits: &Limits,
    ) -> Option<Self> {
        let side = Side {
            stream: &mut self.stream,
            buffer: &mut self.buffer,
            chunks: spoken.chunks,
            keep: spoken.keep,
        };
        match forward::run(side, exchange, server, permit, limits).await {
            After::Next => Some(self),
            After::Close => {
                self.linger().await;
                None
            }
            After::Tell(reply) => {
                self.refuse(&reply, Shape { keep: false, head_only: spoken.head_only }).await
            }
        }
    }

    /// Whether the connection begins with the preface of HTTP/2 (RFC 9113, section 3.4). `None` when
    /// it ends, or is left alone, before anything comes.
    async fn speaks_http2(&mut self, limits: &Limits) -> Option<bool> {
        self.first_byte(limits).await?;
        let deadline = Instant::now() + limits.head;
        // A head that has begun is read with what is left of its time.
        self.deadline = Some(deadline);
        let preface = async {
            while http2::PREFACE.starts_with(&self.buffer) {
                if self.buffer.len() == http2::PREFACE.len() {
                    return true;
                }
                if !matches!(self.read_more().await, Ok(read) if read > 0) {
                    return false;
                }
            }
            self.buffer.starts_with(http2::PREFACE)
        };
        Some(timeout_at(deadline, preface).await.unwrap_or(false))
    }

    /// Waits until something is there to read.
    async fn first_byte(&mut self, limits: &Limits) -> Option<()> {
        if self.buffer.is_empty() {
            match timeout(limits.waiting, self.read_more()).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => return None,
            }
        }
        Some(())
    }

    /// Reads the next head. `None` when the connection ends, or is left alone, before one begins.
    async fn read_head(&mut self, limits: &Limits) -> Result<Option<Head>, HeadError> {
        if self.first_byte(limits).await.is_none() {
            return Ok(None);
        }
        let deadline = self.deadline.take().unwrap_or_else(|| Instant::now() + limits.head);
        timeout_at(deadline, self.rest_of_head())
            .await
            .unwrap_or(Err(HeadError("the head of the request did not come in time")))
            .map(Some)
    }

    async fn rest_of_head(&mut self) -> Result<Head, HeadError> {
        let mut scanned = 0;
        loop {
            if let Some(end) = find_end(&self.buffer, scanned)? {
                let head = Head::parse(&self.buffer[..end])?;
                let _ = self.buffer.split_to(end);
                return Ok(head);
            }
            scanned = self.buffer.len();
            if !matches!(self.read_more().await, Ok(read) if read > 0) {
                return Err(HeadError("the connection ended inside the head of a request"));
            }
        }
    }

    async fn read_more(&mut self) -> std::io::Result<usize> {
        self.buffer.reserve(2048);
        self.stream.read_buf(&mut self.buffer).await
    }

    /// Writes an answer of our own. Gives the connection back when it can be used on.
    async fn refuse(mut self, reply: &Reply, shape: Shape) -> Option<Self> {
        let bytes = reply.render(!shape.head_only, !shape.keep);
        self.stream.write_all(&bytes).await.ok()?;
        if shape.keep {
            return Some(self);
        }
        self.linger().await;
        None
    }

    /// Ends our side and listens on for a moment.
    async fn linger(&mut self) {
        let _ = timeout(LINGER, async {
            self.stream.shutdown().await?;
            let mut total = 0;
            let mut bytes = vec![0; 1024];
            while total < LINGER_BYTES {
                match self.stream.read(&mut bytes).await? {
                    0 => break,
                    read => total += read,
                }
            }
            std::io::Result::Ok(())
        })
        .await;
    }
}

/// How the client speaks.
#[derive(Clone, Copy)]
struct Spoken {
    chunks: bool,
    keep: bool,
    head_only: bool,
}
