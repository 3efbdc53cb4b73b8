use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::wire::{Reply, accept, call, send, session, stateless};
use crate::testing::{Talker, serve_door_with};
use crate::{DoorOptions, HttpDoor};

const SOON: Duration = Duration::from_secs(20);

async fn door(set_up: impl FnOnce(&mut DoorOptions)) -> (Arc<Talker>, SocketAddr, Arc<HttpDoor>) {
    let talker = Arc::new(Talker::default());
    let (address, door) = serve_door_with(Arc::clone(&talker) as _, set_up).await;
    (talker, address, door)
}

async fn post(address: SocketAddr, session: &str, body: Value) -> Reply {
    send(address, "POST", &[("mcp-session-id", session)], body.to_string()).await
}

#[tokio::test]
async fn an_answer_alone_is_one_text_and_anything_before_it_makes_a_stream() {
    let (talker, address, _door) = door(|_| {}).await;
    let name = session(address, "2025-11-25", &[]).await;
    let mut plain = call(address, &name, 1, "talk", json!({ "n": 0 })).await;
    assert!(plain.headers.contains_key("content-length"));
    assert_eq!(plain.json().await["result"]["said"], "told");
    // It comes while the call is still under way.
    let mut reply = call(address, &name, 2, "hang", json!({})).await;
    assert!(reply.is_stream());
    let primed = reply.event().await.unwrap();
    assert_eq!((primed.id.as_deref(), primed.data.as_str()), (Some("1-0"), ""));
    let event = reply.event().await.unwrap();
    assert_eq!(event.id.as_deref(), Some("1-1"));
    assert_eq!(event.json()["params"]["progress"], 1);
    let cancel = json!({ "requestId": 2 });
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    assert_eq!(post(address, &name, note).await.status, 202);
    assert_eq!(reply.event().await.unwrap().json()["error"]["code"], -32800);
    assert_eq!(reply.event().await, None);
    // One who takes no stream gets the answer alone.
    let body = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call",
        "params": { "name": "talk", "arguments": { "n": 100 } } });
    let headers = [("mcp-session-id", name.as_str()), ("accept", "application/json")];
    let mut reply = send(address, "POST", &headers, body.to_string()).await;
    assert_eq!(reply.json().await["result"]["said"], "told");
    assert_eq!(talker.told.load(Ordering::SeqCst), 101);
}

#[tokio::test]
async fn nothing_piles_up_for_one_who_does_not_read() {
    let (talker, address, _door) = door(|_| {}).await;
    let name = session(address, "2025-11-25", &[]).await;
    let (n, bytes) = (2000, 32 * 1024);
    let mut reply = call(address, &name, 1, "talk", json!({ "n": n, "bytes": bytes })).await;
    // The socket and the queue fill up, and then the backend waits: it says nothing more.
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let told = talker.told.load(Ordering::SeqCst);
        if told == before && told > 0 {
            break;
        }
        before = told;
    }
    assert!(before < n, "all {n} were taken in");
    let mut seen = 0;
    while let Some(event) = reply.event().await {
        seen += usize::from(event.data.contains("progress"));
    }
    assert_eq!(seen, n);
}

#[tokio::test]
async fn a_question_is_answered_in_its_own_session_alone() {
    let (_, address, _door) = door(|_| {}).await;
    let name = session(address, "2025-11-25", &[]).await;
    let other = session(address, "2025-11-25", &[]).await;
    let mut reply = call(address, &name, 1, "ask", json!({})).await;
    reply.event().await.unwrap();
    let question = reply.event().await.unwrap().json();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "one");
    let answer =
        |id: &Value, result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let first = answer(&question["id"], accept("A"));
    assert_eq!(post(address, &other, first.clone()).await.status, 400);
    assert_eq!(post(address, &name, answer(&json!(99), accept("A"))).await.status, 400);
    assert_eq!(post(address, &name, answer(&json!("1"), accept("A"))).await.status, 400);
    assert_eq!(post(address, &name, first.clone()).await.status, 202);
    // Late, but once asked.
    assert_eq!(post(address, &name, first).await.status, 202);
    let question = reply.event().await.unwrap().json();
    assert_eq!(question["params"]["message"], "two");
    assert_eq!(post(address, &name, answer(&question["id"], accept("B"))).await.status, 202);
    let done = reply.event().await.unwrap().json();
    assert_eq!(done["result"]["said"], json!([accept("A"), accept("B")]));
    // An answer of another form fails the question, and not the session.
    let mut reply = call(address, &name, 2, "ask", json!({})).await;
    reply.event().await.unwrap();
    let id = reply.event().await.unwrap().json()["id"].clone();
    assert_eq!(post(address, &name, answer(&id, json!({ "action": "maybe" }))).await.status, 202);
    assert_eq!(reply.event().await.unwrap().json()["error"]["code"], -32603);
}

