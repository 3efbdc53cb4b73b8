//! What a server says and asks over stdio, where everything comes through one pipe.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio::sync::Notify;

use super::stage::{able, answering, ear, note, question, result};
use super::{WAIT, add, plain, stdio};
use crate::upstream::{Opening, Reply, Upstream, UpstreamError};
use crate::{Client, Wanted};

/// The server's side, by hand.
pub(super) struct Server {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

impl Server {
    pub(super) async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(super) async fn say(&mut self, message: Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    pub(super) async fn answer(&mut self, to: &Value, with: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": to["id"], "result": with})).await;
    }
}

pub(super) async fn connected(opening: Opening) -> (Arc<Upstream>, Server) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(theirs);
    let mut server = Server { lines: BufReader::new(read).lines(), write };
    let greeting = async {
        let first = server.next().await;
        if opening == Opening::Handshake {
            let declared = &first["params"]["capabilities"];
            assert!(declared["sampling"].is_object() && declared["roots"].is_object());
            assert!(declared["elicitation"]["form"].is_object());
            assert!(declared["elicitation"]["url"].is_object());
            let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
            server.answer(&first, hello).await;
            assert_eq!(server.next().await["method"], "notifications/initialized");
        } else {
            let hello = json!({"supportedVersions": ["2026-07-28"], "capabilities": {}});
            server.answer(&first, hello).await;
        }
        server
    };
    let (upstream, server) = tokio::join!(stdio(ours, opening), greeting);
    (Arc::new(upstream.unwrap()), server)
}

pub(super) type Asked = tokio::task::JoinHandle<Result<Reply, UpstreamError>>;

pub(super) fn ask(
    upstream: &Arc<Upstream>,
    client: &Arc<dyn Client>,
    token: Option<&str>,
) -> Asked {
    let (upstream, client) = (Arc::clone(upstream), Arc::clone(client));
    let mut params = json!({"name": "t"});
    if let Some(token) = token {
        params["_meta"] = json!({"progressToken": token});
    }
    tokio::spawn(async move { upstream.request(&client, "tools/call", Some(params), WAIT).await })
}

#[tokio::test]
async fn progress_goes_by_its_token_and_the_rest_to_the_only_request() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let (one, mut heard_one) = ear(json!({}));
    let (two, mut heard_two) = ear(json!({}));
    let first = ask(&upstream, &one, Some("same"));
    let first_call = server.next().await;
    server.say(note("notifications/message", json!({"n": 0}))).await;
    let second = ask(&upstream, &two, Some("same"));
    let second_call = server.next().await;
    for (n, call) in [(1, &first_call), (2, &second_call), (3, &first_call)] {
        let token = &call["params"]["_meta"]["progressToken"];
        let progress = json!({"progressToken": token, "progress": n});
        server.say(note("notifications/progress", progress)).await;
    }
    server.say(note("notifications/progress", json!({"progressToken": "same"}))).await;
    // Whose this is cannot be told.
    server.say(note("notifications/message", json!({"n": 4}))).await;
    server.answer(&second_call, json!({"n": 2})).await;
    assert_eq!(second.await.unwrap().unwrap(), Reply::Done(json!({"n": 2})));
    // Nor now, when the server may still speak of the other one.
    server.say(note("notifications/message", json!({"n": 5}))).await;
    server.answer(&first_call, json!({"n": 1})).await;
    assert_eq!(first.await.unwrap().unwrap(), Reply::Done(json!({"n": 1})));
    let progress =
        |n| ("notifications/progress".into(), json!({"progressToken": "same", "progress": n}));
    let message = |n| ("notifications/message".into(), json!({ "n": n }));
    for expected in [message(0), progress(1), progress(3)] {
        assert_eq!(heard_one.try_recv().unwrap(), expected);
    }
    assert_eq!(heard_two.try_recv().unwrap(), progress(2));
    assert!(heard_one.try_recv().is_err() && heard_two.try_recv().is_err());
    assert_eq!(upstream.unheard().notifications, 3);
}

