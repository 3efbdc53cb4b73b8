//! A server over HTTP that does as a test says, a client that remembers what it heard.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::WAIT;
use crate::upstream::{HttpOptions, Upstream, UpstreamLimits};
use crate::{Answer, Boxed, Client, Party, Revision};

/// One HTTP request as it came.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) verb: String,
    pub(super) headers: HashMap<String, String>,
    pub(super) body: Value,
}

impl Seen {
    pub(super) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(super) fn id(&self) -> &Value {
        &self.body["id"]
    }
}

/// The way back of one request. A stream that is dropped without [`Out::end`] has broken.
pub(super) struct Out(TcpStream);

impl Out {
    pub(super) async fn reply(mut self, status: u16, head: &str, body: &[u8]) {
        let head = format!(
            "HTTP/1.1 {status} x\r\n{head}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = self.0.write_all(&[head.as_bytes(), body].concat()).await;
        let _ = self.0.shutdown().await;
    }

    pub(super) async fn json(self, body: Value) {
        let head = "content-type: application/json\r\n";
        self.reply(200, head, body.to_string().as_bytes()).await;
    }

    pub(super) async fn result(self, seen: &Seen, result: Value) {
        self.json(json!({"jsonrpc": "2.0", "id": seen.id(), "result": result})).await;
    }

    pub(super) async fn empty(self, status: u16) {
        self.reply(status, "", b"").await;
    }

    pub(super) async fn events(&mut self) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        let _ = self.0.write_all(head.as_bytes()).await;
    }

    /// False when nobody reads any more.
    pub(super) async fn text(&mut self, text: &str) -> bool {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.0.write_all(chunk.as_bytes()).await.is_ok()
    }

    pub(super) async fn event(&mut self, data: &Value) -> bool {
        self.text(&format!("data: {data}\n\n")).await
    }

    pub(super) async fn end(mut self) {
        let _ = self.0.write_all(b"0\r\n\r\n").await;
        let _ = self.0.shutdown().await;
    }

    /// These bytes, and no end. False when nobody reads any more.
    pub(super) async fn raw(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// Waits until the other side has closed.
    pub(super) async fn closed(mut self) {
        let mut rest = [0; 64];
        while self.0.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    }
}

pub(super) fn result(seen: &Seen, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": seen.id(), "result": result})
}

pub(super) fn note(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

pub(super) fn question(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

async fn read(mut stream: TcpStream) -> Option<(Seen, Out)> {
    let mut text = Vec::new();
    loop {
        if stream.read_buf(&mut text).await.ok()? == 0 {
            return None;
        }
        let Some(end) = text.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(text[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let verb = lines.next()?.split(' ').next()?.to_owned();
        let split =
            |line: &str| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned()));
        let headers: HashMap<_, _> = lines.filter_map(split).collect();
        let length = headers.get("content-length").map_or(0, |n| n.parse().unwrap());
        if text.len() >= end + 4 + length {
            let body = serde_json::from_slice(&text[end + 4..]).unwrap_or_default();
            return Some((Seen { verb, headers, body }, Out(stream)));
        }
    }
}

/// Serves each request by `act`, at once.
pub(super) async fn stage<A, F>(act: A) -> String
where
    A: Fn(Seen, Out) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let act = Arc::new(act);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let act = Arc::clone(&act);
            tokio::spawn(async move {
                if let Some((seen, out)) = read(stream).await {
                    act(seen, out).await;
                }
            });
        }
    });
    format!("http://{address}/mcp")
}

/// Answers a handshake, with these capabilities, and has no stream of its own; gives back what it
/// does not answer.
pub(super) async fn dated(seen: Seen, out: Out, capabilities: Value) -> Option<(Seen, Out)> {
    match (seen.verb.as_str(), seen.method()) {
        ("POST", "initialize") => {
            let body = result(
                &seen,
                json!({"protocolVersion": "2025-11-25", "capabilities": capabilities}),
            );
            let head = "content-type: application/json\r\nmcp-session-id: s-1\r\n";
            out.reply(200, head, body.to_string().as_bytes()).await;
        }
        ("POST", "server/discover") => out.empty(400).await,
        ("POST", "notifications/initialized") => out.empty(202).await,
        ("DELETE", _) => out.empty(200).await,
        _ => return Some((seen, out)),
    }
    None
}

