//! One client's connection to one server: HTTP or stdio, any dated revision.

use std::process::Stdio;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::fast::SAID;
use crate::Result;

const REVISION: &str = "2025-06-18";

/// Where a server is.
#[derive(Clone)]
pub(super) enum Place {
    /// `http://127.0.0.1:<port>/<path>`, and a bearer token.
    Http { port: u16, path: String, token: Option<String> },
    /// A program and its arguments.
    Stdio(Vec<String>),
}

impl Place {
    pub(super) fn parse(order: &Value) -> Result<Self> {
        if let Some(words) = order["command"].as_array() {
            let words = words.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect();
            return Ok(Self::Stdio(words));
        }
        let url = order["url"].as_str().ok_or("no url")?;
        let rest = url.strip_prefix("http://").ok_or("no http URL")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = authority.rsplit(':').next().and_then(|p| p.parse().ok()).ok_or("no port")?;
        let token = order["token"].as_str().map(str::to_owned);
        Ok(Self::Http { port, path: format!("/{path}"), token })
    }
}

enum Wire {
    Http { send: SendRequest<Full<Bytes>>, place: (u16, String, Option<String>), session: String },
    Stdio { stdin: ChildStdin, stdout: BufReader<ChildStdout>, line: String, _child: Box<Child> },
}

/// An open session.
pub(super) struct Link {
    wire: Wire,
    tool: String,
    next: u64,
}

impl Link {
    /// Connects and shakes hands; a tool that is given is what is called.
    pub(super) async fn open(place: &Place, tool: &str) -> Result<Self> {
        let wire = match place {
            Place::Http { port, path, token } => {
                let send = dial(*port).await?;
                let place = (*port, path.clone(), token.clone());
                Wire::Http { send, place, session: String::new() }
            }
            Place::Stdio(words) => {
                let mut child = tokio::process::Command::new(&words[0])
                    .args(&words[1..])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::inherit())
                    .kill_on_drop(true)
                    .spawn()
                    .map_err(|e| format!("{}: {e}", words[0]))?;
                let stdin = child.stdin.take().ok_or("stdin is no pipe")?;
                let stdout = BufReader::new(child.stdout.take().ok_or("stdout is no pipe")?);
                Wire::Stdio { stdin, stdout, line: String::new(), _child: Box::new(child) }
            }
        };
        let mut link = Self { wire, tool: tool.to_owned(), next: 0 };
        let hello = json!({
            "protocolVersion": REVISION, "capabilities": {},
            "clientInfo": { "name": "bench", "version": "0" },
        });
        link.ask("initialize", &hello).await?;
        link.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }), None).await?;
        Ok(link)
    }

    /// A request and its result.
    pub(super) async fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut reply =
            self.send(message, Some(id)).await?.ok_or_else(|| format!("{method}: no reply"))?;
        if reply["id"] != id || reply.get("result").is_none() {
            return Err(format!("{method}: {reply}"));
        }
        Ok(reply["result"].take())
    }

    /// Calls the tool and checks what it says.
    pub(super) async fn call(&mut self) -> Result {
        let params = json!({ "name": self.tool, "arguments": { "text": "hello" } });
        let result = self.ask("tools/call", &params).await?;
        if result["content"][0]["text"] != SAID {
            return Err(format!("not what the server says: {result}"));
        }
        Ok(())
    }

    async fn send(&mut self, message: Value, id: Option<u64>) -> Result<Option<Value>> {
        match &mut self.wire {
            Wire::Http { send, place: (port, path, token), session } => {
                let mut request = Request::post(path.as_str())
                    .header("host", format!("127.0.0.1:{port}"))
                    .header("content-type", "application/json")
                    .header("accept", "application/json, text/event-stream");
                if let Some(token) = token {
                    request = request.header("authorization", format!("Bearer {token}"));
                }
                if id != Some(1) {
                    request = request.header("mcp-protocol-version", REVISION);
                }
                if !session.is_empty() {
                    request = request.header("mcp-session-id", session.as_str());
                }
                let request =
                    request.body(Full::from(message.to_string())).map_err(|e| e.to_string())?;
                // Some servers close a connection that was idle for seconds.
                if send.ready().await.is_err() {
                    *send = dial(*port).await?;
                }
                let response = send.send_request(request).await.map_err(|e| e.to_string())?;
                let (head, body) = response.into_parts();
                let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
                if !head.status.is_success() {
                    return Err(format!("{}: {}", head.status, String::from_utf8_lossy(&body)));
                }
                if let Some(id) = head.headers.get("mcp-session-id") {
                    *session = id.to_str().map_err(|e| e.to_string())?.to_owned();
                }
                let kind = head.headers.get("content-type").map_or(&b""[..], |v| v.as_bytes());
                if kind.starts_with(b"text/event-stream") {
                    return Ok(event(&body, id));
                }
                match id {
                    Some(_) => serde_json::from_slice(&body).map(Some).map_err(|e| e.to_string()),
                    None => Ok(None),
                }
            }
            Wire::Stdio { stdin, stdout, line, .. } => {
                let text = format!("{message}\n");
                stdin.write_all(text.as_bytes()).await.map_err(|e| e.to_string())?;
                while id.is_some() {
                    line.clear();
                    if stdout.read_line(line).await.map_err(|e| e.to_string())? == 0 {
                        return Err("the server ended".into());
                    }
                    let reply: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
                    if reply.get("id").is_some() && reply.get("method").is_none() {
                        return Ok(Some(reply));
                    }
                }
                Ok(None)
            }
        }
    }
}

async fn dial(port: u16) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|e| e.to_string())?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let (send, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    Ok(send)
}

/// The reply within an event stream that has ended.
fn event(body: &[u8], id: Option<u64>) -> Option<Value> {
    let id = id?;
    String::from_utf8_lossy(body)
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .find(|message| message["id"] == id)
}
