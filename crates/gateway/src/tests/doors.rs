//! The agent's side: over HTTP, in both ways of MCP.

use std::net::SocketAddr;
use std::time::Duration;

use ringfence_mcp::{HttpClient, UpstreamError};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::world::World;

fn url(address: SocketAddr) -> String {
    format!("http://{address}/s/mcp")
}

#[tokio::test]
async fn an_agent_lists_calls_and_is_refused() {
    let world = World::new();
    let (address, stop, serving) = world.serve();
    let client = HttpClient::connect(&url(address)).await.unwrap();
    let tools = client.tools().await.unwrap();
    assert_eq!(tools.len(), 5);
    assert_eq!(tools[0]["x-own"], 1);
    let result = client.call_tool("echo", json!({"a": 1})).await.unwrap();
    assert_eq!(result["echo"]["arguments"], json!({"a": 1}));
    let refused = client.call_tool("forbidden", json!({})).await.unwrap_err();
    let UpstreamError::Rpc(error) = refused else { panic!("{refused:?}") };
    assert!(
        error.message.contains("machine.toml:3") && error.message.contains("machine"),
        "{error}"
    );
    assert_eq!(error.data.unwrap()["ringfence"]["layer"], "machine");
    assert!(client.request("ping", None).await.is_err());
    assert_eq!(world.reached(), ["echo"]);
    let elsewhere = HttpClient::connect(&format!("http://{address}/other/mcp")).await;
    assert!(matches!(elsewhere, Err(UpstreamError::Status { status: 404 })), "{elsewhere:?}");
    stop.send(true).unwrap();
    serving.await.unwrap().unwrap();
}

/// One POST in the older way.
async fn post(address: SocketAddr, session: Option<&str>, body: Value) -> (String, Value) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = body.to_string();
    let session = session.map(|id| format!("mcp-session-id: {id}\r\n")).unwrap_or_default();
    let text = format!(
        "POST /s/mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{session}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), serde_json::from_str(body).unwrap_or_default())
}

#[tokio::test]
async fn the_older_way_has_a_session_and_says_only_what_is_offered() {
    let world = World::new();
    let (address, _stop, _serving) = world.serve();
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let (head, hello) = post(address, None, hello).await;
    let hello = &hello["result"];
    assert_eq!(hello["protocolVersion"], "2025-06-18");
    assert_eq!(hello["instructions"], "be kind");
    // What a server tells of by itself is passed on; resources/list is not listed.
    assert_eq!(hello["capabilities"], json!({"tools": {"listChanged": true}, "resources": {}}));
    let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {}}});
    let (_, result) = post(address, Some(session), call.clone()).await;
    assert_eq!(result["result"]["echo"]["name"], "echo");
    assert!(result["result"].get("resultType").is_none());
    let (head, _) = post(address, Some("00000000000000000000000000000000"), call).await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let (_, pong) =
        post(address, Some(session), json!({"jsonrpc": "2.0", "id": 3, "method": "ping"})).await;
    assert_eq!(pong["result"], json!({}));
}

#[tokio::test]
async fn an_agent_that_goes_away_cancels_its_call() {
    let world = World::new();
    let (address, _stop, _serving) = world.serve();
    let client = HttpClient::connect(&url(address)).await.unwrap();
    let call = tokio::spawn(async move { client.call_tool("hang", json!({})).await });
    world.tools.hanging.notified().await;
    call.abort();
    tokio::time::timeout(Duration::from_secs(5), world.tools.dropped.notified()).await.unwrap();
    world.journal.until(|journal| journal.settled().iter().any(|s| s.1 == "cancelled")).await;
}

#[tokio::test]
async fn stopping_settles_what_is_in_flight_before_it_returns() {
    let world = World::new();
    let (address, stop, serving) = world.serve();
    let client = HttpClient::connect(&url(address)).await.unwrap();
    let call = tokio::spawn(async move { client.call_tool("hang", json!({})).await });
    world.tools.hanging.notified().await;
    stop.send(true).unwrap();
    serving.await.unwrap().unwrap();
    assert_eq!(world.journal.settled().pop().unwrap().1, "cancelled");
    assert!(call.await.unwrap().is_err());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
