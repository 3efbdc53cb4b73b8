//! Replies that take memory: what one server may have of it, and what is left for the others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::stage::{dated, result, stage};
use super::{WAIT, add, answer, scripted};
use crate::upstream::{HttpOptions, Opening, Reply, Upstream, UpstreamError, UpstreamLimits};
use crate::{Answer, Boxed, Client, Held, Replies, Revision, Share};

/// A client that has not read its answers yet.
#[derive(Default)]
struct Slow(Mutex<Vec<Held>>);

impl Client for Slow {
    fn capabilities(&self) -> &Value {
        &Value::Null
    }
    fn keep(&self, held: Held) {
        self.0.lock().unwrap().push(held);
    }
    fn notify<'a>(&'a self, _: &'a str, _: Option<Value>) -> Boxed<'a, ()> {
        Box::pin(std::future::ready(()))
    }
    fn ask<'a>(&'a self, _: &'a str, _: Option<Value>) -> Boxed<'a, Answer> {
        Box::pin(std::future::pending())
    }
}

/// A server over stdio whose tool answers with 500 numbers: some 35 KiB.
async fn many_numbers(replies: Share) -> Upstream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(scripted(theirs, |m| {
        let few = m["method"] != "tools/call";
        answer(m, if few { json!({}) } else { json!({ "n": vec![1; 500] }) })
    }));
    let (read, write) = tokio::io::split(ours);
    let limits = UpstreamLimits { message: 4096, junk: 10, values: 1000 };
    Upstream::stdio(read, write, limits, replies, Opening::Handshake, WAIT).await.unwrap()
}

async fn call(
    upstream: &Upstream,
    client: &Arc<Slow>,
    method: &str,
    wait: Duration,
) -> Result<Reply, UpstreamError> {
    let client = Arc::clone(client) as Arc<dyn Client>;
    upstream.request(&client, method, add(), wait).await
}

#[tokio::test]
async fn what_one_server_answers_takes_no_room_from_another() {
    let replies = Replies::new(100 << 10, 45 << 10);
    let (one, two) = (many_numbers(replies.share()).await, many_numbers(replies.share()).await);
    let slow = Arc::<Slow>::default();
    let short = Duration::from_millis(200);
    call(&one, &slow, "tools/call", WAIT).await.unwrap();
    assert_eq!(slow.0.lock().unwrap().len(), 1);
    // Its share is full: the next answer waits for as long as its call may take, and that is said.
    let error = call(&one, &slow, "tools/call", short).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Crowded { .. }), "{error:?}");
    assert!(error.to_string().contains("memory"), "{error}");
    // Another server has its own.
    call(&two, &slow, "tools/call", WAIT).await.unwrap();
    // Whatever is in the way goes on when the client has read its answer.
    slow.0.lock().unwrap().clear();
    for _ in 0..3 {
        call(&one, &slow, "tools/call", WAIT).await.unwrap();
        slow.0.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn all_servers_together_have_no_more_than_there_is() {
    let replies = Replies::new(80 << 10, 45 << 10);
    let slow = Arc::<Slow>::default();
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(many_numbers(replies.share()).await);
    }
    call(&servers[0], &slow, "tools/call", WAIT).await.unwrap();
    call(&servers[1], &slow, "tools/call", WAIT).await.unwrap();
    let short = Duration::from_millis(200);
    let error = call(&servers[2], &slow, "tools/call", short).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Crowded { .. }), "{error:?}");
    // What is small needs none of it.
    let fresh = many_numbers(replies.share()).await;
    call(&fresh, &slow, "prompts/list", WAIT).await.unwrap();
    // A call that nobody waits for leaves its room to the others.
    drop(servers.pop());
    slow.0.lock().unwrap().pop();
    call(&fresh, &slow, "tools/call", WAIT).await.unwrap();
}

/// A server over HTTP: `stall` sends half of a large reply, as JSON or as an event, and no more.
async fn halves(events: bool, replies: Share) -> Upstream {
    let url = stage(move |seen, out| async move {
        let Some((seen, mut out)) = dated(seen, out, json!({})).await else { return };
        if seen.verb == "GET" {
            return out.empty(405).await;
        }
        let whole = result(&seen, json!({ "pad": "x".repeat(200_000) })).to_string();
        let stalls = seen.body["params"]["name"] == "stall";
        let length = if stalls { whole.len() / 2 } else { whole.len() };
        let part = &whole.as_bytes()[..length];
        if events {
            out.events().await;
            out.text(&format!("data: {}", String::from_utf8_lossy(part))).await;
            if !stalls {
                out.text("\n\n").await;
                return out.end().await;
            }
        } else {
            // What is announced takes no more room than that: this one says nothing of its length.
            let length = format!("content-length: {}\r\n", whole.len());
            let length = if stalls { "" } else { length.as_str() };
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{length}connection: close\r\n\r\n"
            );
            out.raw(head.as_bytes()).await;
            out.raw(part).await;
        }
        if stalls {
            out.closed().await;
        }
    })
    .await;
    let options =
        HttpOptions { prefer: Some(Revision::HANDSHAKE), replies, ..HttpOptions::default() };
    Upstream::http(&url, &options, UpstreamLimits::default(), WAIT).await.unwrap()
}

#[tokio::test]
async fn replies_that_do_not_go_on_take_what_is_their_server_s_and_no_more() {
    for events in [false, true] {
        // Room for two of the largest of one server, and for three in all.
        let replies = Replies::new(160 << 20, 110 << 20);
        let greedy = Arc::new(halves(events, replies.share()).await);
        let other = halves(events, replies.share()).await;
        let client: Arc<dyn Client> = Arc::<Slow>::default();
        let named = |name: &str| Some(json!({ "name": name, "arguments": {} }));
        let stalled: Vec<_> = (0..4)
            .map(|_| {
                let (greedy, client) = (Arc::clone(&greedy), Arc::clone(&client));
                let params = named("stall");
                tokio::spawn(
                    async move { greedy.request(&client, "tools/call", params, WAIT).await },
                )
            })
            .collect();
        // Until all of them have begun, and two wait.
        while !greedy.link.desk.replies.is_waiting() {
            tokio::task::yield_now().await;
        }
        let short = Duration::from_millis(300);
        let error = greedy.request(&client, "tools/call", named("whole"), short).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Crowded { .. }), "{events}: {error:?}");
        let whole = other.request(&client, "tools/call", named("whole"), WAIT).await.unwrap();
        assert!(matches!(whole, Reply::Done(_)));
        stalled.iter().for_each(|call| call.abort());
        for call in stalled {
            let _ = call.await;
        }
        greedy.request(&client, "tools/call", named("whole"), WAIT).await.unwrap();
    }
}
