use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::wire::{accept, call, send, session, stateless};
use crate::strict::Limits;
use crate::testing::{Talker, serve_door_with};

async fn door() -> (Arc<Talker>, SocketAddr) {
    let talker = Arc::new(Talker::default());
    let (address, _door) = serve_door_with(Arc::clone(&talker) as _, |options| {
        options.limits = Limits::default();
        options.bearer = Some(Arc::new(|token: &str| match token {
            "anna-token" => Some(Arc::from("anna")),
            "bert-token" => Some(Arc::from("bert")),
            _ => None,
        }));
    })
    .await;
    (talker, address)
}

const ANNA: (&str, &str) = ("authorization", "Bearer anna-token");
const BERT: (&str, &str) = ("authorization", "bearer bert-token");

async fn ask(address: SocketAddr, tool: &str, more: Value) -> Value {
    stateless(address, tool, more, &[ANNA]).await.json().await
}

fn retry(asked: &Value, responses: Value) -> Value {
    json!({ "requestState": asked["result"]["requestState"], "inputResponses": responses })
}

#[tokio::test]
async fn a_call_goes_on_where_it_asked() {
    let (talker, address) = door().await;
    let first = ask(address, "ask", json!({})).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    let state = first["result"]["requestState"].as_str().unwrap();
    assert!(state.len() == 32 && state.bytes().all(|b| b.is_ascii_hexdigit()), "{state}");
    let requests = &first["result"]["inputRequests"];
    assert_eq!(requests["one"]["method"], "elicitation/create");
    assert_eq!(requests.as_object().unwrap().len(), 1);
    // A person takes a moment; the call waits.
    let gone = tokio::time::timeout(Duration::from_millis(200), talker.dropped.notified());
    assert!(gone.await.is_err());
    let extra = json!({ "one": accept("A"), "two": accept("early"), "else": 1 });
    let second = ask(address, "ask", retry(&first, extra)).await;
    assert_eq!(second["result"]["inputRequests"]["two"]["params"]["message"], "two");
    assert_ne!(second["result"]["requestState"], first["result"]["requestState"]);
    let gone = tokio::time::timeout(Duration::from_millis(200), talker.dropped.notified());
    assert!(gone.await.is_err());
    let last = ask(address, "ask", retry(&second, json!({ "two": accept("B") }))).await;
    assert_eq!(last["result"]["said"], json!([accept("A"), accept("B")]));
    // One call, whatever the rounds; and what belongs to the rounds is not the backend's.
    let seen = talker.seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    let params = seen[0].2.as_ref().unwrap().as_object().unwrap();
    assert_eq!(params.keys().collect::<Vec<_>>(), ["name", "arguments", "_meta"]);
    assert_eq!(seen[0].0.principal.as_deref(), Some("anna"));
}

#[tokio::test]
async fn questions_at_once_are_asked_until_all_are_answered() {
    let (talker, address) = door().await;
    let keys = |asked: &Value| -> Vec<String> {
        asked["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect()
    };
    let first = ask(address, "both", json!({})).await;
    assert_eq!(keys(&first), ["one", "two"]);
    let nothing = ask(address, "both", retry(&first, json!({}))).await;
    assert_eq!(keys(&nothing), ["one", "two"]);
    let other = ask(address, "both", retry(&nothing, json!({ "three": accept("C") }))).await;
    assert_eq!(keys(&other), ["one", "two"]);
    let half = ask(address, "both", retry(&other, json!({ "two": accept("B") }))).await;
    assert_eq!(keys(&half), ["one"]);
    let last = ask(address, "both", retry(&half, json!({ "one": accept("A") }))).await;
    assert_eq!(last["result"]["said"], json!([accept("A"), accept("B")]));
    assert_eq!(talker.seen.lock().unwrap().len(), 1);
    // Answers that come before they are asked for.
    let given = json!({ "inputResponses": { "one": accept("A"), "two": accept("B") } });
    let at_once = ask(address, "ask", given).await;
    assert_eq!(at_once["result"]["said"], json!([accept("A"), accept("B")]));
}

#[tokio::test]
async fn a_state_is_good_for_its_own_call_once() {
    let (talker, address) = door().await;
    let first = ask(address, "ask", json!({})).await;
    let answers = json!({ "one": accept("A") });
    let good = retry(&first, answers.clone());
    let with = |key: &str, value: Value| {
        let mut more = good.clone();
        more[key] = value;
        more
    };
    let state = first["result"]["requestState"].as_str().unwrap();
    let last = if state.ends_with('0') { "1" } else { "0" };
    let refused = [
        ("ask", with("requestState", json!(format!("{}{last}", &state[..31]))), ANNA),
        ("ask", with("requestState", json!(format!("{state}0"))), ANNA),
        ("ask", with("requestState", json!("")), ANNA),
        ("ask", with("requestState", json!(1)), ANNA),
        ("ask", with("arguments", json!({ "n": 1 })), ANNA),
        ("ask", with("more", json!(1)), ANNA),
        ("both", good.clone(), ANNA),
        ("ask", good.clone(), BERT),
        ("ask", with("inputResponses", json!(null)), ANNA),
        ("ask", with("inputResponses", json!({ "one": 12345 })), ANNA),
        ("ask", with("inputResponses", json!({ "one": { "action": "yes" } })), ANNA),
    ];
    for (tool, more, who) in refused {
        let mut reply = stateless(address, tool, more.clone(), &[who]).await;
        assert_eq!(reply.status, 400, "{more}");
        assert_eq!(reply.json().await["error"]["code"], -32602, "{more}");
    }
    // None of them reached the backend, and none of them used it up. `_meta` may differ.
    let mut more = good.clone();
    more["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {}, "roots": {} },
        "progressToken": 7,
    });
    let second = ask(address, "ask", more).await;
    assert!(second["result"]["inputRequests"]["two"].is_object(), "{second}");
    assert_eq!(ask(address, "ask", good).await["error"]["code"], -32602);
    assert_eq!(talker.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn what_a_client_has_not_declared_is_not_asked() {
    let (_, address) = door().await;
    let meta = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "sampling": {} },
    } });
    let mut reply = stateless(address, "ask", meta, &[ANNA]).await;
    assert_eq!(reply.status, 400);
    let error = reply.json().await["error"].clone();
    assert_eq!(error["code"], -32021);
    assert_eq!(error["data"], json!({ "requiredCapabilities": { "elicitation": {} } }));
}

