mod ends;
mod heavy;
mod rounds;
mod shares;
mod streams;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Uri};
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::route;
use crate::HttpClient;
use crate::testing::{Echo, serve_door};

async fn door() -> (Arc<Echo>, SocketAddr) {
    let echo = Arc::new(Echo::default());
    let address = serve_door(Arc::clone(&echo) as Arc<dyn crate::Backend>).await;
    (echo, address)
}

#[test]
fn routes_one_spelling_alone() {
    let status = |path: &str| match path.parse::<Uri>() {
        Ok(uri) => route(&uri).map(str::to_owned).map_err(|refusal| refusal.status.as_u16()),
        Err(_) => Err(400),
    };
    assert_eq!(status("/search/mcp"), Ok("search".into()));
    for path in [
        "/search/mcp?x",
        "/search/mcp?",
        "/search//mcp",
        "//search/mcp",
        "/search/mcp/",
        "/./search/mcp",
        "/x/../search/mcp",
        "/search%2fmcp",
        "/se%61rch/mcp",
        "/search\\mcp",
        "/search/mcp;x",
        "http://127.0.0.1/search/mcp",
        "/search/..",
        "*",
        "/séarch/mcp",
    ] {
        assert_eq!(status(path), Err(400), "{path}");
    }
    for path in ["/", "/mcp", "/search", "/search/MCP", "/search/mcp2", "/a/b/mcp"] {
        assert_eq!(status(path), Err(404), "{path}");
    }
}

