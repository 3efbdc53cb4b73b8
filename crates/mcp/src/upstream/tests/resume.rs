//! Streams that break, sessions, and credentials.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::stage::{Out, Seen, connect, dated, ear, note, result, stage, stateless};
use super::{WAIT, add, plain};
use crate::upstream::{Authorize, HttpOptions, Reply, Upstream, UpstreamError, UpstreamLimits};
use crate::{Boxed, Revision};

/// A call's stream that ends after this text; the rest is to be had by GET with `Last-Event-ID`.
async fn broken(first: &'static str) -> (Result<Value, UpstreamError>, Vec<(String, Duration)>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, since) = (Arc::clone(&asked), Arc::new(Mutex::new((Value::Null, Instant::now()))));
    let url = stage(move |seen, out| {
        let (log, since) = (Arc::clone(&log), Arc::clone(&since));
        async move {
            let Some((seen, mut out)) = dated(seen, out, json!({})).await else { return };
            match (seen.verb.as_str(), seen.headers.get("last-event-id")) {
                ("GET", None) => out.empty(405).await,
                ("GET", Some(id)) => {
                    assert_eq!(seen.headers["mcp-session-id"], "s-1");
                    assert_eq!(seen.headers["mcp-protocol-version"], "2025-11-25");
                    let (call, when) = since.lock().unwrap().clone();
                    log.lock().unwrap().push((id.clone(), when.elapsed()));
                    if id == "gone" {
                        return out.empty(405).await;
                    }
                    out.events().await;
                    if id == "again" {
                        return out.end().await;
                    }
                    if id == "1" {
                        // Once more, from further on.
                        out.text("id: 2\nretry: 100\ndata:\n\n").await;
                        *since.lock().unwrap() = (call, Instant::now());
                        return out.end().await;
                    }
                    let answer = json!({"jsonrpc": "2.0", "id": call, "result": {"ok": 1}});
                    out.event(&note("notifications/message", json!({"late": 1}))).await;
                    out.event(&answer).await;
                    out.end().await;
                }
                _ => {
                    out.events().await;
                    out.text(first).await;
                    *since.lock().unwrap() = (seen.id().clone(), Instant::now());
                    out.end().await;
                }
            }
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    let (client, mut heard) = ear(json!({}));
    let reply = upstream.request(&client, "tools/call", add(), WAIT).await;
    let reply = reply.map(|reply| {
        assert_eq!(heard.try_recv().unwrap().1, json!({"late": 1}));
        let Reply::Done(result) = reply else { panic!() };
        result
    });
    let asked = asked.lock().unwrap().clone();
    (reply, asked)
}

#[tokio::test]
async fn a_stream_that_ends_early_is_taken_up_again_where_it_was() {
    let (reply, asked) = broken("id: 1\nretry: 300\ndata:\n\n").await;
    assert_eq!(reply.unwrap(), json!({"ok": 1}));
    let ids: Vec<_> = asked.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["1", "2"]);
    let (first, second) = (asked[0].1.as_millis(), asked[1].1.as_millis());
    assert!(first >= 300 && (100..300).contains(&second), "{asked:?}");
    // Without a place there is nothing to go on from, and none is made up.
    for lost in [": nothing\n\n", "retry: 100\ndata:\n\n", "id: a\u{1b}b\nretry: 100\ndata:\n\n"] {
        let (reply, asked) = broken(lost).await;
        let error = reply.unwrap_err().to_string();
        assert!(error.contains("without an answer") && asked.is_empty(), "{lost:?}: {error}");
    }
}

#[tokio::test]
async fn a_stream_is_not_taken_up_without_end() {
    let (reply, asked) = broken("id: again\nretry: 100\ndata:\n\n").await;
    let error = reply.unwrap_err().to_string();
    assert!(error.contains("without an answer") && asked.len() == 10, "{error} {asked:?}");
    let (reply, asked) = broken("id: gone\nretry: 100\ndata:\n\n").await;
    // It may have done what it was asked: not to be asked again as if it had not.
    let error = reply.unwrap_err();
    assert!(matches!(error, UpstreamError::Closed { .. }) && asked.len() == 1, "{error:?}");
}

#[tokio::test]
async fn sessions_are_named_ended_and_lost() {
    let (said, mut hears) = mpsc::unbounded_channel();
    let url = stage(move |seen, out| {
        let said = said.clone();
        async move {
            let session = seen.headers.get("mcp-session-id").cloned();
            said.send((seen.verb.clone(), seen.method().to_owned(), session)).unwrap();
            let Some((seen, out)) = dated(seen, out, json!({})).await else { return };
            match seen.body["params"]["name"].as_str() {
                Some("lost") => out.empty(404).await,
                Some(_) => out.result(&seen, json!({"ok": 1})).await,
                None => out.empty(405).await,
            }
        }
    })
    .await;
    let upstream = connect(&url, Revision::HANDSHAKE).await;
    assert!(plain(&upstream, "tools/call", add(), WAIT).await.is_ok());
    let lost = plain(&upstream, "tools/call", Some(json!({"name": "lost"})), WAIT).await;
    assert_eq!(lost, Err(UpstreamError::SessionLost));
    drop(upstream);
    let ours = Some("s-1".to_owned());
    let next = async |hears: &mut mpsc::UnboundedReceiver<_>| hears.recv().await.unwrap();
    assert_eq!(next(&mut hears).await, ("POST".into(), "initialize".into(), None));
    let told = ("POST".into(), "notifications/initialized".into(), ours.clone());
    assert_eq!(next(&mut hears).await, told);
    assert_eq!(next(&mut hears).await, ("GET".into(), String::new(), ours.clone()));
    for _ in 0..2 {
        assert_eq!(next(&mut hears).await, ("POST".into(), "tools/call".into(), ours.clone()));
    }
    assert_eq!(next(&mut hears).await, ("DELETE".into(), String::new(), ours));
    for (name, ok) in [("visible-!~", true), ("a b", false), ("\u{e9}", false)] {
        let url = stage(move |seen, out| async move {
            let hello = result(&seen, json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
            let head = format!("content-type: application/json\r\nmcp-session-id: {name}\r\n");
            out.reply(200, &head, hello.to_string().as_bytes()).await;
        })
        .await;
        let prefer = Some(Revision::HANDSHAKE);
        let options = HttpOptions { prefer, ..HttpOptions::default() };
        let made = Upstream::http(&url, &options, UpstreamLimits::default(), WAIT).await;
        assert_eq!(made.is_ok(), ok, "{name}: {made:?}");
    }
}

/// Says `Bearer <n>`, and has another `n` each time it is challenged, `renewals` times.
struct Tokens {
    now: AtomicUsize,
    renewals: usize,
    seen: Mutex<Vec<(u16, Option<String>)>>,
}

impl Authorize for Tokens {
    fn header(&self) -> Boxed<'_, Result<Option<String>, String>> {
        let now = self.now.load(Ordering::SeqCst);
        Box::pin(std::future::ready(match now {
            13 => Err("sign in again".into()),
            now => Ok(Some(format!("Bearer {now}"))),
        }))
    }

    fn challenged<'a>(&'a self, status: u16, challenge: Option<&'a str>) -> Boxed<'a, bool> {
        self.seen.lock().unwrap().push((status, challenge.map(str::to_owned)));
        let before = self.now.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(before < self.renewals))
    }
}

/// Wants this token of whoever asks.
async fn guarded(seen: Seen, out: Out, wanted: &str) -> Option<(Seen, Out)> {
    if seen.headers.get("authorization").map(String::as_str) == Some(wanted) {
        return Some((seen, out));
    }
    let head = "www-authenticate: Bearer realm=\"x\"\r\nwww-authenticate: Other\r\n";
    out.reply(401, head, b"").await;
    None
}

#[tokio::test]
async fn other_credentials_are_asked_for_a_bounded_number_of_times() {
    for (start, renewals, headers, ok, challenges) in [
        (1, 0, vec![], true, 0),
        (0, 5, vec![], true, 1),
        (7, 0, vec![], false, 1),
        (7, 99, vec![], false, 2),
        // Declared credentials are the only ones then.
        (1, 99, vec![("Authorization", "Bearer 1")], true, 0),
        (1, 99, vec![("authorization", "Bearer 5")], false, 0),
    ] {
        let url = stage(|seen, out| async move {
            let Some((seen, out)) = guarded(seen, out, "Bearer 1").await else { return };
            let Some((seen, out)) = stateless(seen, out).await else { return };
            out.result(&seen, json!({})).await;
        })
        .await;
        let now = AtomicUsize::new(start);
        let tokens = Arc::new(Tokens { now, renewals, seen: Mutex::default() });
        let headers = headers.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let authorize = Some(Arc::clone(&tokens) as Arc<dyn Authorize>);
        let options = HttpOptions { headers, authorize, ..HttpOptions::default() };
        let made = Upstream::http(&url, &options, UpstreamLimits::default(), WAIT).await;
        let seen = tokens.seen.lock().unwrap().clone();
        assert_eq!((made.is_ok(), seen.len()), (ok, challenges), "{start} {made:?}");
        let challenge = (401, Some("Bearer realm=\"x\", Other".to_owned()));
        assert!(seen.iter().all(|one| *one == challenge), "{seen:?}");
        match made {
            Ok(upstream) => assert!(plain(&upstream, "tools/call", add(), WAIT).await.is_ok()),
            Err(error) => assert_eq!(error, UpstreamError::Unauthorized { status: 401 }),
        }
    }
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let url = stage(|_, _| async { panic!("nothing is to be sent") }).await;
    let now = AtomicUsize::new(13);
    let tokens = Tokens { now, renewals: 0, seen: Mutex::default() };
    let options = HttpOptions { authorize: Some(Arc::new(tokens)), ..HttpOptions::default() };
    let error = Upstream::http(&url, &options, UpstreamLimits::default(), WAIT).await.unwrap_err();
    assert!(error.to_string().contains("sign-in"), "{error}");
    assert!(error.detail().contains("sign in again"), "{}", error.detail());
}

#[tokio::test]
async fn a_tool_with_other_headers_than_were_seen_is_looked_up_and_called_again() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let url = stage(move |seen, out| {
        let counted = Arc::clone(&counted);
        async move {
            let Some((seen, out)) = stateless(seen, out).await else { return };
            let region = seen.headers.get("mcp-param-region").map(String::as_str);
            if seen.method() == "tools/list" {
                counted.fetch_add(1, Ordering::SeqCst);
                let region = json!({"type": "string", "x-mcp-header": "Region"});
                let bad = json!({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}});
                let tools = json!([
                    {"name": "t", "inputSchema": {"properties": {"region": region}}},
                    {"name": "bad", "inputSchema": bad},
                ]);
                out.result(&seen, json!({ "tools": tools })).await;
            } else if region == Some("here") {
                out.result(&seen, json!({"ok": 1})).await;
            } else {
                let error = json!({"code": -32020, "message": "Header mismatch"});
                let body = json!({"jsonrpc": "2.0", "id": seen.id(), "error": error}).to_string();
                out.reply(400, "content-type: application/json\r\n", body.as_bytes()).await;
            }
        }
    })
    .await;
    let upstream = connect(&url, Revision::STATELESS).await;
    let call = |region: &str| Some(json!({"name": "t", "arguments": {"region": region}}));
    assert_eq!(plain(&upstream, "tools/call", call("here"), WAIT).await.unwrap()["ok"], 1);
    assert_eq!(plain(&upstream, "tools/call", call("here"), WAIT).await.unwrap()["ok"], 1);
    assert_eq!(lists.load(Ordering::SeqCst), 1, "it is remembered");
    let error = plain(&upstream, "tools/call", call("there"), WAIT).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Rpc(ref e) if e.code == -32020), "{error}");
    assert_eq!(lists.load(Ordering::SeqCst), 2, "once a call");
    let page = plain(&upstream, "tools/list", None, WAIT).await.unwrap();
    assert_eq!(page["tools"].as_array().unwrap().len(), 1);
    assert_eq!(upstream.unheard().tools, 1);
}
