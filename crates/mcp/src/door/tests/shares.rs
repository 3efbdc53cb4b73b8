//! What one client takes of the memory for requests, and what is left for the others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::testing::Echo;
use crate::{DoorOptions, HttpDoor};

/// A body of these bytes. One that is slow has no end.
struct Sent {
    bytes: Option<Bytes>,
    slow: bool,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.slow => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

fn door() -> (Arc<Echo>, Arc<HttpDoor>) {
    let echo = Arc::new(Echo::default());
    let mut options = DoorOptions::loopback(1);
    // A token is its client's name.
    options.bearer = Some(Arc::new(|token: &str| Some(token.into())));
    (Arc::clone(&echo), Arc::new(HttpDoor::with(echo, options)))
}

/// A call of this tool with these arguments.
fn call(tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

fn send(door: &Arc<HttpDoor>, who: &str, tool: &str, body: String, slow: bool) -> JoinHandle<u16> {
    let request = Request::builder()
        .method("POST")
        .uri("/echo/mcp")
        .header("host", "127.0.0.1:1")
        .header("authorization", format!("Bearer {who}"))
        .header("content-type", "application/json")
        .header("content-length", "1000000")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .body(Sent { bytes: Some(body.into()), slow })
        .unwrap();
    let door = Arc::clone(door);
    tokio::spawn(async move { door.handle(request).await.status().as_u16() })
}

/// Lets everything go on that can, without any time.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// What it was answered at once.
async fn now(answer: JoinHandle<u16>) -> Option<u16> {
    settle().await;
    if answer.is_finished() { Some(answer.await.unwrap()) } else { None }
}

fn large() -> String {
    call("echo", &json!({ "pad": "x".repeat(100_000) }))
}

#[tokio::test(start_paused = true)]
async fn slow_and_large_requests_of_one_client_hold_up_that_client_alone() {
    let (_echo, door) = door();
    let mut slow: Vec<_> = (0..20)
        .map(|_| send(&door, "greedy", "echo", "{".to_owned() + &" ".repeat(70_000), true))
        .collect();
    settle().await;
    assert_eq!(now(send(&door, "other", "echo", large(), false)).await, Some(200));
    let small = call("echo", &json!({}));
    assert_eq!(now(send(&door, "greedy", "echo", small, false)).await, Some(200));
    let own = send(&door, "greedy", "echo", large(), false);
    settle().await;
    assert!(!own.is_finished(), "it has no more places");
    // A place is not held for ever: who has one must use it, who has none is told so.
    tokio::time::sleep(Duration::from_secs(16)).await;
    for first in slow.drain(..2) {
        assert_eq!(first.await.unwrap(), 408);
    }
    assert!(slow.iter().any(|waits| !waits.is_finished()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    for rest in slow {
        assert!([408, 503].contains(&rest.await.unwrap()));
    }
    assert_eq!(own.await.unwrap(), 503);
    assert_eq!(now(send(&door, "greedy", "echo", large(), false)).await, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_a_large_place_when_it_is_large_and_not_when_it_says_so() {
    let (_echo, door) = door();
    // All of them announce a million bytes.
    let slow: Vec<_> = (0..20)
        .map(|_| send(&door, "greedy", "echo", "{".to_owned() + &" ".repeat(60_000), true))
        .collect();
    settle().await;
    assert_eq!(now(send(&door, "greedy", "echo", large(), false)).await, Some(200));
    tokio::time::sleep(Duration::from_secs(31)).await;
    for slow in slow {
        assert_eq!(slow.await.unwrap(), 408);
    }
}

#[tokio::test(start_paused = true)]
async fn values_of_one_client_leave_room_for_those_of_others() {
    let (echo, door) = door();
    let many = |tool: &str| call(tool, &json!({ "n": vec![1; 99_000] }));
    let hanging: Vec<_> =
        (0..6).map(|_| send(&door, "greedy", "hang", many("hang"), false)).collect();
    settle().await;
    let reached = echo.seen.lock().unwrap().len();
    assert_eq!(reached, 2, "a client has room for two of the most values");
    assert_eq!(now(send(&door, "other", "echo", many("echo"), false)).await, Some(200));
    let few = call("echo", &json!({ "n": 1 }));
    assert_eq!(now(send(&door, "greedy", "echo", few, false)).await, Some(200));
    // Nor is the small room of one that of another.
    let little = || call("hang", &json!({ "n": vec![1; 8_000] }));
    let full: Vec<_> = (0..9).map(|_| send(&door, "greedy", "hang", little(), false)).collect();
    settle().await;
    let few = call("echo", &json!({ "n": vec![1; 8_000] }));
    assert_eq!(now(send(&door, "other", "echo", few, false)).await, Some(200));
    // It waits for itself, and not for ever.
    tokio::time::sleep(Duration::from_secs(31)).await;
    let refused = hanging.iter().chain(&full).filter(|call| call.is_finished()).count();
    assert_eq!(refused, 4 + 1);
    hanging.iter().chain(&full).for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_told_apart_from_others_has_all_of_it() {
    let echo = Arc::new(Echo::default());
    let backend = Arc::clone(&echo) as Arc<dyn crate::Backend>;
    let door = Arc::new(HttpDoor::with(backend, DoorOptions::loopback(1)));
    let many = call("hang", &json!({ "n": vec![1; 99_000] }));
    let hanging: Vec<_> = (0..6).map(|_| send(&door, "x", "hang", many.clone(), false)).collect();
    settle().await;
    assert_eq!(echo.seen.lock().unwrap().len(), 5);
    hanging.iter().for_each(JoinHandle::abort);
}
