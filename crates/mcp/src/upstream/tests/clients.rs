//! Several clients of one server over stdio: whose is what it asks and says without naming a request?

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::pipes::{Server, ask, connected};
use super::stage::{able, note, of, question, stateless_of};
use crate::upstream::{Opening, Upstream, UpstreamError};
use crate::{Client, Nobody, Party, Wanted};

/// Who was asked for its roots; `None` when the server was refused.
async fn asked(server: &mut Server, id: u64) -> Option<String> {
    server.say(question(id, "roots/list", json!({}))).await;
    let answer = server.next().await;
    assert_eq!(answer["id"], id);
    answer["result"]["of"].as_str().map(str::to_owned)
}

/// A call that the server has read.
async fn call(
    upstream: &Arc<Upstream>,
    server: &mut Server,
    client: &Arc<dyn Client>,
) -> (super::pipes::Asked, Value) {
    let call = ask(upstream, client, None);
    (call, server.next().await)
}

async fn answered(server: &mut Server, (call, sent): (super::pipes::Asked, Value)) {
    server.answer(&sent, json!({})).await;
    assert!(call.await.unwrap().is_ok());
}

const ONE: Option<&str> = Some("one");

#[tokio::test(start_paused = true)]
async fn a_late_question_reaches_no_other_client() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let ((anna, _), (bert, _)) = (of("anna", ONE), of("bert", Some("two")));
    // The control: who calls alone is asked, in each session anew.
    let first = call(&upstream, &mut server, &anna).await;
    assert_eq!(asked(&mut server, 1).await.as_deref(), Some("anna"));
    answered(&mut server, first).await;
    let (again, _) = of("anna", Some("three"));
    let second = call(&upstream, &mut server, &again).await;
    assert_eq!(asked(&mut server, 2).await.as_deref(), Some("anna"));
    answered(&mut server, second).await;
    // Her calls have ended, and another client's is under way: what comes now may be about hers.
    let third = call(&upstream, &mut server, &bert).await;
    assert_eq!(asked(&mut server, 3).await, None);
    answered(&mut server, third).await;
    // Once the server has had its time, it is his.
    tokio::time::advance(Duration::from_secs(61)).await;
    let third = call(&upstream, &mut server, &bert).await;
    assert_eq!(asked(&mut server, 4).await.as_deref(), Some("bert"));
    answered(&mut server, third).await;
    // Nothing is under way: who listens alone is not asked what a call of another may have left.
    let wanted = Wanted { rest: true, ..Wanted::default() };
    let listening = upstream.listen(&anna, wanted).await.unwrap();
    let passing = tokio::spawn(listening.passing);
    assert_eq!(asked(&mut server, 5).await, None);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(asked(&mut server, 6).await.as_deref(), Some("anna"));
    passing.abort();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_is_remembered_for_as_long_as_a_call_may_take() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let ((anna, _), (bert, _)) = (of("anna", ONE), of("bert", ONE));
    let (given_up, _) = call(&upstream, &mut server, &anna).await;
    given_up.abort();
    assert_eq!(server.next().await["method"], "notifications/cancelled");
    for minutes in [0, 2, 57] {
        tokio::time::advance(Duration::from_secs(60 * minutes)).await;
        let his = call(&upstream, &mut server, &bert).await;
        assert_eq!(asked(&mut server, minutes).await, None, "after {minutes} minutes more");
        answered(&mut server, his).await;
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    let his = call(&upstream, &mut server, &bert).await;
    assert_eq!(asked(&mut server, 61).await.as_deref(), Some("bert"));
    answered(&mut server, his).await;
}

#[tokio::test]
async fn of_two_clients_with_calls_under_way_neither_is_asked() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let ((anna, mut to_anna), (bert, mut to_bert)) = (of("anna", ONE), of("bert", ONE));
    let first = call(&upstream, &mut server, &anna).await;
    // Two of one session lead to one client.
    let second = call(&upstream, &mut server, &anna).await;
    assert_eq!(asked(&mut server, 1).await.as_deref(), Some("anna"));
    answered(&mut server, second).await;
    server.say(note("notifications/message", json!({ "data": 1 }))).await;
    let third = call(&upstream, &mut server, &bert).await;
    assert_eq!(asked(&mut server, 2).await, None);
    // What it logs may be about either.
    let unheard = upstream.unheard().notifications;
    server.say(note("notifications/message", json!({ "data": 2 }))).await;
    answered(&mut server, third).await;
    answered(&mut server, first).await;
    let heard = ("notifications/message".to_owned(), json!({ "data": 1 }));
    assert_eq!(to_anna.try_recv().unwrap(), heard);
    assert!(to_anna.try_recv().is_err() && to_bert.try_recv().is_err());
    assert_eq!(upstream.unheard().notifications, unheard + 1);
}

