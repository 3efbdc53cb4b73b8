//! What clients tell servers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringfence_mcp::{Answer, Asker, Backend, Boxed, Client, Party, Revision};
use ringfence_record::{Event, Outcome};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::world::{World, check_of, id, tool};
use crate::{Caller, aggregated, compact};

const ROOTS: &str = "notifications/roots/list_changed";
const PROGRESS: &str = "notifications/progress";

fn asker(principal: &str, session: &str) -> Asker {
    Asker {
        session: Some(session.into()),
        revision: Revision::HANDSHAKE,
        principal: Some(principal.into()),
    }
}

/// A client that thinks about each question until it is told.
struct Thinks {
    party: Party,
    questions: mpsc::UnboundedSender<Value>,
    done: Notify,
}

fn thinks(asker: &Asker) -> (Arc<Thinks>, mpsc::UnboundedReceiver<Value>) {
    let (questions, asked) = mpsc::unbounded_channel();
    (Arc::new(Thinks { party: asker.into(), questions, done: Notify::new() }), asked)
}

impl Client for Thinks {
    fn capabilities(&self) -> &Value {
        static ABLE: std::sync::LazyLock<Value> =
            std::sync::LazyLock::new(|| json!({"elicitation": {"form": {}}}));
        &ABLE
    }
    fn party(&self) -> Party {
        self.party.clone()
    }
    fn notify<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, ()> {
        Box::pin(std::future::ready(()))
    }
    fn ask<'a>(&'a self, _method: &'a str, params: Option<Value>) -> Boxed<'a, Answer> {
        let _ = self.questions.send(params.unwrap_or_default());
        Box::pin(async move {
            self.done.notified().await;
            Ok(json!({"action": "decline"}))
        })
    }
}

fn refusals(world: &World, method: &str) -> usize {
    let events = world.journal.events.lock().unwrap();
    let refused = events.iter().filter(|event| {
        matches!(event, Event::CallDecided { method: m, outcome: Outcome::Refused, .. } if m == method)
    });
    refused.count()
}

#[tokio::test]
async fn a_notification_is_decided_on_recorded_and_starts_nothing() {
    let world = World::new();
    let one = asker("one", "1");
    let tell = async |method: &str, params: Option<Value>| {
        world.gateway.tell(&Caller::agent(), &(&one).into(), &id("s"), method, params).await
    };
    tell(ROOTS, None).await.unwrap();
    assert_eq!(world.pipes.launches.load(Ordering::SeqCst), 0);
    assert!(world.journal.events.lock().unwrap().is_empty(), "nobody is there to be told");
    world.call("echo", json!({})).await.unwrap();
    tell(ROOTS, Some(json!({"own": 1}))).await.unwrap();
    world.tools.hears.notified().await;
    let told = world.tools.told.lock().unwrap().clone();
    assert_eq!((told[0].1.as_str(), &told[0].2), (ROOTS, &json!({"own": 1})));
    let settled = world.journal.settled().pop().unwrap();
    assert_eq!((settled.1.as_str(), settled.2.as_str()), ("answered", "it was told"));
    // What no client tells a server, spelled in any way.
    for method in [
        "notifications/Roots/list_changed",
        "notifications/elicitation/complete",
        "notifications/message",
        "notifications/initialized",
        "tools/call",
        "",
    ] {
        let error = tell(method, None).await.unwrap_err();
        assert_eq!(check_of(&error), "methods", "{method}");
        assert_eq!(refusals(&world, method), 1, "{method}");
    }
    world.trust.0.store(false, Ordering::SeqCst);
    assert_eq!(check_of(&tell(ROOTS, None).await.unwrap_err()), "trust");
    assert_eq!(world.tools.told.lock().unwrap().len(), 1);
}

async fn progress_goes_to_who_asked(world: World, door: Arc<dyn Backend>, call: Value) {
    *world.tools.list.lock().unwrap() = vec![tool("new", "asks first"), tool("echo", "a tool")];
    let (one, two) = (asker("one", "1"), asker("two", "2"));
    // Both servers are up.
    for server in ["a", "b"] {
        let request = crate::JudgedRequest::from_door(
            "tools/call",
            Some(json!({"name": "echo", "arguments": {}})),
        );
        let nobody = super::world::nobody();
        world.gateway.call(&Caller::agent(), &nobody, &id(server), request).await.unwrap();
    }
    let (person, mut asked) = thinks(&one);
    let calling = {
        let (door, one) = (Arc::clone(&door), one.clone());
        let client = Arc::clone(&person) as Arc<dyn Client>;
        tokio::spawn(async move { door.request(&one, &client, "tools/call", Some(call)).await })
    };
    let question = asked.recv().await.unwrap();
    let token = question["_meta"]["progressToken"].clone();
    let say = async |asker: &Asker, token: &Value| {
        let params = json!({"progressToken": token, "progress": 1, "message": "hers alone"});
        door.notification(asker, PROGRESS, Some(params)).await;
    };
    // Another client's, another session's, and what no server asked under.
    say(&two, &token).await;
    say(&asker("one", "other"), &token).await;
    for other in [json!(999), json!("7"), json!(null)] {
        say(&one, &other).await;
    }
    assert_eq!(refusals(&world, PROGRESS), 5);
    say(&one, &token).await;
    world.tools.hears.notified().await;
    let told = world.tools.told.lock().unwrap().clone();
    let over = world.tools.asked_over.lock().unwrap().clone();
    let said = json!({"progressToken": 7, "progress": 1, "message": "hers alone"});
    assert_eq!(
        told,
        [(over[0].clone(), PROGRESS.to_owned(), said)],
        "one server, by its own token"
    );
    person.done.notify_one();
    assert_eq!(calling.await.unwrap().unwrap()["answer"]["action"], "decline");
    say(&one, &token).await;
    assert_eq!(refusals(&world, PROGRESS), 6, "it is answered");
    assert_eq!(world.tools.told.lock().unwrap().len(), 1);
    // What concerns every server goes to every one.
    door.notification(&one, ROOTS, None).await;
    while world.tools.told.lock().unwrap().len() < 3 {
        world.tools.hears.notified().await;
    }
}

#[tokio::test]
async fn progress_goes_to_the_server_that_asked_and_to_no_other() {
    let world = World::many(&["a", "b"], &[], &[]);
    let selection = world.gateway.selection(None).unwrap();
    let door = aggregated(&world.gateway, Caller::agent(), selection);
    let call = json!({"name": "a__new", "arguments": {"token": 7}});
    progress_goes_to_who_asked(world, door, call).await;
}

#[tokio::test]
async fn progress_through_three_tools_goes_to_the_server_that_asked() {
    let world = World::many(&["a", "b"], &[], &[]);
    let selection = world.gateway.selection(None).unwrap();
    let door = compact(&world.gateway, Caller::agent(), selection);
    let call = json!({"name": "b__new", "arguments": {"token": 7}});
    let call = json!({"name": "tools_call", "arguments": call});
    progress_goes_to_who_asked(world, door, call).await;
}
