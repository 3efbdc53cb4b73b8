//! Servers that would use up what we have.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::stage::{stage, stateless};
use super::{WAIT, add, answer, http, plain, stdio};
use crate::HttpClient;
use crate::upstream::{HttpOptions, Opening, Upstream, UpstreamError, UpstreamLimits};

/// Answers the handshake; at the first call it asks so often, and reads the answers or does not.
async fn asks(times: usize, reads: bool) -> Result<Value, UpstreamError> {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (read, mut write) = tokio::io::split(theirs);
    tokio::spawn(async move {
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            match message["method"].as_str() {
                Some("initialize") => {
                    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
                    write.write_all(&answer(&message, hello)).await.unwrap();
                }
                Some("tools/call") => {
                    for n in 0..times {
                        let ping = json!({"jsonrpc": "2.0", "id": n, "method": "ping"});
                        if write.write_all(format!("{ping}\n").as_bytes()).await.is_err() {
                            return;
                        }
                        if reads {
                            lines.next_line().await.unwrap().unwrap();
                        }
                    }
                    write.write_all(&answer(&message, json!({}))).await.unwrap();
                }
                _ => {}
            }
        }
    });
    let upstream = stdio(ours, Opening::Handshake).await.unwrap();
    plain(&upstream, "tools/call", add(), WAIT).await
}

#[tokio::test]
async fn a_server_that_asks_and_does_not_read_is_given_up() {
    assert!(asks(2000, true).await.is_ok());
    let error = asks(100_000, false).await.unwrap_err();
    assert!(
        matches!(&error, UpstreamError::Closed { reason } if reason.contains("does not read")),
        "{error}"
    );
}

/// Over HTTP: asks in the event stream of a call, and never accepts an answer.
#[tokio::test]
async fn answers_that_an_http_server_does_not_accept_are_few() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hanging = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&hanging);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut text = Vec::new();
                let body = loop {
                    assert!(stream.read_buf(&mut text).await.unwrap() > 0);
                    let end = text.windows(4).position(|w| w == b"\r\n\r\n");
                    let body = end.and_then(|end| serde_json::from_slice(&text[end + 4..]).ok());
                    if let Some(body) = body {
                        break body;
                    }
                };
                let message: Value = body;
                let (kind, reply) = match message["method"].as_str() {
                    Some("server/discover") => ("text/plain", Vec::new()),
                    Some("initialize") => {
                        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
                        ("application/json", answer(&message, hello))
                    }
                    Some("notifications/initialized") => ("text/plain", Vec::new()),
                    Some("tools/call") => {
                        let ping = |n| {
                            let ping = json!({"jsonrpc": "2.0", "id": n, "method": "ping"});
                            format!("data: {ping}\n\n")
                        };
                        let mut events: String = (0..500).map(ping).collect();
                        let end = String::from_utf8(answer(&message, json!({"ok": 1}))).unwrap();
                        events.push_str(&format!("data: {end}\n\n"));
                        ("text/event-stream", events.into_bytes())
                    }
                    _ => {
                        counted.fetch_add(1, Ordering::SeqCst);
                        return std::future::pending().await;
                    }
                };
                let length = reply.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(&[head.as_bytes(), &reply].concat()).await.unwrap();
            });
        }
    });
    let upstream = http(&format!("http://{address}/mcp")).await.unwrap();
    for _ in 0..3 {
        let answer = plain(&upstream, "tools/call", add(), WAIT).await.unwrap();
        assert_eq!(answer, json!({"ok": 1}));
    }
    let hanging = hanging.load(Ordering::SeqCst);
    assert!((1..=16).contains(&hanging), "{hanging}");
}

#[tokio::test]
async fn the_values_of_an_answer_are_bounded() {
    let reply = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"supportedVersions\":[\"2026-07-28\",1,2,3]}}";
    for (values, fits) in [(9, true), (8, false)] {
        let limits = UpstreamLimits { values, ..UpstreamLimits::default() };
        let url = canned_to_end(reply).await;
        let made = Upstream::http(&url, &HttpOptions::default(), limits, WAIT).await;
        assert_eq!(made.is_ok(), fits, "{made:?}");
        let said = made.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(fits || said.contains("more than 8 values"), "{said}");
    }
}

#[tokio::test]
async fn a_list_without_end_is_left() {
    for (pages, ok) in [(90, true), (1_000_000, false)] {
        let url = stage(move |seen, out| async move {
            let Some((seen, out)) = stateless(seen, out).await else { return };
            let page = seen.body["params"]["cursor"].as_str().map_or(0, |n| n.parse().unwrap());
            let tools = vec![json!({"name": "t"}); 1000];
            let mut list = json!({ "tools": tools });
            if page + 1 < pages {
                list["nextCursor"] = json!((page + 1).to_string());
            }
            out.result(&seen, list).await;
        })
        .await;
        let tools = HttpClient::connect(&url).await.unwrap().tools().await;
        assert_eq!(tools.as_ref().map(Vec::len).ok(), ok.then_some(90_000), "{pages}");
        let said = tools.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(ok || said.contains("no end"), "{said}");
    }
}

/// As [`canned`], with an end.
async fn canned_to_end(reply: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 65536];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(reply.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    format!("http://{address}/mcp")
}
