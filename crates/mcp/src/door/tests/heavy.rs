//! Answers for which memory is held, until their client has them.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::{Answer, Asker, Backend, Boxed, Client, DoorOptions, HttpDoor, Replies, Share};

/// Answers as a server did whose replies are counted; says something before it, where it is told to.
struct Heavy(Share);

impl Backend for Heavy {
    fn request<'a>(
        &'a self,
        _asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        _method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        Box::pin(async move {
            let result = json!({ "pad": "x".repeat(100_000) });
            if params.unwrap_or_default()["name"] == "says" {
                client.notify("notifications/progress", Some(json!({}))).await;
            }
            if let Some(held) = self.0.whole(result.to_string().as_bytes(), None).await {
                client.keep(held);
            }
            Ok(result)
        })
    }
}

#[tokio::test]
async fn the_room_for_an_answer_is_free_when_its_client_has_it() {
    let replies = Replies::new(1 << 20, 1 << 20);
    let door = HttpDoor::with(Arc::new(Heavy(replies.share())), DoorOptions::loopback(1));
    let free = || replies.free();
    for tool in ["plain", "says"] {
        let params = json!({ "name": tool, "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let request = || {
            Request::post("/echo/mcp")
                .header("host", "127.0.0.1:1")
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "tools/call")
                .header("mcp-name", tool)
                .body(Full::<Bytes>::from(body.to_string()))
                .unwrap()
        };
        let reply = door.handle(request()).await;
        assert_eq!(reply.status(), 200);
        let mut body = reply.into_body();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            frames.push(frame.unwrap().into_data().unwrap());
        }
        drop(body);
        assert!(frames.iter().map(Bytes::len).sum::<usize>() > 100_000, "{tool}");
        assert!(free() <= (1 << 20) - 200_000, "{tool}: {}", free());
        drop(frames);
        assert_eq!(free(), 1 << 20, "{tool}");
        // One who goes away leaves nothing behind.
        drop(door.handle(request()).await);
        while free() < 1 << 20 {
            tokio::task::yield_now().await;
        }
    }
}
