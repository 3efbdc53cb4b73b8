//! What a server says outside requests, over HTTP.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};

use super::stage::{
    Out, Seen, able, connect, dated, ear, note, question, result, stage, stateless,
};
use super::{WAIT, add, plain};
use crate::upstream::{Upstream, UpstreamError};
use crate::{Listening, Revision, Wanted};

const TOOLS: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

fn wanted(tools: bool, uris: &[&str], rest: bool) -> Wanted {
    let uris = uris.iter().map(|uri| (*uri).to_owned()).collect();
    Wanted { tools, uris, rest, ..Wanted::default() }
}

#[tokio::test]
async fn a_stateless_server_tells_what_it_agreed_to() {
    let (end, _) = broadcast::channel::<()>(1);
    let ending = end.clone();
    let url = stage(move |seen, out| {
        let mut end = ending.subscribe();
        async move {
            let Some((seen, mut out)) = stateless(seen, out).await else { return };
            if seen.method() != "subscriptions/listen" {
                return out.empty(404).await;
            }
            let filter = &seen.body["params"]["notifications"];
            assert_eq!(filter, &json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:", "b:"]}));
            assert_eq!(seen.headers["mcp-method"], "subscriptions/listen");
            let meta = json!({"io.modelcontextprotocol/subscriptionId": seen.id(), "kept": 1});
            let only = json!({"io.modelcontextprotocol/subscriptionId": seen.id()});
            let agreed = json!({"toolsListChanged": true, "resourceSubscriptions": ["b:", "c:"]});
            out.events().await;
            let first = json!({"_meta": only, "notifications": agreed});
            out.event(&note("notifications/subscriptions/acknowledged", first)).await;
            out.event(&note(TOOLS, json!({"_meta": meta}))).await;
            out.event(&note(UPDATED, json!({"_meta": only, "uri": "b:"}))).await;
            // What was not asked for.
            out.event(&note(UPDATED, json!({"_meta": only, "uri": "c:"}))).await;
            out.event(&note("notifications/message", json!({"_meta": only}))).await;
            out.event(&note("notifications/resources/list_changed", json!({"_meta": only}))).await;
            out.event(&note(TOOLS, json!({"_meta": only}))).await;
            end.recv().await.unwrap();
            out.event(&result(&seen, json!({}))).await;
            out.end().await;
        }
    })
    .await;
    let upstream = connect(&url, Revision::STATELESS).await;
    let (client, mut heard) = ear(json!({}));
    let wants = Wanted { prompts: true, ..wanted(true, &["a:", "b:"], true) };
    let Listening { granted, passing } = upstream.listen(&client, wants).await.unwrap();
    assert_eq!(granted, wanted(true, &["b:"], false));
    let passing = tokio::spawn(passing);
    assert_eq!(heard.recv().await.unwrap(), (TOOLS.into(), json!({"_meta": {"kept": 1}})));
    assert_eq!(heard.recv().await.unwrap(), (UPDATED.into(), json!({"uri": "b:"})));
    assert_eq!(heard.recv().await.unwrap(), (TOOLS.into(), json!({})));
    assert!(upstream.take_tools_changed() && !upstream.take_tools_changed());
    assert_eq!(upstream.unheard().notifications, 3);
    end.send(()).unwrap();
    passing.await.unwrap();
    // The control: a server that does not know it says so.
    let refused = connect(
        &stage(|seen, out| async move {
            let Some((seen, out)) = stateless(seen, out).await else { return };
            let error = json!({"code": -32601, "message": "Method not found"});
            out.json(json!({"jsonrpc": "2.0", "id": seen.id(), "error": error})).await;
        })
        .await,
        Revision::STATELESS,
    )
    .await;
    let error = refused.listen(&client, wanted(true, &[], false)).await.err().unwrap();
    assert!(matches!(error, UpstreamError::Rpc(ref e) if e.code == -32601), "{error}");
    // Nothing of it is wanted: nothing is sent, and it ends with the connection.
    let nothing = refused.listen(&client, wanted(false, &[], true)).await.unwrap();
    assert_eq!(nothing.granted, Wanted::default());
    drop(refused);
    nothing.passing.await;
}

/// A server with a session whose own stream says what a test says. A call named `wait` ends when
/// something is said to it; what was asked of it is written down.
struct Session {
    upstream: Upstream,
    says: broadcast::Sender<Value>,
    asked: Arc<Mutex<Vec<String>>>,
    answers: tokio::sync::Mutex<mpsc::UnboundedReceiver<Value>>,
}

async fn session(stream: bool) -> Session {
    let (says, _) = broadcast::channel::<Value>(16);
    let (said, answers) = mpsc::unbounded_channel();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let (speaks, log) = (says.clone(), Arc::clone(&asked));
    let url = stage(move |seen, out| {
        let (speaks, log, said) = (speaks.clone(), Arc::clone(&log), said.clone());
        async move {
            let capabilities =
                json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}});
            let Some((seen, out)) = dated(seen, out, capabilities).await else { return };
            if seen.verb == "GET" && !stream {
                return out.empty(405).await;
            }
            serve(seen, out, speaks, &log, &said).await;
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    Session { upstream, says, asked, answers: answers.into() }
}

async fn serve(
    seen: Seen,
    mut out: Out,
    says: broadcast::Sender<Value>,
    log: &Mutex<Vec<String>>,
    said: &mpsc::UnboundedSender<Value>,
) {
    let mut hears = says.subscribe();
    match (seen.verb.as_str(), seen.method()) {
        ("GET", _) => {
            out.events().await;
            out.text("id: 0\nretry: 100\ndata:\n\n").await;
            while let Ok(message) = hears.recv().await {
                if message == "break" {
                    return;
                }
                if message != "done" {
                    out.event(&message).await;
                }
            }
        }
        ("POST", "") => {
            said.send(seen.body).unwrap();
            out.empty(202).await;
        }
        ("POST", "tools/call") if seen.body["params"]["name"] == "wait" => {
            log.lock().unwrap().push("wait".into());
            while hears.recv().await.is_ok_and(|message| message != "done") {}
            out.result(&seen, json!({})).await;
        }
        ("POST", "tools/call") => {
            out.events().await;
            out.event(&note(TOOLS, json!({}))).await;
            out.event(&result(&seen, json!({}))).await;
            out.end().await;
        }
        ("POST", method) => {
            let uri = seen.body["params"]["uri"].as_str().unwrap_or_default();
            log.lock().unwrap().push(format!("{method} {uri}"));
            out.result(&seen, json!({})).await;
        }
        _ => out.empty(405).await,
    }
}

impl Session {
    /// Until the server was asked so often.
    async fn asked(&self, times: usize) -> Vec<String> {
        loop {
            let asked = self.asked.lock().unwrap().clone();
            if asked.len() >= times {
                return asked;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_session_s_stream_is_one_and_is_fanned_out() {
    let session = session(true).await;
    let (one, mut heard_one) = ear(json!({}));
    let (two, mut heard_two) = ear(json!({}));
    let wants = wanted(true, &["a:", "b:"], false);
    let first = session.upstream.listen(&one, wants).await.unwrap();
    let second = session.upstream.listen(&two, wanted(false, &["b:"], true)).await.unwrap();
    assert_eq!(first.granted, wanted(true, &["a:", "b:"], false));
    assert_eq!(second.granted, wanted(false, &["b:"], true));
    assert_eq!(session.says.receiver_count(), 1, "one stream");
    let first = tokio::spawn(first.passing);
    let second = tokio::spawn(second.passing);
    session.says.send(note(TOOLS, json!({}))).unwrap();
    session.says.send(note(UPDATED, json!({"uri": "a:"}))).unwrap();
    session.says.send(note(UPDATED, json!({"uri": "b:"}))).unwrap();
    session.says.send(note("notifications/message", json!({"n": 1}))).unwrap();
    // Broken, and there again.
    session.says.send(json!("break")).unwrap();
    while session.says.receiver_count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while session.says.receiver_count() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    session.says.send(note(UPDATED, json!({"uri": "b:"}))).unwrap();
    let mut next = async || heard_one.recv().await.unwrap();
    assert_eq!(next().await, (TOOLS.into(), json!({})));
    assert_eq!(next().await, (UPDATED.into(), json!({"uri": "a:"})));
    assert_eq!(next().await, (UPDATED.into(), json!({"uri": "b:"})));
    assert_eq!(next().await, (UPDATED.into(), json!({"uri": "b:"})));
    let mut next = async || heard_two.recv().await.unwrap();
    assert_eq!(next().await, (UPDATED.into(), json!({"uri": "b:"})));
    assert_eq!(next().await, ("notifications/message".into(), json!({"n": 1})));
    assert_eq!(next().await, (UPDATED.into(), json!({"uri": "b:"})));
    assert!(session.upstream.take_tools_changed());
    // Subscribed to once, and until nobody follows it.
    assert_eq!(session.asked(2).await, ["resources/subscribe a:", "resources/subscribe b:"]);
    let unsubscribe = Some(json!({"uri": "b:"}));
    plain(&session.upstream, "resources/unsubscribe", unsubscribe, WAIT).await.unwrap();
    first.abort();
    assert_eq!(session.asked(3).await[2..], ["resources/unsubscribe a:"]);
    second.abort();
    assert_eq!(session.asked(4).await[3..], ["resources/unsubscribe b:"]);
}

#[tokio::test]
async fn without_a_stream_of_its_own_changes_come_with_the_calls() {
    let session = session(false).await;
    let (client, mut heard) = ear(json!({}));
    let (caller, mut heard_by_caller) = ear(json!({}));
    let listening = session.upstream.listen(&client, wanted(true, &[], true)).await.unwrap();
    let passing = tokio::spawn(listening.passing);
    session.upstream.request(&caller, "tools/call", add(), WAIT).await.unwrap();
    assert_eq!(heard.recv().await.unwrap().0, TOOLS);
    assert_eq!(heard_by_caller.try_recv().unwrap().0, TOOLS);
    assert!(session.upstream.take_tools_changed());
    drop(session);
    passing.await.unwrap();
}

#[tokio::test]
async fn whose_a_question_is_must_be_clear() {
    let roots = || json!({"roots": {}});
    // (clients of requests under way, listeners) and who is asked.
    let cases: [(&[Value], &[Value], bool); 9] = [
        (&[], &[], false),
        (&[roots()], &[], true),
        (&[json!({})], &[], false),
        (&[roots(), roots()], &[], false),
        (&[roots(), json!({})], &[], false),
        (&[], &[roots(), json!({})], false),
        (&[], &[roots()], true),
        (&[], &[roots(), roots()], false),
        (&[json!({}), json!({})], &[roots()], false),
    ];
    for (n, (requests, listeners, clear)) in cases.into_iter().enumerate() {
        // What ended before would be remembered.
        let session = session(true).await;
        let mut passing = tokio::task::JoinSet::new();
        for capabilities in listeners {
            let (client, _) = ear(capabilities.clone());
            let listening =
                session.upstream.listen(&client, Wanted { rest: true, ..Wanted::default() });
            passing.spawn(listening.await.unwrap().passing);
        }
        let calls = requests.iter().map(|capabilities| {
            let (client, _) = ear(capabilities.clone());
            let upstream = &session.upstream;
            Box::pin(async move {
                let params = Some(json!({"name": "wait"}));
                upstream.request(&client, "tools/call", params, WAIT).await.unwrap();
            })
        });
        let mut calls: Vec<_> = calls.collect();
        let asking = async {
            session.asked(requests.len()).await;
            session.says.send(question(n as u64, "roots/list", json!({"n": n}))).unwrap();
            let answer = session.answers.lock().await.recv().await.unwrap();
            session.says.send(json!("done")).unwrap();
            answer
        };
        let all = async {
            let both = (calls.pop(), calls.pop());
            let one = async {
                if let Some(call) = both.0 {
                    call.await
                }
            };
            let two = async {
                if let Some(call) = both.1 {
                    call.await
                }
            };
            tokio::join!(one, two);
        };
        let (answer, ()) = tokio::join!(asking, all);
        assert_eq!(answer["id"], n);
        assert_eq!(answer.get("result").is_some(), clear, "{n}: {answer}");
        if clear {
            assert_eq!(answer["result"]["with"], json!({"n": n}));
        }
    }
}

#[tokio::test]
async fn listeners_and_what_they_follow_are_bounded() {
    let session = session(true).await;
    let (client, _) = ear(able());
    let many: BTreeSet<String> = (0..1001).map(|n| format!("a:{n}")).collect();
    let wants = Wanted { uris: many, ..Wanted::default() };
    let error = session.upstream.listen(&client, wants).await.err().unwrap();
    assert!(error.to_string().contains("1000"), "{error}");
    let mut held = Vec::new();
    for _ in 0..1024 {
        held.push(session.upstream.listen(&client, wanted(true, &[], true)).await.unwrap());
    }
    let error = session.upstream.listen(&client, wanted(true, &[], true)).await.err().unwrap();
    assert!(error.to_string().contains("1024"), "{error}");
    held.pop();
    assert!(session.upstream.listen(&client, wanted(true, &[], true)).await.is_ok());
}

#[tokio::test]
async fn an_update_goes_to_those_who_follow_on_whichever_stream_it_is_told() {
    let url = stage(|seen, out| async move {
        let capabilities = json!({"tools": {"listChanged": true}});
        let Some((seen, mut out)) = dated(seen, out, capabilities).await else { return };
        let uri = seen.body["params"]["uri"].as_str().unwrap_or_default();
        match (seen.verb.as_str(), seen.method()) {
            ("POST", "tools/call") => {
                out.events().await;
                for uri in ["a:", "b:", "c:"] {
                    out.event(&note(UPDATED, json!({"uri": uri}))).await;
                }
                out.event(&note("notifications/message", json!({"n": 1}))).await;
                out.event(&result(&seen, json!({}))).await;
                out.end().await;
            }
            ("POST", "resources/subscribe") if uri == "no:" => {
                let error = json!({"code": -32002, "message": "no such resource"});
                out.json(json!({"jsonrpc": "2.0", "id": seen.id(), "error": error})).await;
            }
            ("POST", _) => out.result(&seen, json!({})).await,
            _ => out.empty(405).await,
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    let uris = |uris: &[&str]| uris.iter().map(|uri| (*uri).to_owned()).collect::<BTreeSet<_>>();
    let ((one, mut heard_one), (two, mut heard_two)) = (ear(json!({})), ear(json!({})));
    let (caller, mut heard_by_caller) = ear(json!({}));
    let (all, mut heard_by_all) = ear(json!({}));
    let first = upstream.follow(&one, uris(&["a:"]), Some("a:")).await.unwrap();
    let second = upstream.follow(&two, uris(&["b:"]), None).await.unwrap();
    assert_eq!(first.granted, wanted(false, &["a:"], false));
    let rest = upstream.listen(&all, wanted(true, &[], true)).await.unwrap();
    let passing = [first.passing, second.passing, rest.passing].map(tokio::spawn);
    // What the server does not want is refused with its words, unless it is not what was asked for.
    let error = upstream.follow(&one, uris(&["a:", "no:"]), Some("no:")).await.err().unwrap();
    assert!(matches!(error, UpstreamError::Rpc(ref e) if e.code == -32002), "{error}");
    let without = upstream.follow(&one, uris(&["a:", "no:"]), Some("a:")).await.unwrap();
    assert_eq!(without.granted, wanted(false, &["a:"], false));
    drop(without);
    upstream.request(&caller, "tools/call", add(), WAIT).await.unwrap();
    let update = |uri: &str| (UPDATED.to_owned(), json!({"uri": uri}));
    assert_eq!(heard_one.recv().await.unwrap(), update("a:"));
    assert_eq!(heard_two.recv().await.unwrap(), update("b:"));
    // The control: what is the caller's own it hears, and nothing else; nobody follows the third.
    assert_eq!(heard_by_caller.recv().await.unwrap().0, "notifications/message");
    assert_eq!(upstream.unheard().notifications, 1);
    drop(upstream);
    for passing in passing {
        passing.await.unwrap();
    }
    for heard in [&mut heard_one, &mut heard_two, &mut heard_by_caller, &mut heard_by_all] {
        assert!(heard.try_recv().is_err());
    }
}
