use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::task::JoinHandle;

use super::serve_stdio;
use crate::Backend;
use crate::testing::{Echo, Talker};

const SOON: Duration = Duration::from_secs(20);

struct Peer {
    input: DuplexStream,
    lines: Lines<BufReader<DuplexStream>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Peer {
    fn new(backend: Arc<dyn Backend>) -> Self {
        let (input, read) = tokio::io::duplex(64 * 1024);
        let (write, output) = tokio::io::duplex(64 * 1024);
        let serving = tokio::spawn(serve_stdio(backend, read, write));
        Self { input, lines: BufReader::new(output).lines(), serving }
    }

    async fn begun(backend: Arc<dyn Backend>) -> Self {
        let mut peer = Self::new(backend);
        peer.say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} },
        } }))
        .await;
        assert_eq!(peer.hear().await["result"]["protocolVersion"], "2025-06-18");
        peer
    }

    async fn line(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn say(&mut self, message: &Value) {
        self.line(&message.to_string()).await;
    }

    async fn hear(&mut self) -> Value {
        let line = tokio::time::timeout(SOON, self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    async fn call(&mut self, id: i64, tool: &str) {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": tool, "arguments": {} } }))
            .await;
    }

    async fn end(self) {
        drop(self.input);
        tokio::time::timeout(SOON, self.serving).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn lines_that_two_readers_could_read_differently_are_refused() {
    let echo = Arc::new(Echo::default());
    let mut peer = Peer::begun(Arc::clone(&echo) as _).await;
    let good = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (line, code) in [
        (format!("[{good}]"), -32600),
        (format!("{good}{good}"), -32700),
        (good.replace(r#""id":1"#, r#""id":1,"id":2"#), -32700),
        (good.replace(r#""id":1"#, r#""id":1,"METHOD":"tools/call""#), -32700),
        (
            good.replace("}", &format!(r#","params":{}{}}}"#, "[".repeat(80), "]".repeat(80))),
            -32700,
        ),
        (format!("{}{good}", " ".repeat(5 * 1024 * 1024)), -32700),
        ("x".into(), -32700),
    ] {
        peer.line(&line).await;
        assert_eq!(peer.hear().await["error"]["code"], code, "{:.100}", line);
    }
    assert_eq!(echo.seen.lock().unwrap().len(), 1);
    peer.line("").await;
    peer.line(good).await;
    assert_eq!(peer.hear().await["id"], 1);
    peer.end().await;
}

#[tokio::test]
async fn a_connection_begins_once_and_first() {
    let mut peer = Peer::new(Arc::new(Echo::default()));
    peer.say(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await;
    assert_eq!(peer.hear().await["error"]["code"], -32600);
    peer.say(&json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" })).await;
    assert_eq!(peer.hear().await["result"], json!({}));
    peer.end().await;
    let mut peer = Peer::begun(Arc::new(Echo::default())).await;
    let again = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25" } });
    peer.say(&again).await;
    assert_eq!(peer.hear().await["error"]["code"], -32600);
    peer.end().await;
}

#[tokio::test]
async fn a_client_is_told_and_asked() {
    let talker = Arc::new(Talker::default());
    let mut peer = Peer::begun(Arc::clone(&talker) as _).await;
    peer.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    talker.listened.notified().await;
    let client = talker.listening.lock().unwrap().clone().unwrap();
    client.notify("notifications/tools/list_changed", None).await;
    assert_eq!(peer.hear().await["method"], "notifications/tools/list_changed");
    peer.call(1, "talk").await;
    assert_eq!(peer.hear().await["params"]["progress"], 1);
    assert_eq!(peer.hear().await["result"]["said"], "told");
    peer.call(2, "ask").await;
    for key in ["one", "two"] {
        let question = peer.hear().await;
        assert_eq!(question["params"]["message"], key);
        let answer = json!({ "action": "decline" });
        peer.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer })).await;
    }
    assert_eq!(peer.hear().await["result"]["said"][1]["action"], "decline");
    peer.end().await;
    assert_eq!(talker.ended.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn stateless_calls_go_on_where_they_asked() {
    let talker = Arc::new(Talker::default());
    let mut peer = Peer::new(Arc::clone(&talker) as _);
    let call = |id: i64, more: Value| {
        let mut params = json!({ "name": "both", "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        } });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let decline = json!({ "action": "decline" });
    peer.say(&call(1, json!({}))).await;
    let first = peer.hear().await;
    let retry = |asked: &Value, answers: Value| json!({ "requestState": asked["result"]["requestState"], "inputResponses": answers });
    // The same id again is another request.
    peer.say(&call(1, retry(&first, json!({ "one": decline })))).await;
    let second = peer.hear().await;
    assert_eq!(second["result"]["inputRequests"].as_object().unwrap().len(), 1);
    peer.say(&call(2, retry(&first, json!({ "two": decline })))).await;
    assert_eq!(peer.hear().await["error"]["code"], -32602);
    peer.say(&call(3, retry(&second, json!({ "two": decline })))).await;
    assert_eq!(peer.hear().await["result"]["said"], json!([decline, decline]));
    assert_eq!(talker.seen.lock().unwrap().len(), 1);
    // One that waits is given up with the connection.
    talker.dropped.notified().await;
    peer.say(&call(4, json!({}))).await;
    peer.hear().await;
    peer.end().await;
    tokio::time::timeout(SOON, talker.dropped.notified()).await.unwrap();
}

#[tokio::test]
async fn a_subscription_lasts_until_it_is_cancelled() {
    let talker = Arc::new(Talker::default());
    let mut peer = Peer::new(Arc::clone(&talker) as _);
    peer.say(&json!({ "jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": {
        "notifications": { "toolsListChanged": true },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    } }))
    .await;
    let first = peer.hear().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    let client = talker.listening.lock().unwrap().clone().unwrap();
    client.notify("notifications/prompts/list_changed", None).await;
    client.notify("notifications/tools/list_changed", None).await;
    let heard = peer.hear().await;
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert_eq!(heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
    let cancel = json!({ "requestId": 7 });
    peer.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }))
        .await;
    tokio::time::timeout(SOON, talker.unheard.notified()).await.unwrap();
    peer.end().await;
}

#[tokio::test]
async fn cancelling_and_ending_drop_the_backends_work() {
    let echo = Arc::new(Echo::default());
    let mut peer = Peer::begun(Arc::clone(&echo) as _).await;
    peer.call(1, "hang").await;
    echo.hanging.notified().await;
    peer.call(1, "echo").await;
    assert_eq!(peer.hear().await["error"]["code"], -32600);
    let cancel = json!({ "requestId": 1 });
    peer.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }))
        .await;
    echo.dropped.notified().await;
    // Nobody is told of what was cancelled: the next line is the next answer.
    peer.call(2, "echo").await;
    assert_eq!(peer.hear().await["id"], 2);
    for id in 3..3 + 256 {
        peer.call(id, "hang").await;
    }
    peer.call(1000, "echo").await;
    let refused = peer.hear().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1000), &json!(-32603)));
    peer.end().await;
    tokio::time::timeout(SOON, echo.dropped.notified()).await.unwrap();
}
