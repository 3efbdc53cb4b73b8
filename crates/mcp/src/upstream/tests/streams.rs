//! What comes on the stream of one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore, mpsc};

use super::stage::{
    able, answering, connect, dated, ear, note, question, result, stage, stateless,
};
use super::{WAIT, add, plain};
use crate::upstream::{HttpOptions, Reply, Upstream, UpstreamError, UpstreamLimits};
use crate::{Answer, Boxed, Client, Revision, RpcError};

fn call(token: Value) -> Option<Value> {
    Some(json!({"name": "t", "arguments": {}, "_meta": {"progressToken": token}}))
}

#[tokio::test]
async fn what_is_told_goes_to_whoever_asked_with_its_own_token() {
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let url = stage(move |seen, out| {
        let both = Arc::clone(&both);
        async move {
            let Some((seen, mut out)) = dated(seen, out, json!({})).await else { return };
            if seen.verb == "GET" {
                return out.empty(405).await;
            }
            both.wait().await;
            let token = &seen.body["params"]["_meta"]["progressToken"];
            assert!(token.is_u64(), "{token}");
            out.events().await;
            let progress = json!({"progressToken": token, "progress": 0.5, "odd": [1]});
            out.event(&note("notifications/progress", progress)).await;
            let other = json!({"progressToken": "same", "progress": 1});
            out.event(&note("notifications/progress", other)).await;
            out.event(&note("notifications/message", json!({"level": "info", "of": token}))).await;
            out.event(&result(&seen, json!({"token": token}))).await;
            out.end().await;
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    let (one, mut heard_one) = ear(json!({}));
    let (two, mut heard_two) = ear(json!({}));
    let (first, second) = tokio::join!(
        upstream.request(&one, "tools/call", call(json!("same")), WAIT),
        upstream.request(&two, "tools/call", call(json!("same")), WAIT),
    );
    for (reply, heard) in [(first, &mut heard_one), (second, &mut heard_two)] {
        let Reply::Done(result) = reply.unwrap() else { panic!() };
        let progress = json!({"progressToken": "same", "progress": 0.5, "odd": [1]});
        assert_eq!(heard.try_recv().unwrap(), ("notifications/progress".into(), progress));
        let (method, params) = heard.try_recv().unwrap();
        assert_eq!((method.as_str(), &params["of"]), ("notifications/message", &result["token"]));
        assert!(heard.try_recv().is_err(), "a token that is not ours is nobody's");
    }
    assert_eq!(upstream.unheard().notifications, 2);
}

/// Asks on the stream of a call, and gives the answer to the question as the result.
async fn asks(method: &'static str, params: Value, client: &Arc<dyn Client>) -> Value {
    let (said, hears) = mpsc::unbounded_channel();
    let hears = Arc::new(tokio::sync::Mutex::new(hears));
    let url = stage(move |seen, out| {
        let (said, hears, params) = (said.clone(), Arc::clone(&hears), params.clone());
        async move {
            let Some((seen, mut out)) = dated(seen, out, json!({})).await else { return };
            match seen.method() {
                "tools/call" => {
                    out.events().await;
                    out.event(&question(7, method, params)).await;
                    let mut answer: Value = hears.lock().await.recv().await.unwrap();
                    assert_eq!(answer["id"], 7);
                    answer.as_object_mut().unwrap().retain(|k, _| k == "result" || k == "error");
                    out.event(&result(&seen, answer)).await;
                    out.end().await;
                }
                "" if seen.verb == "POST" => {
                    said.send(seen.body).unwrap();
                    out.empty(202).await;
                }
                _ => out.empty(405).await,
            }
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    let reply = upstream.request(client, "tools/call", add(), WAIT).await.unwrap();
    let Reply::Done(result) = reply else { panic!("{reply:?}") };
    result
}

#[tokio::test]
async fn what_is_asked_reaches_the_client_and_the_answer_the_server_unchanged() {
    let params = json!({"message": "?", "requestedSchema": {"odd": [null]}, "more": 1});
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        let (client, _) = ear(able());
        let answer = asks(method, params.clone(), &client).await;
        assert_eq!(answer, json!({"result": {"asked": method, "with": params}}));
        // Who has not declared it is not asked.
        let (mute, _) = ear(json!({"other": {}}));
        let answer = asks(method, params.clone(), &mute).await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
    let own: Answer = Err(RpcError { code: -1, message: "no".into(), data: Some(json!([1])) });
    let (client, _) = answering(able(), move |_, _| Box::pin(std::future::ready(own.clone())));
    let answer = asks("roots/list", json!({}), &client).await;
    assert_eq!(answer, json!({"error": {"code": -1, "message": "no", "data": [1]}}));
}

#[tokio::test]
async fn parts_of_what_can_be_asked_are_declared_each() {
    let url = json!({"mode": "url", "url": "https://x"});
    let form = json!({"mode": "form"});
    let tools = json!({"tools": []});
    for (method, params, capabilities, ok) in [
        ("elicitation/create", &form, json!({"elicitation": {}}), true),
        ("elicitation/create", &url, json!({"elicitation": {}}), false),
        ("elicitation/create", &url, json!({"elicitation": {"url": {}}}), true),
        ("elicitation/create", &form, json!({"elicitation": {"url": {}}}), false),
        ("sampling/createMessage", &tools, json!({"sampling": {}}), false),
        ("sampling/createMessage", &tools, json!({"sampling": {"tools": {}}}), true),
        ("ping", &form, json!({}), true),
        ("made/up", &form, able(), false),
    ] {
        let (client, _) = ear(capabilities.clone());
        let answer = asks(method, params.clone(), &client).await;
        assert_eq!(answer.get("result").is_some(), ok, "{method} {params} {capabilities}");
    }
}

#[tokio::test]
async fn a_thinking_client_does_not_use_up_the_time_and_progress_gives_more() {
    let short = Duration::from_millis(300);
    let (client, _) = answering(able(), |_, _| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            Ok(json!({}))
        })
    });
    let url = stage(|seen, out| async move {
        let Some((seen, mut out)) = dated(seen, out, json!({})).await else { return };
        match (seen.method(), seen.body["params"]["name"].as_str()) {
            ("tools/call", Some("ask")) => {
                out.events().await;
                out.event(&question(1, "roots/list", json!({}))).await;
                tokio::time::sleep(Duration::from_millis(1000)).await;
                out.event(&result(&seen, json!({}))).await;
                out.end().await;
            }
            ("tools/call", Some(kind)) => {
                out.events().await;
                let token = &seen.body["params"]["_meta"]["progressToken"];
                for _ in 0..6 {
                    tokio::time::sleep(Duration::from_millis(150)).await;
                    let params = json!({"progressToken": token, "progress": 1});
                    let method = format!("notifications/{kind}");
                    out.event(&note(&method, params)).await;
                }
                out.event(&result(&seen, json!({}))).await;
                out.end().await;
            }
            ("", _) if seen.verb == "POST" => out.empty(202).await,
            _ => out.empty(405).await,
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    for (name, in_time) in [("ask", true), ("progress", true), ("message", false)] {
        let params = json!({"name": name, "_meta": {"progressToken": 1}});
        let reply = upstream.request(&client, "tools/call", Some(params), short).await;
        match reply {
            Ok(_) => assert!(in_time, "{name}"),
            Err(error) => {
                assert!(!in_time, "{name}: {error}");
                assert!(matches!(error, UpstreamError::Timeout { .. }), "{error}");
            }
        }
    }
}

/// Hears nothing before it is let.
struct Slow {
    may: Semaphore,
    heard: AtomicUsize,
}

impl Client for Slow {
    fn capabilities(&self) -> &Value {
        &Value::Null
    }
    fn notify<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, ()> {
        Box::pin(async {
            self.may.acquire().await.unwrap().forget();
            self.heard.fetch_add(1, Ordering::SeqCst);
        })
    }
    fn ask<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, Answer> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_slow_client_holds_up_its_own_stream_and_no_other() {
    const MANY: usize = 3000;
    let sent = Arc::new(AtomicUsize::new(0));
    let (counted, wide) = (Arc::clone(&sent), "x".repeat(16 * 1024));
    let url = stage(move |seen, out| {
        let (counted, wide) = (Arc::clone(&counted), wide.clone());
        async move {
            let Some((seen, mut out)) = dated(seen, out, json!({})).await else { return };
            if seen.verb == "GET" {
                return out.empty(405).await;
            }
            if seen.body["params"]["name"] == "add" {
                return out.result(&seen, json!({"ok": 1})).await;
            }
            out.events().await;
            for _ in 0..MANY {
                if !out.event(&note("notifications/message", json!({"data": wide}))).await {
                    return;
                }
                counted.fetch_add(1, Ordering::SeqCst);
            }
            out.event(&result(&seen, json!({}))).await;
            out.end().await;
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    let slow = Arc::new(Slow { may: Semaphore::new(0), heard: AtomicUsize::new(0) });
    let client: Arc<dyn Client> = Arc::clone(&slow) as _;
    let flood = upstream.request(&client, "tools/call", call(json!(1)), WAIT);
    tokio::pin!(flood);
    for _ in 0..20 {
        tokio::select! {
            reply = &mut flood => panic!("{reply:?}"),
            other = plain(&upstream, "tools/call", add(), WAIT) => assert_eq!(other.unwrap()["ok"], 1),
        }
    }
    // What was sent so far is in sockets and in the bounded box.
    assert!(sent.load(Ordering::SeqCst) < MANY, "the server was held up");
    slow.may.add_permits(MANY);
    assert!(flood.await.is_ok());
    assert_eq!(slow.heard.load(Ordering::SeqCst), MANY, "nothing is lost over HTTP");
}

#[tokio::test]
async fn servers_without_end_and_measure_over_http() {
    let asked = Arc::new(AtomicUsize::new(0));
    let url = stage(|seen, out| async move {
        let Some((seen, mut out)) = dated(seen, out, json!({})).await else { return };
        let name = seen.body["params"]["name"].as_str().unwrap_or_default().to_owned();
        match (seen.verb.as_str(), name.as_str()) {
            ("POST", "two") => {
                out.events().await;
                let both = format!(
                    "data: {}\n\ndata: {}\n\n",
                    result(&seen, json!({"n": 1})),
                    result(&seen, json!({"n": 2}))
                );
                out.text(&both).await;
                out.end().await;
            }
            ("POST", "wrong") => {
                out.json(json!({"jsonrpc": "2.0", "id": "other", "result": {}})).await;
            }
            ("POST", "never") => {
                out.events().await;
                while out.text(": still here\n\n").await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            ("POST", "announced") => {
                let head = "content-type: application/json\r\ncontent-length: 104857600";
                out.raw(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes()).await;
                out.closed().await;
            }
            ("POST", "unannounced") => {
                let head = "content-type: application/json\r\nconnection: close";
                out.raw(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes()).await;
                while out.raw(&[b' '; 64 * 1024]).await {}
            }
            ("POST", "huge") => {
                out.events().await;
                let part = format!("data: \"{}\"\n", "x".repeat(64 * 1024));
                while out.text(&part).await {}
            }
            ("POST", "dies") => {
                out.events().await;
                out.event(&note("notifications/message", json!({}))).await;
            }
            ("POST", "asks") => {
                out.events().await;
                let mut n = 0;
                while out.event(&question(n, "roots/list", json!({}))).await {
                    n += 1;
                }
            }
            ("POST", "hangs") => out.closed().await,
            ("POST", "add") => out.result(&seen, json!({"ok": 1})).await,
            ("POST", "") => out.empty(202).await,
            _ => out.empty(405).await,
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    let counted = Arc::clone(&asked);
    let (client, _) = answering(able(), move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(json!({}))))
    });
    let short = Duration::from_millis(500);
    let ask = async |name: &str, wait| {
        let params = json!({"name": name, "_meta": {"progressToken": 1}});
        upstream.request(&client, "tools/call", Some(params), wait).await
    };
    assert_eq!(ask("add", WAIT).await.unwrap(), Reply::Done(json!({"ok": 1})));
    assert_eq!(ask("two", WAIT).await.unwrap(), Reply::Done(json!({"n": 1})));
    for (name, wait, words) in [
        ("wrong", WAIT, "another request"),
        ("never", short, "did not answer within"),
        ("hangs", short, "did not answer within"),
        ("announced", WAIT, "larger than 16777216 bytes"),
        ("unannounced", WAIT, "larger than 16777216 bytes"),
        ("huge", WAIT, "larger than 16777216 bytes"),
        ("dies", WAIT, "the connection broke"),
        ("asks", WAIT, "without end"),
    ] {
        let error = ask(name, wait).await.unwrap_err();
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
    assert!((1..=1001).contains(&asked.load(Ordering::SeqCst)), "{asked:?}");
    // The second of two answers counts for nothing, and so does the wrong one.
    assert_eq!(upstream.unheard().answers, 2);
    assert_eq!(ask("add", WAIT).await.unwrap(), Reply::Done(json!({"ok": 1})));
}

#[tokio::test]
async fn calls_are_multiplexed() {
    let all = Arc::new(tokio::sync::Barrier::new(50));
    let url = stage(move |seen, out| {
        let all = Arc::clone(&all);
        async move {
            let Some((seen, out)) = stateless(seen, out).await else { return };
            all.wait().await;
            out.result(&seen, seen.body["params"]["arguments"].clone()).await;
        }
    })
    .await;
    let upstream = Arc::new(connect(&url, Revision::STATELESS).await);
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..50 {
        let upstream = Arc::clone(&upstream);
        calls.spawn(async move {
            let params = json!({"name": "t", "arguments": {"n": n}});
            let got = plain(&upstream, "tools/call", Some(params), WAIT).await.unwrap();
            assert_eq!(got, json!({"n": n}));
        });
    }
    assert_eq!(calls.join_all().await.len(), 50);
}

#[tokio::test]
async fn a_stateless_server_sees_what_the_client_can_do_and_not_who_it_is() {
    let url = stage(|seen, out| async move {
        let Some((seen, out)) = stateless(seen, out).await else { return };
        out.result(&seen, json!({"meta": seen.body["params"]["_meta"]})).await;
    })
    .await;
    let upstream = connect(&url, Revision::STATELESS).await;
    // Words of the client's own, wherever they stand, were judged by nobody.
    let (client, _) = ear(json!({
        "roots": {"listChanged": true, "odd": "words"},
        "sampling": {"tools": {"odd": "words"}, "context": "words"},
        "elicitation": {"form": {}, "url": {"odd": ["words"]}},
        "experimental": {"odd": {"x": "words"}},
        "odd": {"x": "words"},
    }));
    let params = json!({"name": "t", "_meta": {
        "io.modelcontextprotocol/clientInfo": {"name": "secret agent", "version": "7"},
        "io.modelcontextprotocol/clientCapabilities": {"forged": {}},
        "io.modelcontextprotocol/protocolVersion": "1999-01-01",
        "io.modelcontextprotocol/logLevel": "debug",
        "kept": 1,
    }});
    let reply = upstream.request(&client, "tools/call", Some(params), WAIT).await.unwrap();
    let Reply::Done(result) = reply else { panic!() };
    let meta = &result["meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "ringfence");
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({
            "elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}},
            "roots": {"listChanged": true},
        })
    );
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "debug");
    assert_eq!(meta["kept"], 1);
}

#[tokio::test]
async fn a_stateless_server_asks_in_its_answer_and_nowhere_else() {
    let told = Arc::new(Notify::new());
    let posted = Arc::clone(&told);
    let url = stage(move |seen, out| {
        let posted = Arc::clone(&posted);
        async move {
            let Some((seen, mut out)) = stateless(seen, out).await else { return };
            if seen.method().is_empty() {
                // A response: no client sends one there.
                posted.notify_one();
                return out.empty(202).await;
            }
            out.events().await;
            out.event(&question(1, "roots/list", json!({}))).await;
            out.event(&question(2, "ping", json!({}))).await;
            out.event(&result(&seen, seen.body["params"]["arguments"].clone())).await;
            out.end().await;
        }
    })
    .await;
    let upstream = connect(&url, Revision::STATELESS).await;
    let (client, _) = ear(able());
    let ask = async |method: &str, answer: Value| {
        let params = json!({"name": "t", "arguments": answer});
        upstream.request(&client, method, Some(params), WAIT).await
    };
    let wants = |requests: Value, state: Value| json!({"resultType": "input_required", "inputRequests": requests, "requestState": state});
    let one = json!({"a": {"method": "elicitation/create", "params": {"message": "?"}}});
    let Ok(Reply::Wants(found)) = ask("tools/call", wants(one.clone(), json!("s"))).await else {
        panic!()
    };
    assert_eq!(found.state.as_deref(), Some("s"));
    assert_eq!(found.requests["a"], ("elicitation/create".into(), Some(json!({"message": "?"}))));
    let many: serde_json::Map<_, _> = (0..17).map(|n| (n.to_string(), one["a"].clone())).collect();
    let large = json!({"a": {"method": "roots/list", "params": {"x": "x".repeat(2_000_000)}}});
    for (what, method, answer) in [
        ("nothing", "tools/call", wants(json!({}), Value::Null)),
        ("too many", "tools/call", wants(Value::Object(many), Value::Null)),
        ("too large", "tools/call", wants(large, Value::Null)),
        ("of another kind", "tools/call", wants(json!({"a": {"method": "ping"}}), Value::Null)),
        ("a list", "tools/call", wants(json!([]), json!("s"))),
        ("a state of another kind", "tools/call", wants(one.clone(), json!({"a": 1}))),
        ("where nothing is asked", "tools/list", wants(one.clone(), Value::Null)),
    ] {
        let reply = ask(method, answer).await;
        assert!(matches!(reply, Err(UpstreamError::Nonsense { .. })), "{what}: {reply:?}");
    }
    // What it was not offered.
    let (mute, _) = ear(json!({}));
    let params = json!({"name": "t", "arguments": wants(one, Value::Null)});
    let reply = upstream.request(&mute, "tools/call", Some(params), WAIT).await;
    assert!(matches!(reply, Err(UpstreamError::Nonsense { .. })), "{reply:?}");
    let state = ask("tools/call", wants(Value::Null, json!("only"))).await;
    assert!(matches!(state, Ok(Reply::Wants(ref wants)) if wants.requests.is_empty()), "{state:?}");
    assert!(upstream.unheard().questions >= 20);
    tokio::select! {
        () = told.notified() => panic!("a response was sent"),
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (said, mut hears) = mpsc::unbounded_channel();
    let target = stage(move |seen, out| {
        let said = said.clone();
        async move {
            said.send(seen.verb).unwrap();
            out.empty(200).await;
        }
    })
    .await;
    let to = target.clone();
    let url = stage(move |_, out| {
        let to = to.clone();
        async move { out.reply(307, &format!("location: {to}\r\n"), b"").await }
    })
    .await;
    let options = HttpOptions::default();
    let error = Upstream::http(&url, &options, UpstreamLimits::default(), WAIT).await.unwrap_err();
    assert!(error.to_string().contains("redirect"), "{error}");
    assert!(!error.detail().contains(&target), "{}", error.detail());
    assert!(hears.try_recv().is_err());
    // The control: the target answers who asks it.
    let _ = Upstream::http(&target, &options, UpstreamLimits::default(), WAIT).await;
    assert_eq!(hears.recv().await.as_deref(), Some("POST"));
}
