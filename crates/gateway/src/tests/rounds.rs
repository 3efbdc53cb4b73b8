//! Questions of a server that a request waits for.

use std::sync::{Arc, Mutex};

use ringfence_bundle::Transport;
use ringfence_mcp::{Answer, Boxed, Client, RpcError, Wants};
use ringfence_record::{Event, Outcome};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::approvals::{Answer as Says, Person as Approves, no, yes};
use super::memory::Memory;
use super::world::{SECRET, Seats, World, check_of, new_tools, tool};

use crate::Error;
use crate::rounds::{ask, words};

/// Answers when it has so many questions at once.
struct Busy(Barrier);

impl Client for Busy {
    fn capabilities(&self) -> &Value {
        &Value::Null
    }
    fn notify<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, ()> {
        Box::pin(std::future::ready(()))
    }
    fn ask<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, Answer> {
        Box::pin(async move {
            self.0.wait().await;
            if method == "roots/list" {
                return Err(RpcError::new(-32601, "no roots"));
            }
            Ok(json!({ "to": params }))
        })
    }
}

fn wants(questions: &[(&str, &str)]) -> Wants {
    let requests = questions
        .iter()
        .map(|(key, method)| ((*key).to_owned(), ((*method).to_owned(), Some(json!({"k": key})))));
    Wants { requests: requests.collect(), state: Some("opaque".into()) }
}

fn client(at_once: usize) -> Arc<dyn Client> {
    Arc::new(Busy(Barrier::new(at_once)))
}

