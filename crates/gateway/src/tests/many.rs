//! The doors of many servers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_bundle::{ToolPin, ToolPins};
use ringfence_mcp::{Answer, Asker, Backend, Boxed, Client, Revision, RpcError, Wanted};
use ringfence_record::{Event, Outcome};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::world::{World, id, nobody, tool};
use crate::{Caller, Lease, LeaseBook, aggregated, compact};

fn asker(session: Option<&str>) -> Asker {
    let revision = if session.is_some() { Revision::HANDSHAKE } else { Revision::STATELESS };
    Asker { session: session.map(Into::into), revision, principal: None }
}

struct Door(Arc<dyn Backend>, Asker);

impl Door {
    fn aggregated(world: &World, session: Option<&str>) -> Self {
        let selection = world.gateway.selection(None).unwrap();
        Self(aggregated(&world.gateway, Caller::agent(), selection), asker(session))
    }

    fn compact(world: &World, session: Option<&str>) -> Self {
        let selection = world.gateway.selection(None).unwrap();
        Self(compact(&world.gateway, Caller::agent(), selection), asker(session))
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        self.0.request(&self.1, &nobody(), method, Some(params)).await
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<Value, RpcError> {
        self.ask("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    async fn names(&self) -> Vec<String> {
        let page = self.ask("tools/list", json!({})).await.unwrap();
        assert!(page.get("nextCursor").is_none());
        let tools = page["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

const MINE: [&str; 5] = ["echo", "fail", "hang", "pay", "say"];

fn all_of(servers: &[&str]) -> Vec<String> {
    let tools = |server: &&str| MINE.map(|tool| format!("{server}__{tool}"));
    servers.iter().flat_map(tools).collect()
}

#[tokio::test]
async fn one_list_has_the_tools_of_all_servers_that_may_be_called() {
    let world = World::many(&["a", "b-c"], &[], &[]);
    let door = Door::aggregated(&world, None);
    assert_eq!(door.names().await, all_of(&["a", "b-c"]));
    // `_` and the server part where they must, and the message is the server's own.
    let result = door
        .ask("tools/call", json!({"name": "b-c__echo", "arguments": {"x": [1]}, "_meta": {"k": 1}}))
        .await
        .unwrap();
    assert_eq!(result["echo"], json!({"name": "echo", "arguments": {"x": [1]}, "_meta": {"k": 1}}));
    for (name, check) in [
        ("b-c__forbidden", "ruleset"),
        ("b-c__unlisted", "tools"),
        ("b-c__new", "pin"),
        ("c__echo", "toolset"),
        ("echo", "toolset"),
        ("", "toolset"),
    ] {
        let error = door.call(name, json!({})).await.unwrap_err();
        assert_eq!(error.data.unwrap()["ringfence"]["check"], check, "{name}");
        assert_eq!(world.journal.decisions().pop().unwrap().1, Outcome::Refused, "{name}");
    }
    assert_eq!(world.reached(), ["echo"]);
    // Whatever changes is in the next list.
    world.tools.list.lock().unwrap().retain(|tool| tool["name"] != "say");
    world.gateway.look_again(&id("a"));
    assert_eq!(door.names().await.len(), 9);
}

#[tokio::test]
async fn a_server_that_is_down_takes_nothing_away_from_the_others() {
    let pins = ToolPins {
        server: id("pinned"),
        instructions: Some("be kind".into()),
        tools: vec![ToolPin::of(tool("echo", "a tool")).unwrap()],
    };
    let world = World::many(&["down", "pinned"], &[], &[pins]);
    world.pipes.broken.store(true, Ordering::SeqCst);
    let door = Door::aggregated(&world, None);
    assert_eq!(door.names().await, ["pinned__echo"]);
    // Who asks is told that there is more, and what is called of it fails with what is wrong.
    let page = door.ask("tools/list", json!({})).await.unwrap();
    assert_eq!(page["_meta"]["ringfence"]["missing"], json!(["down"]));
    let few = Door::compact(&world, None);
    let found = few.call("tools_search", json!({"query": "echo"})).await.unwrap();
    assert_eq!(found["structuredContent"]["missing"]["missing"], json!(["down"]));
    let words = |error: RpcError| (error.message, error.data.unwrap()["ringfence"].clone());
    let (message, data) = words(door.call("down__echo", json!({})).await.unwrap_err());
    assert!(message.contains("cannot be reached"), "{message}");
    assert_eq!((&data["check"], &data["next"]), (&json!("upstream"), &json!("ringfence report")));
    let through = json!({"name": "down__echo", "arguments": {}});
    let (message, _) = words(few.call("tools_call", through).await.unwrap_err());
    assert!(message.contains("cannot be reached"), "{message}");
    assert!(!message.contains("/home/someone"), "the path is for the record: {message}");
    // The record has why, and a pinned server was not started for a list.
    let failed = world.journal.settled().into_iter().filter(|(_, result, _)| result == "failed");
    assert!(failed.count() >= 1);
    assert!(world.pipes.launches.load(Ordering::SeqCst) >= 1);
    let events = world.journal.events.lock().unwrap().clone();
    assert!(
        events
            .iter()
            .all(|event| !matches!(event, Event::CallDecided { server, .. } if server == "pinned"))
    );
    world.pipes.broken.store(false, Ordering::SeqCst);
    door.call("pinned__echo", json!({})).await.unwrap();
    let hello = door.ask("server/discover", json!({})).await.unwrap();
    let words = hello["instructions"].as_str().unwrap();
    assert!(words.contains("`pinned` says of itself:\n> be kind"), "{words}");
    assert_eq!(hello["capabilities"]["tools"], json!({"listChanged": true}));
    // By the declaration of these servers.
    assert_eq!(hello["capabilities"]["resources"], json!({}));
}

#[tokio::test]
async fn nothing_is_listed_or_found_when_the_bundle_is_no_longer_trusted() {
    let world = World::many(&["a"], &[], &[]);
    let (many, few) = (Door::aggregated(&world, None), Door::compact(&world, None));
    assert!(many.ask("tools/list", json!({})).await.is_ok());
    world.trust.0.store(false, Ordering::SeqCst);
    for refused in [
        many.ask("tools/list", json!({})).await,
        many.ask("initialize", json!({})).await,
        few.call("tools_search", json!({"query": "echo"})).await,
        few.call("tools_describe", json!({"names": ["a__echo"]})).await,
    ] {
        assert_eq!(refused.unwrap_err().data.unwrap()["ringfence"]["check"], "trust");
    }
}

#[tokio::test]
async fn other_methods_pass_only_where_they_are_listed() {
    let world = World::many(&["a", "b"], &[], &[]);
    let door = Door::aggregated(&world, None);
    let read = door.ask("resources/read", json!({"uri": "b+file:///x"})).await.unwrap();
    assert_eq!(read["contents"], json!([]));
    let (method, params) = world.tools.calls.lock().unwrap().pop().unwrap();
    assert_eq!((method.as_str(), params.unwrap()), ("resources/read", json!({"uri": "file:///x"})));
    for (method, params) in [
        ("resources/list", json!({})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "a__p"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "a__p"}})),
        ("tasks/get", json!({})),
        ("resources/read", json!({"uri": "file:///x"})),
    ] {
        let error = door.ask(method, params).await.unwrap_err();
        assert!(error.data.unwrap()["ringfence"]["check"].is_string(), "{method}");
    }
    // Nobody who may be told is running.
    assert_eq!(door.ask("logging/setLevel", json!({"level": "info"})).await.unwrap(), json!({}));
    assert!(world.tools.calls.lock().unwrap().iter().all(|(m, _)| m != "logging/setLevel"));
}

#[tokio::test]
async fn three_tools_find_describe_and_call_all_others() {
    let world = World::many(&["a", "b"], &[], &[]);
    let door = Door::compact(&world, None);
    assert_eq!(door.names().await, ["tools_search", "tools_describe", "tools_call"]);
    let found = door.call("tools_search", json!({"query": "echo", "server": "b"})).await.unwrap();
    let found = &found["structuredContent"];
    assert_eq!((&found["tools"][0]["name"], &found["total"]), (&json!("b__echo"), &json!(1)));
    let all = door.call("tools_search", json!({"query": "", "limit": 50})).await.unwrap();
    assert_eq!(all["structuredContent"]["total"], 10);
    let described = door.call("tools_describe", json!({"names": ["b__echo"]})).await.unwrap();
    assert_eq!(described["structuredContent"]["tools"][0]["x-own"], 1);
    let called =
        door.call("tools_call", json!({"name": "b__echo", "arguments": {"x": 1}})).await.unwrap();
    assert_eq!(called["echo"], json!({"name": "echo", "arguments": {"x": 1}}));
    let bare = door.call("tools_call", json!({"name": "a__echo"})).await.unwrap();
    assert_eq!(bare["echo"], json!({"name": "echo"}));
    for (name, arguments, check) in [
        ("tools_call", json!({"name": "b__forbidden", "arguments": {}}), "ruleset"),
        ("tools_call", json!({"name": "b__echo", "arguments": [], }), "arguments"),
        ("tools_call", json!({"name": "b__echo", "Arguments": {}}), "arguments"),
        ("tools_call", json!({"name": "tools_call", "arguments": {}}), "toolset"),
        ("b__echo", json!({}), "name"),
    ] {
        let error = door.call(name, arguments).await.unwrap_err();
        assert_eq!(error.data.unwrap()["ringfence"]["check"], check, "{name}");
    }
    assert_eq!(world.reached(), ["echo", "echo"]);
    // What may not be called is not found, and not described.
    let none = door.call("tools_search", json!({"query": "forbidden"})).await.unwrap();
    assert_eq!(none["structuredContent"]["total"], 0);
    for (name, arguments) in [
        ("tools_describe", json!({"names": ["b__forbidden"]})),
        ("tools_describe", json!({"names": []})),
        ("tools_search", json!({})),
        ("tools_search", json!({"query": "x", "limit": 0})),
    ] {
        assert_eq!(door.call(name, arguments).await.unwrap()["isError"], true);
    }
    // What a server lists from now on is found from now on.
    world.tools.list.lock().unwrap().retain(|tool| tool["name"] != "echo");
    world.gateway.look_again(&id("b"));
    let found = door.call("tools_search", json!({"query": "echo"})).await.unwrap();
    assert_eq!(found["structuredContent"]["total"], 1);
    assert_eq!(found["structuredContent"]["tools"][0]["name"], "a__echo");
}

#[derive(Default)]
struct Book {
    held: Mutex<Vec<Lease>>,
    full: std::sync::atomic::AtomicBool,
}

impl LeaseBook for Book {
    fn began(&self, lease: &Lease) -> Result<(), String> {
        if self.full.load(Ordering::SeqCst) {
            return Err("the table of leases cannot be written".into());
        }
        self.held.lock().unwrap().push(lease.clone());
        Ok(())
    }
    fn ended(&self, id: u64) {
        self.held.lock().unwrap().retain(|lease| lease.id != id);
    }
}

/// Hears what it is told.
#[derive(Default)]
struct Ear {
    heard: Mutex<Vec<String>>,
    told: Notify,
}

impl Client for Ear {
    fn capabilities(&self) -> &Value {
        &Value::Null
    }
    fn notify<'a>(&'a self, method: &'a str, _params: Option<Value>) -> Boxed<'a, ()> {
        self.heard.lock().unwrap().push(method.to_owned());
        self.told.notify_one();
        Box::pin(std::future::ready(()))
    }
    fn ask<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, Answer> {
        Box::pin(std::future::ready(Err(RpcError::new(-32601, "no"))))
    }
}

#[tokio::test]
async fn a_lease_selects_for_one_connection_and_ends_with_it() {
    let toolsets: [(&str, &[&str]); 2] = [("default", &["a"]), ("other", &["b"])];
    let book = Arc::new(Book::default());
    let world = World::many(&["a", "b", "c"], &toolsets, &[]);
    let world = world.lease_to(Arc::clone(&book) as Arc<dyn LeaseBook>);
    let door = Door::aggregated(&world, Some("one"));
    let second = Door(Arc::clone(&door.0), asker(Some("two")));
    let stateless = Door(Arc::clone(&door.0), asker(None));
    let own = ["ringfence__toolsets", "ringfence__lease", "ringfence__release"];
    let with_own = |servers: &[&str]| {
        own.iter().map(|name| (*name).to_owned()).chain(all_of(servers)).collect::<Vec<_>>()
    };
    assert_eq!(door.names().await, with_own(&["a"]));
    assert_eq!(stateless.names().await, all_of(&["a"]));
    let listed = door.call(own[0], json!({})).await.unwrap();
    assert_eq!(listed["structuredContent"]["toolsets"][0]["selected"], true);

    let lease = json!({"toolset": "other", "task": "x".repeat(500)});
    let ear = Arc::new(Ear::default());
    let client = Arc::clone(&ear) as Arc<dyn Client>;
    let params = json!({"name": own[1], "arguments": lease});
    let leased = door.0.request(&door.1, &client, "tools/call", Some(params)).await.unwrap();
    assert_eq!(leased["structuredContent"]["servers"], json!(["b"]));
    assert_eq!(*ear.heard.lock().unwrap(), ["notifications/tools/list_changed"]);
    assert_eq!(door.names().await, with_own(&["b"]));
    assert_eq!(second.names().await, with_own(&["a"]));
    assert_eq!(book.held.lock().unwrap()[0].task.len(), 200);
    door.call("b__echo", json!({})).await.unwrap();
    for (which, name) in [(&door, "a__echo"), (&second, "b__echo"), (&door, "c__echo")] {
        let error = which.call(name, json!({})).await.unwrap_err();
        assert_eq!(error.data.unwrap()["ringfence"]["check"], "toolset", "{name}");
    }
    // It grants nothing that a rule does not.
    let error = door.call("b__forbidden", json!({})).await.unwrap_err();
    assert_eq!(error.data.unwrap()["ringfence"]["check"], "ruleset");
    // Changes of leases are refused where there is no connection.
    for name in own {
        let error = stateless.call(name, lease.clone()).await.unwrap_err();
        assert_eq!(error.data.unwrap()["ringfence"]["check"], "lease");
    }
    for bad in [json!({"toolset": "none", "task": "x"}), json!({"toolset": "other"}), json!({})] {
        assert_eq!(door.call(own[1], bad).await.unwrap()["isError"], true);
    }
    door.call(own[2], json!({})).await.unwrap();
    assert_eq!(door.names().await, with_own(&["a"]));
    assert!(book.held.lock().unwrap().is_empty());
    assert_eq!(door.call(own[2], json!({})).await.unwrap()["isError"], true);
    // It ends with the connection, and with the door.
    door.call(own[1], lease.clone()).await.unwrap();
    door.0.ended("one");
    assert!(book.held.lock().unwrap().is_empty());
    // Also when nothing carries the connection any more, and not that of another.
    door.call(own[1], lease.clone()).await.unwrap();
    door.0.away("two");
    assert_eq!(door.names().await, with_own(&["b"]));
    door.0.away("one");
    assert!(book.held.lock().unwrap().is_empty());
    assert_eq!(door.names().await, with_own(&["a"]));
    // Should it come back, it is told.
    let ear = Arc::new(Ear::default());
    let client = Arc::clone(&ear) as Arc<dyn Client>;
    let wanted = || Wanted { tools: true, ..Wanted::default() };
    for heard in [1, 1] {
        let listening = door.0.listen(&door.1, &client, wanted()).await.unwrap();
        let passing = tokio::spawn(listening.passing);
        if ear.heard.lock().unwrap().is_empty() {
            ear.told.notified().await;
        }
        tokio::task::yield_now().await;
        passing.abort();
        let _ = passing.await;
        assert_eq!(ear.heard.lock().unwrap().len(), heard);
    }
    second.call(own[1], lease.clone()).await.unwrap();
    assert_eq!(book.held.lock().unwrap().len(), 1);
    // Without the table there is no lease.
    book.full.store(true, Ordering::SeqCst);
    assert_eq!(door.call(own[1], lease).await.unwrap()["isError"], true);
    drop((door, second, stateless));
    assert!(book.held.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_stream_hears_of_a_lease() {
    let toolsets: [(&str, &[&str]); 2] = [("default", &["a"]), ("other", &["b"])];
    let world = World::many(&["a", "b"], &toolsets, &[]);
    let door = Door::compact(&world, Some("one"));
    let ear = Arc::new(Ear::default());
    let client = Arc::clone(&ear) as Arc<dyn Client>;
    let wanted = Wanted { tools: true, prompts: true, ..Wanted::default() };
    let listening = door.0.listen(&door.1, &client, wanted).await.unwrap();
    assert_eq!(listening.granted, Wanted { tools: true, ..Wanted::default() });
    let passing = tokio::spawn(listening.passing);
    // The stream stands once it is polled.
    tokio::task::yield_now().await;
    door.call("ringfence__lease", json!({"toolset": "other", "task": "x"})).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), ear.told.notified()).await.unwrap();
    assert_eq!(*ear.heard.lock().unwrap(), ["notifications/tools/list_changed"]);
    passing.abort();
    let events = world.journal.events.lock().unwrap();
    assert!(events.iter().any(
        |event| matches!(event, Event::CallDecided { method, .. } if method == "subscriptions/listen")
    ));
}

#[tokio::test]
async fn a_server_that_comes_up_later_is_told_how_much_to_log() {
    let server = |name: &str| {
        format!(
            "[servers.{name}]\ntype = \"stdio\"\ncommand = \"unused\"\ntools = [\"echo\"]\nmethods = [\"logging/setLevel\"]\n"
        )
    };
    let manifest = format!("version = 1\n{}{}", server("s"), server("b"));
    let file = std::path::Path::new("ringfence.toml");
    let (manifest, _) = ringfence_bundle::parse_manifest(file, &manifest, None).unwrap();
    let machine = ringfence_policy::MachinePolicy::default();
    let ruleset = ringfence_policy::Ruleset::compile(&machine, &manifest).unwrap();
    let world = World::declared(manifest.servers, Arc::new(ruleset));
    let door = Door::aggregated(&world, Some("one"));
    let other = Door(Arc::clone(&door.0), asker(Some("two")));
    let told = || {
        let calls = world.tools.calls.lock().unwrap();
        let levels = calls.iter().filter(|(method, _)| method == "logging/setLevel");
        levels.map(|(_, params)| params.as_ref().unwrap()["level"].clone()).collect::<Vec<_>>()
    };
    // The control: without a level nobody is told anything.
    other.call("s__echo", json!({})).await.unwrap();
    assert!(told().is_empty());
    world.kill().await;
    assert_eq!(door.ask("logging/setLevel", json!({"level": "debug"})).await.unwrap(), json!({}));
    assert!(told().is_empty(), "nobody is there");
    for _ in 0..2 {
        door.call("s__echo", json!({})).await.unwrap();
        assert_eq!(told(), ["debug"], "once, when it is up");
    }
    // Anew when it is another process, and what it is now.
    assert_eq!(door.ask("logging/setLevel", json!({"level": "error"})).await.unwrap(), json!({}));
    assert_eq!(told(), ["debug", "error"]);
    world.kill().await;
    door.call("s__echo", json!({})).await.unwrap();
    assert_eq!(told(), ["debug", "error", "error"]);
    // Who listens has it told to what another client starts.
    let ear = Arc::new(Ear::default());
    let client = Arc::clone(&ear) as Arc<dyn Client>;
    let wanted = Wanted { rest: true, ..Wanted::default() };
    let listening = door.0.listen(&door.1, &client, wanted).await.unwrap();
    let passing = tokio::spawn(listening.passing);
    other.call("b__echo", json!({})).await.unwrap();
    world.journal.until(|_| told().len() == 4).await;
    passing.abort();
    let _ = passing.await;
    // It ends with the connection, and each is in the record.
    door.0.ended("one");
    door.call("b__echo", json!({})).await.unwrap();
    assert_eq!(told().len(), 4);
    let events = world.journal.events.lock().unwrap();
    let decided = events.iter().filter(|event| {
        matches!(event, Event::CallDecided { method, outcome: Outcome::Allowed, server, .. }
            if method == "logging/setLevel" && server != "ringfence")
    });
    assert_eq!(decided.count(), 4);
}