/// As [`dated`], of the stateless revision.
pub(super) async fn stateless(seen: Seen, out: Out) -> Option<(Seen, Out)> {
    if seen.method() != "server/discover" {
        return Some((seen, out));
    }
    let hello = json!({"supportedVersions": ["2026-07-28"], "capabilities": {}});
    out.result(&seen, hello).await;
    None
}

pub(super) async fn connect(url: &str, prefer: Revision) -> Upstream {
    let options = HttpOptions { prefer: Some(prefer), ..HttpOptions::default() };
    Upstream::http(url, &options, UpstreamLimits::default(), WAIT).await.unwrap()
}

type Answering = dyn Fn(String, Option<Value>) -> Boxed<'static, Answer> + Send + Sync;

/// A client that remembers, and answers as it is told.
pub(super) struct Ear {
    capabilities: Value,
    party: Party,
    heard: mpsc::UnboundedSender<(String, Value)>,
    answering: Box<Answering>,
}

/// With forms, sampling and roots.
pub(super) fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

/// One that gives every question back as the answer.
pub(super) fn ear(
    capabilities: Value,
) -> (Arc<dyn Client>, mpsc::UnboundedReceiver<(String, Value)>) {
    answering(capabilities, |method, params| {
        Box::pin(std::future::ready(Ok(json!({"asked": method, "with": params}))))
    })
}

pub(super) fn answering(
    capabilities: Value,
    answering: impl Fn(String, Option<Value>) -> Boxed<'static, Answer> + Send + Sync + 'static,
) -> (Arc<dyn Client>, mpsc::UnboundedReceiver<(String, Value)>) {
    let (heard, hears) = mpsc::unbounded_channel();
    let (party, answering) = (Party::Unknown, Box::new(answering));
    (Arc::new(Ear { capabilities, party, heard, answering }), hears)
}

/// As [`ear`], of this client, in this session.
pub(super) fn of(
    principal: &str,
    session: Option<&str>,
) -> (Arc<dyn Client>, mpsc::UnboundedReceiver<(String, Value)>) {
    let (heard, hears) = mpsc::unbounded_channel();
    let session = session.map(Into::into);
    let party = Party::Caller { principal: Some(principal.into()), session };
    let name = principal.to_owned();
    let answering: Box<Answering> = Box::new(move |method, _| {
        Box::pin(std::future::ready(Ok(json!({ "asked": method, "of": name }))))
    });
    (Arc::new(Ear { capabilities: able(), party, heard, answering }), hears)
}

/// One with a session, which has declared this.
pub(super) fn in_session(principal: &str, session: &str, capabilities: Value) -> Arc<dyn Client> {
    let (principal, session) = (Some(principal.into()), Some(session.into()));
    let (heard, _) = mpsc::unbounded_channel();
    let answering: Box<Answering> = Box::new(|_, _| Box::pin(std::future::pending()));
    Arc::new(Ear { capabilities, party: Party::Caller { principal, session }, heard, answering })
}

/// One of the stateless revision, which answers as it is told.
pub(super) fn stateless_of(
    principal: &str,
    capabilities: Value,
    answering: impl Fn(String, Option<Value>) -> Boxed<'static, Answer> + Send + Sync + 'static,
) -> Arc<dyn Client> {
    let party = Party::Caller { principal: Some(principal.into()), session: None };
    let (heard, _) = mpsc::unbounded_channel();
    Arc::new(Ear { capabilities, party, heard, answering: Box::new(answering) })
}

impl Client for Ear {
    fn capabilities(&self) -> &Value {
        &self.capabilities
    }

    fn party(&self) -> Party {
        self.party.clone()
    }

    fn notify<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, ()> {
        let _ = self.heard.send((method.to_owned(), params.unwrap_or_default()));
        Box::pin(std::future::ready(()))
    }

    fn ask<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, Answer> {
        (self.answering)(method.to_owned(), params)
    }
}
