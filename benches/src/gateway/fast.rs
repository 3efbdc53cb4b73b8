//! The server that everything is in front of: as little as an MCP server can do, over HTTP and
//! over stdio, with one set of answers.

use std::convert::Infallible;
use std::io::{BufRead as _, Write as _};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::Result;

/// What the tool answers, whatever it is asked.
pub(super) const SAID: &str = "said by the fast server";

/// Tools of a server whose path begins with `/many/`.
const MANY: usize = 100;

const NOUNS: [&str; 10] = [
    "invoice",
    "customer",
    "branch",
    "ticket",
    "calendar",
    "document",
    "payment",
    "contact",
    "image",
    "deployment",
];
const VERBS: [&str; 10] =
    ["create", "read", "update", "delete", "list", "search", "archive", "share", "export", "merge"];

/// Answers on a free port until standard input ends; says the port first.
pub(super) fn http() -> Result {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
        println!("{}", listener.local_addr().map_err(|e| e.to_string())?.port());
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let _ = stream.set_nodelay(true);
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(serve);
                    let http = hyper::server::conn::http1::Builder::new();
                    // The other side may end a connection at any time.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        super::process::ended().await;
        Ok(())
    })
}

/// Answers lines until there are no more.
pub(super) fn stdio() -> Result {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let message = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        if let Some(reply) = answer(&message, false) {
            writeln!(out, "{reply}").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

pub(super) fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?
        .block_on(work)
}

async fn serve(
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let status = |code| {
        let mut response = Response::new(Full::default());
        *response.status_mut() = code;
        response
    };
    if request.method() != Method::POST {
        return Ok(status(StatusCode::METHOD_NOT_ALLOWED));
    }
    let many = request.uri().path().starts_with("/many/");
    let Ok(body) = request.into_body().collect().await else {
        return Ok(status(StatusCode::BAD_REQUEST));
    };
    let Ok(message) = serde_json::from_slice(&body.to_bytes()) else {
        return Ok(status(StatusCode::BAD_REQUEST));
    };
    let Some(reply) = answer(&message, many) else {
        return Ok(status(StatusCode::ACCEPTED));
    };
    let mut response = Response::new(Full::from(reply.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The reply to a request; none to a notification.
fn answer(message: &Value, many: bool) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "fast", "version": "0" },
        }),
        Some("ping") => json!({}),
        Some("tools/list") => json!({ "tools": tools(many) }),
        Some("tools/call") => json!({
            "content": [{ "type": "text", "text": SAID }],
            "_meta": { "usage": { "tokens": 7 } },
        }),
        _ => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn tools(many: bool) -> Vec<Value> {
    let tool = |name: String, description: String| {
        json!({
            "name": name, "description": description,
            "inputSchema": {
                "type": "object",
                "properties": { "text": { "type": "string", "description": "What to say." } },
            },
        })
    };
    if !many {
        return vec![tool("echo".into(), "Says something.".into())];
    }
    (0..MANY)
        .map(|n| {
            let (verb, noun) = (VERBS[n % 10], NOUNS[n / 10]);
            tool(format!("{verb}_{noun}"), format!("To {verb} one {noun} or several of them."))
        })
        .collect()
}
