//! A client by hand, which sees events as they come.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// An answer on a connection of its own, which breaks when this is dropped.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: http::HeaderMap,
    body: Incoming,
    text: String,
    connection: JoinHandle<()>,
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) id: Option<String>,
    pub(super) data: String,
}

impl Event {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

pub(super) async fn send(
    address: SocketAddr,
    method: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Reply {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    let mut request = Request::builder().method(method).uri("/echo/mcp");
    let host = address.to_string();
    let usual = [
        ("host", host.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let said = |name: &str| headers.iter().any(|(said, _)| *said == name);
    for (name, value) in usual.iter().filter(|(name, _)| !said(name)).chain(headers) {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::<Bytes>::from(body)).unwrap();
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let (status, headers) = (parts.status, parts.headers);
    Reply { status, headers, body, text: String::new(), connection }
}

impl Reply {
    pub(super) fn is_stream(&self) -> bool {
        self.headers["content-type"] == "text/event-stream"
    }

    /// The next event; comments are passed over.
    pub(super) async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let line = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let data = line("data:").map(|data| data.trim_start().to_owned());
                let id = line("id: ").map(str::to_owned);
                self.text = rest.to_owned();
                if let Some(data) = data {
                    return Some(Event { id, data });
                }
                continue;
            }
            let frame = self.body.frame().await?.ok()?;
            let data = frame.into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    /// The body, when it is one JSON text.
    pub(super) async fn json(&mut self) -> Value {
        assert!(!self.is_stream());
        let mut bytes = Vec::new();
        while let Some(frame) = self.body.frame().await {
            bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        serde_json::from_slice(&bytes).unwrap()
    }
}

/// A session's header.
pub(super) async fn session(address: SocketAddr, version: &str, extra: &[(&str, &str)]) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version,
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "t", "version": "1" },
    } });
    let reply = send(address, "POST", extra, body.to_string()).await;
    assert_eq!(reply.status, 200);
    reply.headers["mcp-session-id"].to_str().unwrap().to_owned()
}

/// A call in a session.
pub(super) async fn call(
    address: SocketAddr,
    session: &str,
    id: i64,
    tool: &str,
    arguments: Value,
) -> Reply {
    let params = json!({ "name": tool, "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    send(address, "POST", &[("mcp-session-id", session)], body.to_string()).await
}

/// A stateless call, with more parameters and headers.
pub(super) async fn stateless(
    address: SocketAddr,
    tool: &str,
    more: Value,
    extra: &[(&str, &str)],
) -> Reply {
    let mut params = json!({ "name": tool, "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    } });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut headers = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ];
    headers.extend(extra);
    send(address, "POST", &headers, body.to_string()).await
}

pub(super) fn accept(name: &str) -> Value {
    json!({ "action": "accept", "content": { "name": name } })
}