/// One raw exchange: status and body.
async fn raw(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let text = format!(
        "{}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        head.trim(),
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    (head[9..12].parse().unwrap(), format!("{head}\r\n\r\n{body}"))
}

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

fn head(port: u16) -> Vec<String> {
    vec![
        "POST /echo/mcp HTTP/1.1".to_owned(),
        format!("Host: 127.0.0.1:{port}"),
        "Content-Type: application/json".to_owned(),
        "Accept: application/json, text/event-stream".to_owned(),
        "MCP-Protocol-Version: 2026-07-28".to_owned(),
        "Mcp-Method: tools/list".to_owned(),
    ]
}

#[tokio::test]
async fn headers_that_do_not_belong_are_refused() {
    let (echo, address) = door().await;
    let port = address.port();
    let good = head(port);
    assert_eq!(raw(address, &good.join("\r\n"), PING).await.0, 200);
    let replaced = |name: &str, line: &str| -> String {
        let lines =
            good.iter().map(|l| if l.starts_with(name) { line.to_owned() } else { l.clone() });
        lines.collect::<Vec<_>>().join("\r\n")
    };
    let added = |line: &str| format!("{}\r\n{line}", good.join("\r\n"));
    // Positive controls.
    for head in [
        replaced("Host", &format!("Host: localhost:{port}")),
        replaced("Host", &format!("Host: [::1]:{port}")),
        added(&format!("Origin: http://127.0.0.1:{port}")),
        replaced("Content-Type", "Content-Type: Application/JSON; charset=UTF-8"),
        replaced("Accept", "Accept: */*"),
    ] {
        assert_eq!(raw(address, &head, PING).await.0, 200, "{head}");
    }
    for (head, status) in [
        (replaced("Host", "Host: evil.example"), 403),
        (replaced("Host", &format!("Host: evil.example:{port}")), 403),
        (replaced("Host", "Host: 127.0.0.1"), 403),
        (replaced("Host", &format!("Host: 127.0.0.1.:{port}")), 403),
        (replaced("Host", &format!("Host: 127.1:{port}")), 403),
        (replaced("Host", "X-None: 1"), 400),
        (added(&format!("Host: 127.0.0.1:{port}")), 400),
        (added("Origin: null"), 403),
        (added("Origin: http://evil.example"), 403),
        (added(&format!("Origin: https://127.0.0.1:{port}")), 403),
        (added("Origin: http://127.0.0.1"), 403),
        (
            added(&format!("Origin: http://127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}")),
            400,
        ),
        (added("Content-Encoding: gzip"), 415),
        (added("Content-Encoding: identity"), 415),
        (added("Upgrade: websocket"), 400),
        (replaced("Content-Type", "Content-Type: text/plain"), 415),
        (replaced("Content-Type", "X-None: 1"), 415),
        (replaced("Content-Type", "Content-Type: application/json; charset=utf-16"), 415),
        (added("Content-Type: application/json"), 400),
        (added("Mcp-Method: tools/list"), 400),
        (added("Mcp_Method: tools/call"), 400),
        (replaced("Accept", "Accept: text/html"), 406),
        (replaced("POST", "PUT /echo/mcp HTTP/1.1"), 405),
        (replaced("POST", "PATCH /echo/mcp HTTP/1.1"), 405),
        (replaced("POST", "HEAD /echo/mcp HTTP/1.1"), 405),
        (replaced("POST", "OPTIONS /echo/mcp HTTP/1.1"), 405),
        (replaced("POST", &format!("POST http://127.0.0.1:{port}/echo/mcp HTTP/1.1")), 400),
        (replaced("POST", "POST /echo/mcp?x=1 HTTP/1.1"), 400),
        (replaced("POST", "POST /echo//mcp HTTP/1.1"), 400),
        (replaced("POST", "POST /other HTTP/1.1"), 404),
        (replaced("Mcp-Method", "Mcp-Method: tools/call"), 400),
        (replaced("Mcp-Method", "X-None: 1"), 400),
        (replaced("MCP-Protocol", "MCP-Protocol-Version: 2025-11-25"), 400),
        (replaced("MCP-Protocol", "X-None: 1"), 400),
        (added("Mcp-Name: echo"), 400),
    ] {
        let (found, body) = raw(address, &head, PING).await;
        assert_eq!(found, status, "{head}\n{body}");
    }
    assert_eq!(echo.seen.lock().unwrap().len(), 6);
}

#[tokio::test]
async fn bodies_that_two_readers_could_read_differently_are_refused() {
    let (echo, address) = door().await;
    let head = head(address.port()).join("\r\n");
    for body in [
        format!("[{PING}]"),
        format!("{PING}{PING}"),
        PING.replace(r#""id":1"#, r#""id":1,"id":2"#),
        PING.replace(r#""id":1"#, r#""id":1,"Method":"tools/call""#),
        PING.replace(r#""id":1"#, r#""id":1.5"#),
        PING.replace(r#""id":1"#, r#""id":1,"extra":1"#),
        PING.replace("{}", &format!("{}{}", "[".repeat(80), "]".repeat(80))),
        PING.replace("{}", r#"{"n":12345678901234567890123}"#),
        "x".to_owned(),
        String::new(),
    ] {
        assert_eq!(raw(address, &head, &body).await.0, 400, "{body}");
    }
    assert_eq!(raw(address, &head, &" ".repeat(64 * 1024 + 1)).await.0, 413);
    assert!(echo.seen.lock().unwrap().is_empty());
    assert_eq!(raw(address, &head, PING).await.0, 200);
}

#[tokio::test]
async fn a_stateless_name_must_be_the_bodys() {
    let (_, address) = door().await;
    let call = |name: &str| {
        PING.replace("tools/list", "tools/call")
            .replace(r#""params":{"#, &format!(r#""params":{{"name":"{name}","arguments":{{}},"#))
    };
    let head = head(address.port()).join("\r\n").replace("tools/list", "tools/call");
    for (line, status) in [
        ("Mcp-Name: écho", 400),
        ("Mcp-Name: =?base64?w6ljaG8=?=", 200),
        ("Mcp-Name: echo", 400),
        ("X-None: 1", 400),
        ("Mcp-Name: =?base64?!?=", 400),
    ] {
        assert_eq!(
            raw(address, &format!("{head}\r\n{line}"), &call("écho")).await.0,
            status,
            "{line}"
        );
    }
    assert_eq!(raw(address, &format!("{head}\r\nMcp-Name: echo"), &call("echo")).await.0, 200);
}

async fn rmcp_client(
    address: SocketAddr,
    lifecycle: ClientLifecycleMode,
    version: ProtocolVersion,
) -> rmcp::service::RunningService<rmcp::RoleClient, ClientConfig> {
    let uri = format!("http://{address}/echo/mcp");
    let config = StreamableHttpClientTransportConfig::with_uri(uri);
    let provider = rustls::crypto::ring::default_provider();
    let _ = provider.install_default();
    let transport = StreamableHttpClientTransport::from_config(config);
    let mut client = ClientConfig::default();
    client.protocol_version = version;
    serve_client_with_lifecycle(client, transport, lifecycle).await.unwrap()
}

#[tokio::test]
async fn rmcp_clients_of_every_revision_are_served() {
    let stateless = ProtocolVersion::V_2026_07_28;
    for version in [
        ProtocolVersion::V_2024_11_05,
        ProtocolVersion::V_2025_03_26,
        ProtocolVersion::V_2025_06_18,
        ProtocolVersion::V_2025_11_25,
        stateless.clone(),
    ] {
        let (echo, address) = door().await;
        let lifecycle = if version == stateless {
            ClientLifecycleMode::Discover { preferred_versions: vec![stateless.clone()] }
        } else {
            ClientLifecycleMode::Initialize
        };
        let client = rmcp_client(address, lifecycle, version.clone()).await;
        let info = client.peer_info().unwrap();
        assert_eq!(info.protocol_version, version);
        assert_eq!(info.instructions.as_deref(), Some("say something"));
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools[0].name, "echo");
        let arguments = json!({"a": 1}).as_object().cloned().unwrap();
        let call = CallToolRequestParams::new("echo").with_arguments(arguments);
        let result = client.call_tool(call).await.unwrap();
        assert_eq!(serde_json::to_value(&result).unwrap()["content"][0]["text"], r#"{"a":1}"#);
        assert!(client.cancel().await.is_ok());
        let seen = echo.seen.lock().unwrap();
        assert!(seen.iter().all(|(asker, ..)| asker.revision.as_str() == version.as_str()));
    }
}

#[tokio::test]
async fn our_client_keeps_unknown_members() {
    let (_, address) = door().await;
    let client = HttpClient::connect(&format!("http://{address}/echo/mcp")).await.unwrap();
    assert_eq!(client.tools().await.unwrap()[0]["x-unknown"], 1);
    let result = client.call_tool("echo", json!({"é": [1]})).await.unwrap();
    assert_eq!(result["unknown"], json!({"kept": [1, 2]}));
    assert_eq!(result["_meta"], json!({"a": 1}));
    let error = client.request("no/such", None).await.unwrap_err();
    let crate::UpstreamError::Rpc(error) = error else { panic!("{error:?}") };
    assert_eq!(error.data, Some(json!({"k": "v"})));
    let error = client.request("example/list", None).await.unwrap_err();
    assert!(error.to_string().contains("not an object"), "{error}");
}

/// A session by hand.
async fn open(address: SocketAddr) -> String {
    let port = address.port();
    let head = format!(
        "POST /echo/mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json"
    );
    let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let (status, reply) = raw(address, &head, body).await;
    assert_eq!(status, 200, "{reply}");
    let line = reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    format!("{head}\r\nMcp-Session-Id: {}", line.unwrap())
}

#[tokio::test]
async fn a_session_is_long_random_and_of_one_server() {
    let (_, address) = door().await;
    let (_, other) = door().await;
    let (first, second) = (open(address).await, open(address).await);
    assert_ne!(first, second);
    let id = first.rsplit(' ').next().unwrap().to_owned();
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(raw(address, &first, list).await.0, 200);
    let elsewhere = first.replace(&address.port().to_string(), &other.port().to_string());
    assert_eq!(raw(other, &elsewhere, list).await.0, 404);
    let last = if id.ends_with('0') { "1" } else { "0" };
    let guess = first.replace(&id, &format!("{}{last}", &id[..31]));
    assert_eq!(raw(address, &guess, list).await.0, 404);
    assert_eq!(
        raw(address, &first.replace(&format!("\r\nMcp-Session-Id: {id}"), ""), list).await.0,
        400
    );
    for (version, status) in [("2025-03-26", 200), ("2025-03-27", 400), ("x", 400)] {
        let head = format!("{first}\r\nMCP-Protocol-Version: {version}");
        assert_eq!(raw(address, &head, list).await.0, status, "{version}");
    }
    assert_eq!(
        raw(address, &format!("{first}\r\nMCP-Protocol-Version: 2025-06-18"), list).await.0,
        200
    );
    // Another client's stream, and the end of a session.
    assert_eq!(raw(address, &guess.replace("POST", "GET"), "").await.0, 404);
    assert_eq!(raw(address, &first.replace("POST", "GET"), "").await.0, 406);
    assert_eq!(raw(address, &guess.replace("POST", "DELETE"), "").await.0, 404);
    assert_eq!(raw(address, &first.replace("POST", "DELETE"), "").await.0, 204);
    assert_eq!(raw(address, &first, list).await.0, 404);
    assert_eq!(raw(address, &second, list).await.0, 200);
}

#[tokio::test]
async fn cancelling_and_leaving_drop_the_backends_work() {
    let (echo, address) = door().await;
    let session = open(address).await;
    let other = open(address).await;
    let hang = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"hang"}}"#;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let waiting = tokio::spawn({
        let session = session.clone();
        async move { raw(address, &session, hang).await }
    });
    echo.hanging.notified().await;
    // The same id again, and a cancellation from another session, change nothing.
    assert_eq!(raw(address, &session, hang).await.0, 400);
    assert_eq!(raw(address, &other, cancel).await.0, 202);
    assert!(!waiting.is_finished());
    assert_eq!(raw(address, &session, cancel).await.0, 202);
    echo.dropped.notified().await;
    let (status, body) = waiting.await.unwrap();
    let body: Value = serde_json::from_str(body.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((status, &body["error"]["code"]), (StatusCode::OK.as_u16(), &json!(-32800)));
    // A client that goes away.
    let leaving = tokio::spawn(async move { raw(address, &session, hang).await });
    echo.hanging.notified().await;
    leaving.abort();
    tokio::time::timeout(Duration::from_secs(5), echo.dropped.notified()).await.unwrap();
}