#[tokio::test]
async fn requests_of_the_gateway_s_own_tie_a_question_to_nobody() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let (anna, _) = of("anna", ONE);
    let nobody: Arc<dyn Client> = Arc::new(Nobody);
    let list = {
        let (upstream, nobody) = (Arc::clone(&upstream), Arc::clone(&nobody));
        tokio::spawn(async move {
            upstream.request(&nobody, "tools/list", None, super::WAIT).await.unwrap()
        })
    };
    let listing = server.next().await;
    assert_eq!(asked(&mut server, 1).await, None, "nobody is there");
    let hers = call(&upstream, &mut server, &anna).await;
    assert_eq!(asked(&mut server, 2).await.as_deref(), Some("anna"));
    server.answer(&listing, json!({ "tools": [] })).await;
    list.await.unwrap();
    assert_eq!(asked(&mut server, 3).await.as_deref(), Some("anna"));
    answered(&mut server, hers).await;
}

#[tokio::test]
async fn what_another_client_has_told_the_server_may_be_what_it_asks_about() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let (anna, _) = of("anna", ONE);
    let told = |of: &str| {
        let party = Party::Caller { principal: Some(of.into()), session: None };
        let upstream = Arc::clone(&upstream);
        async move { upstream.tell(&party, "notifications/roots/list_changed", None).await.unwrap() }
    };
    let _hers = call(&upstream, &mut server, &anna).await;
    told("anna").await;
    server.next().await;
    assert_eq!(asked(&mut server, 1).await.as_deref(), Some("anna"));
    told("bert").await;
    server.next().await;
    assert_eq!(asked(&mut server, 2).await, None);
}

/// A client of the stateless revision for one of its calls. Its answer names the call, and comes when
/// it is let.
fn slow(principal: &str, call: &'static str) -> (Arc<dyn Client>, Arc<tokio::sync::Semaphore>) {
    let lets = Arc::new(tokio::sync::Semaphore::new(0));
    let waits = Arc::clone(&lets);
    let client = stateless_of(principal, able(), move |_, params| {
        let waits = Arc::clone(&waits);
        Box::pin(async move {
            waits.acquire().await.unwrap().forget();
            Ok(json!({ "for": call, "with": params }))
        })
    });
    (client, lets)
}

#[tokio::test]
async fn of_the_calls_of_a_stateless_client_the_one_that_waits_for_nothing_is_asked() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let ((first, lets_first), (second, lets_second)) = (slow("anna", "1"), slow("anna", "2"));
    let one = call(&upstream, &mut server, &first).await;
    server.say(question(1, "roots/list", json!({ "n": 1 }))).await;
    // Its client thinks, and makes another call meanwhile: what is asked now is about that.
    let two = call(&upstream, &mut server, &second).await;
    server.say(question(2, "roots/list", json!({ "n": 2 }))).await;
    // Both wait: the newest.
    server.say(question(3, "roots/list", json!({ "n": 3 }))).await;
    lets_second.add_permits(2);
    let mut answers = [server.next().await, server.next().await];
    answers.sort_by_key(|answer| answer["id"].as_i64());
    for (answer, n) in answers.iter().zip([2, 3]) {
        assert_eq!(answer["id"], n);
        assert_eq!(answer["result"], json!({ "for": "2", "with": { "n": n } }));
    }
    // The first goes on.
    lets_first.add_permits(1);
    let answer = server.next().await;
    assert_eq!(answer["result"], json!({ "for": "1", "with": { "n": 1 } }));
    // Neither waits: it may be about either, and goes to none.
    assert_eq!(asked(&mut server, 4).await, None);
    // Nor does it go to one of them while another client has a call under way.
    let (other, lets_other) = slow("bert", "3");
    let three = call(&upstream, &mut server, &other).await;
    answered(&mut server, two).await;
    lets_other.add_permits(1);
    lets_first.add_permits(1);
    assert_eq!(asked(&mut server, 5).await, None);
    answered(&mut server, one).await;
    answered(&mut server, three).await;
}