#[tokio::test]
async fn all_questions_of_a_round_are_asked_at_once_and_answered_by_their_keys() {
    let two = wants(&[("a", "elicitation/create"), ("b", "sampling/createMessage")]);
    let answers = ask(&client(2), &two, 1).await.unwrap();
    assert_eq!(answers["b"], json!({"to": {"k": "b"}}));
    let params = json!({"name": "t", "arguments": {"x": 1}, "requestState": "old"});
    let next = two.answered(Some(params), answers);
    assert_eq!(next["requestState"], "opaque");
    assert_eq!(next["inputResponses"]["a"], json!({"to": {"k": "a"}}));
    assert_eq!(next["arguments"], json!({"x": 1}));
    assert!(ask(&client(1), &wants(&[]), 16).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_clients_error_ends_the_call_and_bounds_hold() {
    let error = ask(&client(1), &wants(&[("a", "roots/list")]), 1).await.unwrap_err();
    assert!(matches!(error, Error::Answered(RpcError { code: -32601, .. })), "{error:?}");
    let keys: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    let many: Vec<_> = keys.iter().map(|key| (key.as_str(), "elicitation/create")).collect();
    for (wants, round) in [
        (wants(&many), 1),
        (wants(&[("a", "elicitation/create")]), 17),
        (wants(&[("a", "tools/call")]), 1),
    ] {
        assert!(matches!(ask(&client(1), &wants, round).await, Err(Error::Upstream { .. })));
    }
    assert_eq!(words(&wants(&many)), "it asks for elicitation/create");
}

#[tokio::test]
async fn nobody_answers_what_no_server_asked() {
    let world = World::new();
    for key in ["inputResponses", "requestState", "INPUTRESPONSES", "requeststate"] {
        let params = json!({"name": "echo", "arguments": {}, key: {}});
        let error = world.request("tools/call", params).await.unwrap_err();
        assert_eq!(check_of(&error), "arguments", "{key}");
    }
    world.call("echo", json!({})).await.unwrap();
    assert_eq!(world.reached(), ["echo"]);
}

/// A person who says yes, and remembers what was said.
struct Person {
    capabilities: Value,
    heard: Mutex<Vec<String>>,
}

impl Client for Person {
    fn capabilities(&self) -> &Value {
        &self.capabilities
    }
    fn notify<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, ()> {
        let words = format!("{method} {}", params.unwrap_or_default());
        self.heard.lock().unwrap().push(words);
        Box::pin(std::future::ready(()))
    }
    fn ask<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, Answer> {
        let words = format!("{method} {}", params.unwrap_or_default());
        self.heard.lock().unwrap().push(words);
        // What it answers goes to the server as it is.
        let answer = json!({"action": "accept", "content": {"key": SECRET}});
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn who_answers() -> Arc<Person> {
    let capabilities = json!({"elicitation": {"form": {}}});
    Arc::new(Person { capabilities, heard: Mutex::default() })
}

async fn asks(world: &World) {
    *world.tools.list.lock().unwrap() = vec![tool("new", "asks first"), tool("echo", "a tool")];
    let person = who_answers();
    let client = Arc::clone(&person) as Arc<dyn Client>;
    let params = json!({"name": "new", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let result = world.request_of(&client, "tools/call", params.clone()).await.unwrap();
    // The server had the answer as it was given; what it says of it is scrubbed as all of its words.
    assert_eq!(result["answer"], json!({"action": "accept", "content": {"key": "***"}}));
    let heard = person.heard.lock().unwrap().clone();
    assert!(heard.iter().any(|words| words.contains("may I use ***?")), "{heard:?}");
    let progress = heard.iter().find(|words| words.starts_with("notifications/progress")).unwrap();
    assert!(progress.contains("with ***") && progress.contains("\"mine\""), "{progress}");
    assert!(!heard.concat().contains(SECRET));
    // A client that cannot answer is not asked, and the call fails.
    let mute: Arc<dyn Client> = Arc::new(ringfence_mcp::Nobody);
    assert!(world.request_of(&mute, "tools/call", params).await.is_err());
    world.call("echo", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_question_of_a_server_with_a_handshake_reaches_the_client_behind_the_call() {
    let world = World::new();
    asks(&world).await;
    assert_eq!(decided(&world), 2);
}

#[tokio::test]
async fn each_round_of_a_stateless_server_is_judged_anew() {
    let world = stateless(Seats::default()).await;
    asks(&world).await;
    // Two decisions of the call that was answered, and one of the other.
    assert_eq!(decided(&world), 3);
}

/// A server that asks in its answers, and is asked again.
async fn stateless(seats: Seats) -> World {
    let journal = Arc::<Memory>::default();
    let tools = new_tools(&journal);
    let address = super::servers::serve_tools(Arc::clone(&tools)).await;
    let url = format!("http://{address}/s/mcp");
    let key = ringfence_bundle::Template::parse("Bearer ${KEY}").unwrap();
    let headers = [("Authorization".to_owned(), key)].into();
    let transport = Transport::Http { url, headers };
    World::served(transport, journal, tools, seats)
}

#[tokio::test]
async fn a_round_with_answers_in_it_is_a_question_of_its_own() {
    for agreed in [true, false] {
        let second: Says = if agreed { Box::new(yes) } else { Box::new(no) };
        let (approver, person) = Approves::saying(vec![Box::new(yes), second]);
        let world = stateless(Seats { approver, ..Seats::default() }).await;
        *world.tools.list.lock().unwrap() = vec![tool("new", "asks first")];
        let client = who_answers() as Arc<dyn Client>;
        let params = json!({"name": "new", "arguments": {"ask": true}, "_meta": {"k": "v"}});
        let result = world.request_of(&client, "tools/call", params).await;
        let asked = person.asked.lock().unwrap();
        let [first, next] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(first.other_params, r#"{"_meta":{"k":"v"}}"#);
        let beside: Value = serde_json::from_str(&next.other_params).unwrap();
        let answers = beside["inputResponses"].as_object().unwrap();
        assert_eq!(answers.values().next().unwrap()["content"]["key"], SECRET, "{beside}");
        assert!(beside.get("requestState").is_none(), "what the server gave itself back");
        let but = ringfence_approval::Question {
            other_params: first.other_params.clone(),
            ..next.clone()
        };
        assert_eq!(&but, first, "nothing else is new");
        if agreed {
            assert_eq!(result.unwrap()["answer"]["action"], "accept");
            assert_eq!(decided(&world), 2);
        } else {
            assert_eq!(check_of(&result.unwrap_err()), "approval");
            assert_eq!(decided(&world), 1, "the answers did not go on");
        }
    }
}

#[tokio::test]
async fn the_same_answer_to_another_question_is_asked_about_again() {
    for agreed in [true, false] {
        let third: Says = if agreed { Box::new(yes) } else { Box::new(no) };
        let (approver, person) = Approves::saying(vec![Box::new(yes), Box::new(yes), third]);
        let world = stateless(Seats { approver, ..Seats::default() }).await;
        *world.tools.list.lock().unwrap() = vec![tool("new", "asks twice")];
        let client = who_answers() as Arc<dyn Client>;
        let params = json!({"name": "new", "arguments": {"ask": true, "twice": true}});
        let result = world.request_of(&client, "tools/call", params).await;
        let asked = person.asked.lock().unwrap();
        let [first, this, that] = &asked[..] else { panic!("{asked:?}") };
        assert_ne!(first, this);
        assert_eq!(this, that, "the same answer under the same key");
        if agreed {
            assert_eq!(result.unwrap()["answered"], true);
        } else {
            assert_eq!(check_of(&result.unwrap_err()), "approval");
        }
    }
}

/// Decisions that let a call of the tool that asks through.
fn decided(world: &World) -> usize {
    let events = world.journal.events.lock().unwrap();
    let asked = events.iter().filter(|event| {
        matches!(event, Event::CallDecided { tool: Some(tool), outcome: Outcome::Allowed, .. }
            if tool == "new")
    });
    asked.count()
}