#[tokio::test]
async fn a_token_lets_its_owner_in_and_nobody_else() {
    let (talker, address) = door().await;
    for header in [
        None,
        Some("Bearer"),
        Some("Bearer "),
        Some("Bearer wrong"),
        Some("Bearer anna-token extra"),
        Some("Basic anna-token"),
        Some("anna-token"),
    ] {
        let extra: Vec<_> = header.iter().map(|value| ("authorization", *value)).collect();
        let reply = stateless(address, "talk", json!({}), &extra).await;
        assert_eq!(reply.status, 401, "{header:?}");
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
    }
    assert!(talker.seen.lock().unwrap().is_empty());
    let name = session(address, "2025-11-25", &[ANNA]).await;
    let named = ("mcp-session-id", name.as_str());
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_owned();
    for (method, body) in [("GET", String::new()), ("DELETE", String::new()), ("POST", list)] {
        let theirs = send(address, method, &[named, BERT], body.clone()).await;
        assert_eq!(theirs.status, 404, "{method}");
    }
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#.to_owned();
    assert_eq!(send(address, "POST", &[named, ANNA], ping).await.status, 200);
    assert_eq!(call(address, &name, 3, "talk", json!({})).await.status, 401);
    let mut reply = send(address, "GET", &[named, ANNA], String::new()).await;
    assert_eq!(reply.status, 200);
    let event = reply.event().await.unwrap().id.unwrap();
    let again = [named, BERT, ("last-event-id", event.as_str())];
    assert_eq!(send(address, "GET", &again, String::new()).await.status, 404);
}

#[tokio::test]
async fn a_header_must_say_what_its_argument_says() {
    let (talker, address) = door().await;
    let more = || json!({ "arguments": { "place": "eu", "n": 0 } });
    for (header, status) in [("eu", 200), ("us", 400), ("", 400)] {
        let mut extra = vec![ANNA];
        extra.extend((!header.is_empty()).then_some(("mcp-param-place", header)));
        let mut reply = stateless(address, "talk", more(), &extra).await;
        assert_eq!(reply.status, status, "{header}");
        if status == 400 {
            assert_eq!(reply.json().await["error"]["code"], -32020);
        }
    }
    assert_eq!(talker.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_retry_that_holds_little_does_not_make_its_call_smaller() {
    let (talker, address) = door().await;
    let meta = |padding: usize| {
        json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
            "padding": "x".repeat(padding),
        })
    };
    // Five times 4 MiB cannot wait, whatever the retries in between hold.
    for (first, expected) in [(1000, 5), (4_000_000, 4)] {
        let mut states = Vec::new();
        for _ in 0..5 {
            let asked = ask(address, "ask", json!({ "_meta": meta(first) })).await;
            assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
            let mut more = retry(&asked, json!({}));
            more["_meta"] = meta(0);
            let again = ask(address, "ask", more).await;
            assert_eq!(again["result"]["resultType"], "input_required", "{again}");
            states.push(again);
        }
        let mut waiting = 0;
        for state in states {
            let reply = ask(address, "ask", retry(&state, json!({ "one": accept("A") }))).await;
            waiting += usize::from(reply["result"]["inputRequests"]["two"].is_object());
        }
        assert_eq!(waiting, expected, "{first}");
    }
    assert_eq!(talker.seen.lock().unwrap().len(), 10);
}