#[tokio::test]
async fn a_stateless_client_is_told_which_capability_a_call_failed_for() {
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let bare = stateless_of("anna", json!({}), |_, _| panic!("it is not asked"));
    let fails = async |server: &mut Server, client: &Arc<dyn Client>, with: Option<Value>| {
        let (call, sent) = call(&upstream, server, client).await;
        server.say(question(1, "sampling/createMessage", json!({}))).await;
        let told = server.next().await["error"].clone();
        assert_eq!(told["code"], -32601, "{told}");
        let error = with.unwrap_or(told);
        server.say(json!({ "jsonrpc": "2.0", "id": sent["id"], "error": error })).await;
        match call.await.unwrap() {
            Err(UpstreamError::Rpc(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let error = fails(&mut server, &bare, None).await;
    assert_eq!(error.code, -32021);
    assert_eq!(error.data, Some(json!({ "requiredCapabilities": { "sampling": {} } })));
    // What the server says itself it has said.
    let own = json!({ "code": -32050, "message": "no" });
    assert_eq!(fails(&mut server, &bare, Some(own)).await.code, -32050);
    // A client with a session hears what the server was told.
    let mute = super::stage::in_session("anna", "one", json!({}));
    assert_eq!(fails(&mut server, &mute, None).await.code, -32601);
}

#[tokio::test]
async fn one_client_cannot_take_every_place_to_listen() {
    let (upstream, _server) = connected(Opening::Handshake).await;
    let listen = async |who: &str, session: usize| {
        let (client, _) = of(who, Some(&session.to_string()));
        upstream.listen(&client, Wanted { rest: true, ..Wanted::default() }).await
    };
    let mut open = Vec::new();
    for session in 0..128 {
        open.push(listen("anna", session).await.unwrap());
    }
    let error = listen("anna", 128).await.err().unwrap();
    assert!(error.to_string().contains("of this client"), "{error}");
    let _his = listen("bert", 0).await.unwrap();
    open.pop();
    open.push(listen("anna", 128).await.unwrap());
    assert!(listen("anna", 129).await.is_err());
}

#[tokio::test]
async fn a_large_notification_is_not_multiplied() {
    const CHANGED: &str = "notifications/tools/list_changed";
    const LOG: &str = "notifications/message";
    // A few bytes, and a hundred values.
    let large = || json!({ "pad": vec![1; 100] });
    let (upstream, mut server) = connected(Opening::Handshake).await;
    let mut ears = Vec::new();
    for session in ["1", "2"] {
        let (client, heard) = of("anna", Some(session));
        let wanted = Wanted { tools: true, rest: true, ..Wanted::default() };
        let listening = upstream.listen(&client, wanted).await.unwrap();
        ears.push((heard, tokio::spawn(listening.passing)));
    }
    for (n, method) in [CHANGED, LOG].into_iter().enumerate() {
        let unheard = upstream.unheard().notifications;
        server.say(note(method, large())).await;
        // The control: a small one reaches both, and what was large did not come before it.
        server.say(note(method, json!({ "n": n }))).await;
        for (heard, _) in &mut ears {
            assert_eq!(heard.recv().await.unwrap(), (method.to_owned(), json!({ "n": n })));
        }
        assert_eq!(upstream.unheard().notifications, unheard + 1, "{method}");
    }
    assert!(upstream.take_tools_changed());
    // The list has changed, however large the words.
    server.say(note(CHANGED, large())).await;
    server.say(note(LOG, json!({}))).await;
    for (heard, _) in &mut ears {
        assert_eq!(heard.recv().await.unwrap().0, LOG);
    }
    assert!(upstream.take_tools_changed());
    // What goes to one alone is multiplied by nothing.
    let (_, passing) = ears.pop().unwrap();
    passing.abort();
    let _ = passing.await;
    server.say(note(LOG, large())).await;
    assert_eq!(ears[0].0.recv().await.unwrap(), (LOG.to_owned(), large()));
}
