mod clients;
mod crowd;
mod hostile;
mod listening;
mod pipes;
mod resume;
mod stage;
mod streams;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::ServiceExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::{HttpOptions, Opening, Reply, Upstream, UpstreamError, UpstreamLimits};
use crate::testing::{Adder, Echo, Limited, Versions, serve_rmcp};
use crate::{Client, Nobody, Revision, Share, serve_stdio};

const WAIT: Duration = Duration::from_secs(10);

async fn http(url: &str) -> Result<Upstream, UpstreamError> {
    Upstream::http(url, &HttpOptions::default(), UpstreamLimits::default(), WAIT).await
}

async fn stdio(io: DuplexStream, opening: Opening) -> Result<Upstream, UpstreamError> {
    let (read, write) = tokio::io::split(io);
    let limits = UpstreamLimits { message: 4096, junk: 10, values: 1000 };
    Upstream::stdio(read, write, limits, Share::default(), opening, WAIT).await
}

fn add() -> Option<Value> {
    Some(json!({"name": "add", "arguments": {"a": 1, "b": 2}}))
}

async fn check(upstream: &Upstream) {
    assert_eq!(upstream.hello()["instructions"], "adds");
    assert!(upstream.hello()["capabilities"]["tools"].is_object());
    assert!(upstream.hello()["serverInfo"]["name"].is_string());
    let tools = plain(upstream, "tools/list", None, WAIT).await.unwrap();
    assert_eq!(tools["tools"][0]["name"], "add");
    let calls = (0..20).map(|_| plain(upstream, "tools/call", add(), WAIT));
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap()["content"][0]["text"], "3");
    }
    let error = plain(upstream, "no/such", None, WAIT).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Rpc(ref e) if e.code == -32601), "{error:?}");
}

#[tokio::test]
async fn speaks_with_rmcp_over_http_in_every_revision() {
    for (versions, expected) in [
        (Versions::All, Revision::STATELESS),
        (Versions::Stateless, Revision::STATELESS),
        (Versions::Handshake, Revision::HANDSHAKE),
    ] {
        let address = serve_rmcp(Adder::default(), versions).await;
        let upstream = http(&format!("http://{address}/mcp")).await.unwrap();
        assert_eq!(*upstream.revision(), expected);
        check(&upstream).await;
    }
}

#[tokio::test]
async fn speaks_with_rmcp_over_stdio_in_every_revision() {
    for (versions, expected) in [
        (Versions::All, Revision::HANDSHAKE),
        (Versions::Handshake, Revision::HANDSHAKE),
        (Versions::Stateless, Revision::STATELESS),
    ] {
        let (ours, theirs) = tokio::io::duplex(4096);
        let server = Limited { adder: Adder::default(), versions };
        let serving = tokio::spawn(async move {
            let running = server.serve(tokio::io::split(theirs)).await.unwrap();
            drop(running.waiting().await);
        });
        let stateless = versions == Versions::Stateless;
        let opening = if stateless { Opening::Stateless } else { Opening::Handshake };
        let upstream = stdio(ours, opening).await.unwrap();
        assert_eq!(*upstream.revision(), expected);
        check(&upstream).await;
        drop(upstream);
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn tells_the_server_when_nobody_waits() {
    for versions in [Versions::Stateless, Versions::Handshake] {
        let adder = Adder::default();
        let address = serve_rmcp(adder.clone(), versions).await;
        let upstream = http(&format!("http://{address}/mcp")).await.unwrap();
        let hang = || Some(json!({"name": "hang", "arguments": {}}));
        {
            let call = plain(&upstream, "tools/call", hang(), WAIT);
            tokio::pin!(call);
            tokio::select! {
                answer = &mut call => panic!("{answer:?}"),
                () = adder.hanging.notified() => {}
            }
        }
        adder.cancelled.notified().await;
        let short = Duration::from_millis(50);
        let error = plain(&upstream, "tools/call", hang(), short).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Timeout { .. }), "{error:?}");
        adder.cancelled.notified().await;
        assert_eq!(adder.calls.load(Ordering::SeqCst), 2);
        assert!(plain(&upstream, "tools/call", add(), WAIT).await.is_ok());
    }
}

/// A server that answers the handshake and then does as it is told, with each line it reads.
async fn scripted(io: DuplexStream, mut act: impl FnMut(&Value) -> Vec<u8>) {
    let (read, mut write) = tokio::io::split(io);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let reply = match message["method"].as_str() {
            Some("initialize") => answer(
                &message,
                json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}),
            ),
            Some("notifications/initialized") => Vec::new(),
            _ => act(&message),
        };
        if reply == b"end" || write.write_all(&reply).await.is_err() {
            break;
        }
    }
}

fn answer(to: &Value, result: Value) -> Vec<u8> {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": to["id"], "result": result})).into_bytes()
}

async fn one_call(
    act: impl FnMut(&Value) -> Vec<u8> + Send + 'static,
) -> Result<Value, UpstreamError> {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(scripted(theirs, act));
    let upstream = stdio(ours, Opening::Handshake).await.unwrap();
    plain(&upstream, "tools/call", add(), Duration::from_millis(300)).await
}