#[tokio::test]
async fn a_question_belongs_to_the_only_request_that_can_answer_it() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let (able, _) = ear(able());
    let (mute, _) = ear(json!({}));
    let first = ask(&upstream, &able, None);
    let first_call = server.next().await;
    server.say(question(1, "sampling/createMessage", json!({"odd": 1}))).await;
    let answer = server.next().await;
    let expected = json!({"asked": "sampling/createMessage", "with": {"odd": 1}});
    assert_eq!((&answer["id"], &answer["result"]), (&json!(1), &expected));
    let second = ask(&upstream, &mute, None);
    let second_call = server.next().await;
    // Of two clients it may be either's, though one alone has declared it.
    server.say(question(2, "roots/list", json!({}))).await;
    let refused = server.next().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32601)));
    server.answer(&second_call, json!({})).await;
    assert!(second.await.unwrap().is_ok());
    // As long as the server may still speak of that call, too.
    server.say(question(3, "roots/list", json!({}))).await;
    assert!(server.next().await["error"].is_object());
    server.answer(&first_call, json!({})).await;
    assert!(first.await.unwrap().is_ok());
    assert_eq!(upstream.unheard().questions, 2);
}

#[tokio::test]
async fn a_question_outside_requests_is_that_of_who_listens_alone() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let (able, _) = ear(able());
    server.say(question(4, "roots/list", json!({}))).await;
    assert!(server.next().await["error"].is_object());
    let wanted = Wanted { rest: true, ..Wanted::default() };
    let listening = upstream.listen(&able, wanted).await.unwrap();
    let passing = tokio::spawn(listening.passing);
    server.say(question(5, "roots/list", json!({}))).await;
    assert!(server.next().await["result"].is_object());
    drop(upstream);
    passing.await.unwrap();
}

#[tokio::test]
async fn a_question_may_be_taken_back_and_ends_with_its_request() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let (asked, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    struct Tell(Arc<Notify>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let (began, ended) = (Arc::clone(&asked), Arc::clone(&dropped));
    let (client, _) = answering(able(), move |_, _| {
        let (began, ended) = (Arc::clone(&began), Tell(Arc::clone(&ended)));
        Box::pin(async move {
            began.notify_one();
            let _ended = ended;
            std::future::pending().await
        })
    });
    let call = ask(&upstream, &client, None);
    let sent = server.next().await;
    server.say(question(1, "roots/list", json!({}))).await;
    asked.notified().await;
    server.say(note("notifications/cancelled", json!({"requestId": 1}))).await;
    dropped.notified().await;
    // Another one, and nobody waits any more for the call.
    server.say(question(2, "roots/list", json!({}))).await;
    asked.notified().await;
    call.abort();
    dropped.notified().await;
    let mut said = [server.next().await, server.next().await];
    said.sort_by_key(|message| message["method"].is_string());
    assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&json!(2), &json!(-32800)));
    assert_eq!(said[1]["method"], "notifications/cancelled");
    assert_eq!(said[1]["params"]["requestId"], sent["id"]);
}

#[tokio::test]
async fn answers_to_nothing_are_counted_and_a_flood_is_left_out() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let never: Arc<dyn Client> = Arc::new(Stuck);
    let call = ask(&upstream, &never, None);
    let sent = server.next().await;
    for _ in 0..1000 {
        server.say(note("notifications/message", json!({"data": "x".repeat(1000)}))).await;
    }
    // The pipe is shared: the flood of one held up nobody.
    let other = {
        let upstream = Arc::clone(&upstream);
        tokio::spawn(async move { plain(&upstream, "tools/call", add(), WAIT).await })
    };
    let second = server.next().await;
    server.answer(&second, json!({"n": 1})).await;
    server.answer(&second, json!({"n": 2})).await;
    server.say(json!({"jsonrpc": "2.0", "id": 999, "result": {}})).await;
    server.say(json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "?"}})).await;
    assert_eq!(other.await.unwrap().unwrap(), json!({"n": 1}));
    server.answer(&sent, json!({})).await;
    let _last = ask(&upstream, &never, None);
    server.next().await;
    let unheard = upstream.unheard();
    assert!((900..1000).contains(&unheard.notifications), "{unheard:?}");
    assert_eq!(unheard.answers, 3);
    call.abort();
}

/// Hears nothing, ever.
struct Stuck;