#[tokio::test]
async fn a_broken_stream_can_be_taken_up_again() {
    let (talker, address, _door) = door(|_| {}).await;
    let name = session(address, "2025-11-25", &[]).await;
    let mut reply = call(address, &name, 1, "ask", json!({})).await;
    let primed = reply.event().await.unwrap().id.unwrap();
    let question = reply.event().await.unwrap();
    drop(reply);
    let answer = json!({ "jsonrpc": "2.0", "id": question.json()["id"], "result": accept("A") });
    assert_eq!(post(address, &name, answer).await.status, 202);
    let again = async |event: &str, name: &str| {
        let headers = [("mcp-session-id", name), ("last-event-id", event)];
        send(address, "GET", &headers, String::new()).await
    };
    // From the beginning: what was sent comes again, with the same names.
    let mut reply = again(&primed, &name).await;
    assert_eq!(reply.event().await.unwrap(), question);
    let second = reply.event().await.unwrap();
    let answer = json!({ "jsonrpc": "2.0", "id": second.json()["id"], "result": accept("B") });
    assert_eq!(post(address, &name, answer).await.status, 202);
    let done = reply.event().await.unwrap();
    assert_eq!(done.json()["result"]["said"], json!([accept("A"), accept("B")]));
    assert_eq!(reply.event().await, None);
    // After the end too; but nothing that never was, and nothing of another session.
    let mut reply = again(&second.id.unwrap(), &name).await;
    assert_eq!((reply.event().await.unwrap(), reply.event().await), (done, None));
    for event in ["7-1", "1-01", "x", "", "-1-1"] {
        assert_eq!(again(event, &name).await.status, 400, "{event}");
    }
    let other = session(address, "2025-11-25", &[]).await;
    assert_eq!(again(&primed, &other).await.status, 400);
    assert_eq!(talker.seen.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn who_does_not_come_back_has_cancelled() {
    let (talker, address, _door) = door(|options| {
        options.resume_wait = Duration::from_millis(200);
    })
    .await;
    for version in ["2025-11-25", "2024-11-05"] {
        let name = session(address, version, &[]).await;
        let mut reply = call(address, &name, 1, "hang", json!({})).await;
        let first = reply.event().await.unwrap();
        assert_eq!(first.id.is_some(), version == "2025-11-25");
        drop(reply);
        tokio::time::timeout(SOON, talker.dropped.notified()).await.unwrap();
    }
    let mut reply = stateless(address, "hang", json!({}), &[]).await;
    assert!(reply.is_stream());
    assert_eq!(reply.event().await.unwrap().id, None);
    drop(reply);
    tokio::time::timeout(SOON, talker.dropped.notified()).await.unwrap();
}

#[tokio::test]
async fn a_session_hears_what_belongs_to_no_request() {
    let (talker, address, _door) = door(|_| {}).await;
    let name = session(address, "2025-11-25", &[]).await;
    let headers = [("mcp-session-id", name.as_str())];
    let mut reply = send(address, "GET", &headers, String::new()).await;
    reply.event().await.unwrap();
    let client = talker.listening.lock().unwrap().clone().unwrap();
    client.notify("notifications/tools/list_changed", None).await;
    let event = reply.event().await.unwrap();
    assert_eq!(event.json()["method"], "notifications/tools/list_changed");
    // A second one takes over from the first.
    let mut second = send(address, "GET", &headers, String::new()).await;
    second.event().await.unwrap();
    assert_eq!(reply.event().await, None);
    assert_eq!(send(address, "DELETE", &headers, String::new()).await.status, 204);
    assert_eq!(second.event().await, None);
    assert_eq!(talker.ended.lock().unwrap()[0], name);
    assert_eq!(send(address, "GET", &headers, String::new()).await.status, 404);
}

#[tokio::test]
async fn a_subscription_is_acknowledged_tagged_and_narrow() {
    let (talker, address, _door) = door(|_| {}).await;
    let body = json!({ "jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": {
        "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["a://b"] },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    } });
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let mut reply = send(address, "POST", &headers, body.to_string()).await;
    let first = reply.event().await.unwrap().json();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], body["params"]["notifications"]);
    let client = talker.listening.lock().unwrap().clone().unwrap();
    for (method, uri) in [
        ("notifications/prompts/list_changed", None),
        ("notifications/message", None),
        ("notifications/resources/updated", Some("a://bc")),
        ("notifications/resources/updated", Some("a://b/c")),
        ("notifications/tools/list_changed", None),
    ] {
        client.notify(method, uri.map(|uri| json!({ "uri": uri }))).await;
    }
    let heard = [reply.event().await.unwrap().json(), reply.event().await.unwrap().json()];
    assert_eq!(heard[0]["params"]["uri"], "a://b/c");
    assert_eq!(heard[1]["method"], "notifications/tools/list_changed");
    for said in [&first, &heard[0], &heard[1]] {
        assert_eq!(said["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s");
    }
    assert!(client.ask("roots/list", None).await.is_err());
    drop(reply);
    tokio::time::timeout(SOON, talker.unheard.notified()).await.unwrap();
}

#[tokio::test]
async fn closing_waits_until_all_is_given_up() {
    let (talker, address, door) = door(|_| {}).await;
    let name = session(address, "2025-11-25", &[]).await;
    let mut reply = call(address, &name, 1, "hang", json!({})).await;
    reply.event().await.unwrap();
    let mut round = stateless(address, "ask", json!({}), &[]).await;
    assert_eq!(round.json().await["result"]["resultType"], "input_required");
    door.close().await;
    // Both were dropped before this: a permit of each would be there.
    tokio::time::timeout(SOON, talker.dropped.notified()).await.unwrap();
    // Once more when the last of it is gone.
    assert!(talker.ended.lock().unwrap().iter().all(|ended| *ended == name));
    assert!(!talker.ended.lock().unwrap().is_empty());
}
