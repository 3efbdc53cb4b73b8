//! One client connection: request after request, each judged on its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use http::header::PROXY_AUTHORIZATION;
use ringfence_policy::Principal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::decide::{Case, Permit};
use crate::dial::dial;
use crate::engine::{Engine, Limits};
use crate::forward::{self, After, Side};
use crate::head::{Framing, Head, HeadError, find_end};
use crate::proxy::Begun;
use crate::reply::Reply;
use crate::request::{Exchange, Request};
use crate::token::Token;
use crate::tunnel;

/// How long, and how much, a refused client is listened to, so that it can read the answer: a socket
/// that is closed with unread bytes takes the answer back.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;

/// The peer of one listener.
pub(crate) struct Peer {
    pub(crate) who: Principal,
    pub(crate) token: Token,
    pub(crate) begun: Begun,
}

/// Serves one connection until it ends.
pub(crate) async fn serve(engine: Arc<Engine>, peer: Arc<Peer>, stream: TcpStream) {
    // Without it the answers only come later.
    let _ = stream.set_nodelay(true);
    let mut client = Client { stream, buffer: BytesMut::new() };
    if !peer.begun.has() {
        return client.turn_away(&engine.limits).await;
    }
    while let Some(kept) = client.serve_one(&engine, &peer).await {
        client = kept;
    }
}

/// A connection from the sandbox, and what has been read from it and not yet used.
struct Client {
    stream: TcpStream,
    buffer: BytesMut,
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
        let mut case = Case::open(engine, &peer.who, head.method.as_str());
        let shape = Shape {
            keep: head.keeps_alive() && head.framing == Framing::Empty,
            head_only: head.method == Method::HEAD,
        };
        if !shows_token(&head, &peer.token) {
            let reason = "the request does not show the run's token";
            let reply = case.refuse_form("token", reason, &head.target, Reply::no_token());
            return self.refuse(&reply, shape).await;
        }
        case.pass("token", "the request shows the run's token");
        let (minor, keep, target) = (head.minor, head.keeps_alive(), head.target.clone());
        let request = match Request::new(head) {
            Ok(request) => request,
            Err(error) => {
                let reply = Reply::bad_request(error.status, error.reason);
                let reply = case.refuse_form(error.check, error.reason, &target, reply);
                return self.refuse(&reply, Shape { keep: false, ..shape }).await;
            }
        };
        case.pass("name", "one host and one port");
        let to = match &request {
            Request::Tunnel(authority) => authority,
            Request::Exchange(exchange) => &exchange.authority,
        };
        let permit = match Box::pin(case.decide(to)).await {
            Ok(permit) => permit,
            Err(reply) => return self.refuse(&reply, shape).await,
        };
        let server = match Box::pin(dial(permit.addresses(), to.port)).await {
            Ok(server) => server,
            Err(error) => {
                let reply = Reply::bad_gateway(&format!("cannot connect to {}: {error}", to.host));
                permit.close(&format!("connect-failed: {error}"));
                return self.refuse(&reply, shape).await;
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
        tunnel::run(self.stream, self.buffer, server, permit, limits).await;
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

    /// Reads the next head. `None` when the connection ends, or is left alone, before one begins.
    async fn read_head(&mut self, limits: &Limits) -> Result<Option<Head>, HeadError> {
        if self.buffer.is_empty() {
            match timeout(limits.waiting, self.read_more()).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => return Ok(None),
            }
        }
        timeout(limits.head, self.rest_of_head())
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

fn shows_token(head: &Head, token: &Token) -> bool {
    let mut shown = head.headers.get_all(PROXY_AUTHORIZATION).iter();
    matches!((shown.next(), shown.next()), (Some(one), None) if token.admits(one.as_bytes()))
}
