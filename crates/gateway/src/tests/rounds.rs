//! Questions of a server that a request waits for.

use std::sync::Arc;

use ringfence_mcp::{Answer, Boxed, Client, RpcError, Wants};
use serde_json::{Value, json};
use tokio::sync::Barrier;

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
    let world = super::world::World::new();
    for key in ["inputResponses", "requestState", "INPUTRESPONSES", "requeststate"] {
        let params = json!({"name": "echo", "arguments": {}, key: {}});
        let error = world.request("tools/call", params).await.unwrap_err();
        assert_eq!(super::world::check_of(&error), "arguments", "{key}");
    }
    world.call("echo", json!({})).await.unwrap();
    assert_eq!(world.reached(), ["echo"]);
}