#[tokio::test]
async fn bad_servers_fail_the_call_and_nothing_else() {
    let good = json!({"content": [], "unknown": 1.5});
    let copy = good.clone();
    assert_eq!(one_call(move |m| answer(m, copy.clone())).await.unwrap(), good);
    // Chatter on stdout is borne, within a bound.
    let copy = good.clone();
    let chatty =
        one_call(move |m| [b"starting\n\n{}\n".to_vec(), answer(m, copy.clone())].concat());
    assert_eq!(chatty.await.unwrap(), good);
    let error = one_call(|_| b"noise\n".repeat(11)).await.unwrap_err();
    assert!(
        matches!(&error, UpstreamError::Closed { reason } if reason.contains("not MCP")),
        "{error}"
    );
    let error = one_call(|_| vec![b'x'; 5000]).await.unwrap_err();
    assert!(
        matches!(&error, UpstreamError::Closed { reason } if reason.contains("larger")),
        "{error}"
    );
    let error = one_call(|_| b"end".to_vec()).await.unwrap_err();
    assert!(
        matches!(&error, UpstreamError::Closed { reason } if reason.contains("closed")),
        "{error}"
    );
    let error =
        one_call(|m| answer(&json!({"id": m["id"].as_i64().unwrap() + 1}), json!({}))).await;
    assert!(matches!(error, Err(UpstreamError::Timeout { .. })), "{error:?}");
    let error = one_call(|_| Vec::new()).await;
    assert!(matches!(error, Err(UpstreamError::Timeout { .. })), "{error:?}");
    // Two answers: the first counts.
    let twice = one_call(|m| [answer(m, json!({"n": 1})), answer(m, json!({"n": 2}))].concat());
    assert_eq!(twice.await.unwrap(), json!({"n": 1}));
}

#[tokio::test]
async fn a_server_may_say_that_its_tools_changed_and_ask_for_nothing() {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(scripted(theirs, move |m| {
        if m.get("method").is_none() {
            said.send(m.clone()).unwrap();
            return Vec::new();
        }
        let changed = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n";
        let ask =
            b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"sampling/createMessage\",\"params\":{}}\n";
        [&changed[..], &ask[..], &answer(m, json!({}))].concat()
    }));
    let upstream = stdio(ours, Opening::Handshake).await.unwrap();
    assert!(!upstream.take_tools_changed());
    plain(&upstream, "tools/call", add(), WAIT).await.unwrap();
    let refused = heard.recv().await.unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(5), &json!(-32601)));
    assert!(upstream.take_tools_changed());
    assert!(!upstream.take_tools_changed());
}

#[tokio::test]
async fn what_goes_on_is_what_was_given() {
    let given = json!({"name": "x", "arguments": {"n": 1, "deep": {"unknown": [null, "é"]}}, "surprise": true, "_meta": {"progressToken": "t", "io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(scripted(theirs, |m| answer(m, m["params"].clone())));
    let upstream = stdio(ours, Opening::Handshake).await.unwrap();
    let echoed = plain(&upstream, "tools/call", Some(given.clone()), WAIT).await.unwrap();
    let mut expected = given;
    expected["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/protocolVersion");
    // The progress token is ours on the way there.
    assert!(echoed["_meta"]["progressToken"].is_u64());
    expected["_meta"]["progressToken"] = echoed["_meta"]["progressToken"].clone();
    assert_eq!(echoed, expected);
}

#[tokio::test]
async fn serves_a_backend_over_stdio() {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(theirs);
    let serving = tokio::spawn(serve_stdio(Arc::new(Echo::default()), read, write));
    let upstream = stdio(ours, Opening::Handshake).await.unwrap();
    let call = plain(&upstream, "tools/call", add(), WAIT).await.unwrap();
    assert_eq!(call["unknown"], json!({"kept": [1, 2]}));
    assert_eq!(call["_meta"], json!({"a": 1}));
    assert!(call.get("resultType").is_none());
    drop(upstream);
    serving.await.unwrap().unwrap();
}

/// One reply, whatever is asked.
async fn canned(reply: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 65536];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    });
    format!("http://{address}/secret-path")
}

#[tokio::test]
async fn http_nonsense_is_named_and_names_no_address() {
    for (reply, words) in [
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/x\r\ncontent-length: 0\r\n\r\n",
            "redirect",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi", "neither"),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\nhi",
            "not JSON",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi",
            "compressed",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 39\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}  ",
            "another request",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\ndata: 1\r\n",
            "event stream",
        ),
        ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "HTTP 500"),
        ("HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n", "credentials"),
        ("nonsense\r\n\r\n", "broke"),
    ] {
        let url = canned(reply).await;
        let error = http(&url).await.unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert!(!error.contains("127.0.0.1") && !error.contains("secret-path"), "{error}");
    }
    let error = http("http://127.0.0.1:1/x").await.unwrap_err();
    assert!(error.to_string().contains("no connection"), "{error}");
    assert!(!error.to_string().contains("127.0.0.1"), "{error}");
    assert!(error.detail().len() > error.to_string().len());
}

#[tokio::test]
async fn reserved_headers_are_refused() {
    for (name, ok) in [
        ("Authorization", true),
        ("X-Key", true),
        ("Host", false),
        ("mcp-session-id", false),
        ("Content-Length", false),
        ("a b", false),
    ] {
        let address = serve_rmcp(Adder::default(), Versions::All).await;
        let headers = vec![(name.to_owned(), "v".to_owned())];
        let options = HttpOptions { headers, ..HttpOptions::default() };
        let url = format!("http://{address}/mcp");
        let made = Upstream::http(&url, &options, UpstreamLimits::default(), WAIT).await;
        assert_eq!(made.is_ok(), ok, "{name}: {made:?}");
    }
}

/// A request of nobody's.
async fn plain(
    upstream: &Upstream,
    method: &str,
    params: Option<Value>,
    timeout: Duration,
) -> Result<Value, UpstreamError> {
    let nobody: Arc<dyn Client> = Arc::new(Nobody);
    match upstream.request(&nobody, method, params, timeout).await? {
        Reply::Done(result) => Ok(result),
        Reply::Wants(wants) => panic!("{wants:?}"),
    }
}