impl Client for Stuck {
    fn capabilities(&self) -> &Value {
        &Value::Null
    }
    fn notify<'a>(&'a self, _: &'a str, _: Option<Value>) -> crate::Boxed<'a, ()> {
        Box::pin(std::future::pending())
    }
    fn ask<'a>(&'a self, _: &'a str, _: Option<Value>) -> crate::Boxed<'a, crate::Answer> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_server_that_dies_fails_every_call_under_way_at_once() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let (client, _) = ear(json!({}));
    let calls = [ask(&upstream, &client, None), ask(&upstream, &client, None)];
    server.next().await;
    server.next().await;
    let listening = upstream.listen(&client, Wanted { rest: true, ..Wanted::default() }).await;
    drop(server);
    for call in calls {
        let ended = tokio::time::timeout(Duration::from_secs(5), call).await.unwrap();
        let error = ended.unwrap().unwrap_err();
        assert!(error.to_string().contains("closed its output"), "{error}");
    }
    listening.unwrap().passing.await;
    assert!(upstream.is_closed());
}

#[tokio::test]
async fn a_stateless_server_s_subscriptions_are_kept_apart() {
    let (upstream, mut server) = connected(Opening::Stateless).await;
    let key = "io.modelcontextprotocol/subscriptionId";
    let open = |n: usize| {
        let upstream = Arc::clone(&upstream);
        let uris = [format!("{n}:")].into();
        let wanted = Wanted { tools: n == 0, uris, ..Wanted::default() };
        tokio::spawn(async move {
            let (client, heard) = ear(json!({}));
            let listening = upstream.listen(&client, wanted).await.unwrap();
            (listening.granted, tokio::spawn(listening.passing), heard)
        })
    };
    let mut listeners = Vec::new();
    for n in 0..2 {
        let opening = open(n);
        let request = server.next().await;
        assert_eq!(request["method"], "subscriptions/listen");
        let agreed = json!({"_meta": {key: request["id"]}, "notifications": request["params"]["notifications"]});
        server.say(note("notifications/subscriptions/acknowledged", agreed)).await;
        listeners.push((opening.await.unwrap(), request));
    }
    assert!(listeners[0].0.0.tools && !listeners[1].0.0.tools);
    for (n, (_, request)) in listeners.iter().enumerate() {
        let params = json!({"_meta": {key: request["id"]}, "uri": format!("{n}:")});
        server.say(note("notifications/resources/updated", params)).await;
        let params = json!({"_meta": {key: request["id"]}});
        server.say(note("notifications/tools/list_changed", params)).await;
    }
    server.say(note("notifications/tools/list_changed", json!({"_meta": {key: 999}}))).await;
    // A question cannot be answered there.
    server.say(question(1, "ping", json!({}))).await;
    let ((_, second, mut heard), request) = listeners.pop().unwrap();
    let updated = |n| ("notifications/resources/updated".into(), json!({"uri": format!("{n}:")}));
    assert_eq!(heard.recv().await.unwrap(), updated(1));
    // The server ends one, we the other.
    server.say(note("notifications/cancelled", json!({"requestId": request["id"]}))).await;
    second.await.unwrap();
    assert!(heard.recv().await.is_none(), "what it had not asked for it did not hear");
    let ((_, first, mut heard), request) = listeners.pop().unwrap();
    assert_eq!(heard.recv().await.unwrap(), updated(0));
    assert_eq!(heard.recv().await.unwrap().0, "notifications/tools/list_changed");
    first.abort();
    let said = [server.next().await, server.next().await];
    let ended = said.iter().find(|message| message["params"]["requestId"] == request["id"]);
    assert_eq!(ended.unwrap()["method"], "notifications/cancelled");
    assert!(upstream.take_tools_changed());
    assert_eq!(upstream.unheard().questions, 1);
}

#[tokio::test]
async fn a_batch_is_read_message_by_message() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let (client, mut heard) = ear(json!({}));
    let call = ask(&upstream, &client, None);
    let sent = json!({"id": server.next().await["id"]});
    let seen = super::stage::Seen { verb: String::new(), headers: Default::default(), body: sent };
    server
        .say(json!([note("notifications/message", json!({})), result(&seen, json!({"n": 1}))]))
        .await;
    assert_eq!(call.await.unwrap().unwrap(), Reply::Done(json!({"n": 1})));
    assert_eq!(heard.try_recv().unwrap().0, "notifications/message");
}
