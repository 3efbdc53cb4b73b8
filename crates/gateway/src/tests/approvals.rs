//! A call that a rule wants a person's yes for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ringfence_approval::{Approved, Approver, Boxed, OnTimeout, Question, Said};
use ringfence_record::{Event, Outcome};
use serde_json::json;
use tokio::sync::Notify;

use super::world::{Seats, World, check_of, tool};
use crate::Error;

pub(super) type Answer = Box<dyn FnOnce(Question) -> Said + Send>;

/// A person with answers ready. Without one left, it thinks for ever.
#[derive(Default)]
pub(super) struct Person {
    answers: Mutex<VecDeque<Answer>>,
    pub(super) asked: Mutex<Vec<Question>>,
    waits: Notify,
    goes_on: Notify,
    /// Nobody has to say that it goes on.
    at_once: bool,
    withdrawn: AtomicUsize,
}

struct Withdrawn<'a>(&'a Person);
impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.0.withdrawn.fetch_add(1, Ordering::SeqCst);
    }
}

impl Approver for Person {
    fn ask(&self, question: Question) -> Boxed<'_, Said> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(question.clone());
            let open = Withdrawn(self);
            self.waits.notify_one();
            if !self.at_once {
                self.goes_on.notified().await;
            }
            let answer = self.answers.lock().unwrap().pop_front().expect("an answer");
            std::mem::forget(open);
            answer(question)
        })
    }
}

pub(super) fn yes(question: Question) -> Said {
    Said::Approved(Approved::new(question, "anna".into(), "terminal".into(), "q1".into()))
}

pub(super) fn no(_: Question) -> Said {
    let (by, via, id) = ("anna".into(), "terminal".into(), "q2".into());
    Said::Denied { by, via, id, reason: None }
}

impl Person {
    /// Says this, one after the other, at once.
    pub(super) fn saying(answers: Vec<Answer>) -> (Option<Arc<dyn Approver>>, Arc<Self>) {
        let person = Arc::new(Self { at_once: !answers.is_empty(), ..Self::default() });
        *person.answers.lock().unwrap() = answers.into();
        (Some(Arc::clone(&person) as Arc<dyn Approver>), person)
    }
}

/// The person says this, at once.
fn world(answers: Vec<Answer>) -> (World, Arc<Person>) {
    let (approver, person) = Person::saying(answers);
    (World::with_seats(Seats { approver, ..Seats::default() }), person)
}

fn last_step(world: &World) -> (Outcome, String, String) {
    let (_, outcome, check, rule) = world.journal.decisions().pop().unwrap();
    (outcome, check, rule)
}

#[tokio::test]
async fn a_yes_lets_the_call_through_once_and_the_decision_says_whose() {
    let (world, person) = world(vec![Box::new(yes)]);
    // What needs nobody's yes asks nobody.
    world.call("pay", json!({"amount": 1})).await.unwrap();
    assert!(person.asked.lock().unwrap().is_empty());
    world.call("pay", json!({"amount": 2, "to": "é"})).await.unwrap();
    let (outcome, check, rule) = last_step(&world);
    assert_eq!((outcome, check.as_str()), (Outcome::Allowed, "approval"));
    assert!(rule.contains("approved by anna") && rule.contains("[[approvals.require]]"), "{rule}");
    let asked = person.asked.lock().unwrap().pop().unwrap();
    assert_eq!(asked.arguments, r#"{"amount":2,"to":"é"}"#);
    assert_eq!((asked.server.as_str(), asked.tool.as_str()), ("s", "pay"));
    assert_eq!((asked.ruleset.as_str(), asked.caller.as_str()), ("sha256:rules", "agent"));
    assert!(asked.tool_digest.starts_with("sha256:") && asked.server_digest.starts_with("sha256:"));
    assert_eq!(world.reached(), ["pay", "pay"]);
}

#[tokio::test]
async fn whatever_goes_on_beside_the_arguments_is_asked_too_and_in_the_record() {
    let digest = |world: &World| {
        let events = world.journal.events.lock().unwrap();
        events.iter().rev().find_map(|event| match event {
            Event::CallDecided { tool: Some(_), other_params, .. } => Some(other_params.clone()),
            _ => None,
        })
    };
    let beside = json!({
        "_meta": {"progressToken": 7, "x/account": "of another"},
        "task": {"ttl": 60000},
        "unheard": ["of", 1],
    });
    let mut params = json!({"name": "pay", "arguments": {"amount": 2}});
    let (world, person) = world(vec![Box::new(yes), Box::new(yes)]);
    world.request("tools/call", params.clone()).await.unwrap();
    assert_eq!(person.asked.lock().unwrap().pop().unwrap().other_params, "{}", "control");
    assert_eq!(digest(&world), Some(None));
    for (key, value) in beside.as_object().unwrap() {
        params[key] = value.clone();
    }
    let result = world.request("tools/call", params).await.unwrap();
    for key in ["task", "unheard"] {
        assert_eq!(result["echo"][key], beside[key], "control: it goes on");
    }
    assert_eq!(result["echo"]["_meta"]["x/account"], "of another");
    let asked = person.asked.lock().unwrap().pop().unwrap();
    assert_eq!(asked.other_params, beside.to_string());
    let recorded = ringfence_bundle::json_digest(&beside).to_string();
    assert_eq!(digest(&world), Some(Some(recorded)));
    // A yes to the same call without all that is none to this one.
    let without = Question { other_params: "{}".into(), ..asked.clone() };
    let Said::Approved(approved) = yes(without) else { panic!("it is a yes") };
    assert!(approved.spend(&asked).is_err());
}

#[tokio::test]
async fn no_answer_but_a_yes_lets_anything_through() {
    let answers: [(Answer, &str); 5] = [
        (
            Box::new(|_| Said::Denied {
                by: "anna".into(),
                via: "terminal".into(),
                id: "q".into(),
                reason: Some("too much".into()),
            }),
            "denied by anna (terminal, q): too much",
        ),
        (
            Box::new(|_| Said::TimedOut { id: "q".into(), then: OnTimeout::Deny }),
            "nobody answered in time",
        ),
        (Box::new(|_| Said::Unasked { reason: "no terminal".into() }), "no terminal"),
        // A yes to something else.
        (
            Box::new(|question| {
                let other = Question { arguments: r#"{"amount":3}"#.into(), ..question };
                yes(other)
            }),
            "no longer what is called",
        ),
        (Box::new(|question| yes(Question { call: question.call + 1, ..question })), "no longer"),
    ];
    for (answer, words) in answers {
        let (world, _person) = world(vec![answer]);
        let error = world.call("pay", json!({"amount": 2})).await.unwrap_err();
        assert_eq!(check_of(&error), "approval");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(last_step(&world).0, Outcome::Refused);
        assert!(world.reached().is_empty() && world.stop.asked().is_none());
        world.call("echo", json!({})).await.unwrap();
    }
}

#[tokio::test]
async fn what_changes_while_a_person_thinks_is_judged_anew() {
    // (what changes, the check that refuses then)
    for change in ["trust", "definition", "gone", "stop"] {
        let (world, person) = world(Vec::new());
        person.answers.lock().unwrap().push_back(Box::new(yes));
        let world = Arc::new(world);
        let call = tokio::spawn({
            let world = Arc::clone(&world);
            async move { world.call("pay", json!({"amount": 2})).await }
        });
        person.waits.notified().await;
        match change {
            "trust" => world.trust.0.store(false, Ordering::SeqCst),
            "stop" => world.stop.now("spending", "the cap was crossed"),
            // Said to nobody: the list is seen anew all the same.
            "definition" => {
                let mut list = world.tools.list.lock().unwrap();
                let pay = list.iter_mut().find(|tool| tool["name"] == "pay").unwrap();
                *pay = tool("pay", "another tool");
            }
            _ => world.tools.list.lock().unwrap().retain(|tool| tool["name"] != "pay"),
        }
        person.goes_on.notify_one();
        let error = call.await.unwrap().unwrap_err();
        let check = match change {
            "trust" => "trust",
            "stop" => "spending",
            _ => "pin",
        };
        assert_eq!(check_of(&error), check, "{change}: {error}");
        assert!(world.reached().is_empty(), "{change}");
    }
}

#[tokio::test]
async fn a_timeout_acts_as_it_is_declared() {
    let timed_out = |then| -> Answer { Box::new(move |_| Said::TimedOut { id: "q".into(), then }) };
    let (world1, _) = world(vec![timed_out(OnTimeout::Proceed)]);
    world1.call("pay", json!({"amount": 2})).await.unwrap();
    assert!(last_step(&world1).2.contains("on_timeout is proceed"));
    let (world2, _) = world(vec![timed_out(OnTimeout::Abort)]);
    let error = world2.call("pay", json!({"amount": 2})).await.unwrap_err();
    assert_eq!(check_of(&error), "approval");
    assert_eq!(world2.stop.asked().unwrap().limit, "approval");
    let error = world2.call("echo", json!({})).await.unwrap_err();
    assert_eq!(check_of(&error), "approval");
    assert!(error.to_string().contains("being stopped"), "{error}");
    assert!(world2.reached().is_empty());
}

#[tokio::test]
async fn a_caller_that_goes_away_withdraws_its_question() {
    let (world, person) = world(Vec::new());
    {
        let call = world.call("pay", json!({"amount": 2}));
        tokio::pin!(call);
        tokio::select! {
            done = &mut call => panic!("{done:?}"),
            () = person.waits.notified() => {}
        }
    }
    assert_eq!(person.withdrawn.load(Ordering::SeqCst), 1);
    assert!(world.reached().is_empty() && world.journal.decisions().is_empty());
    let error = world.call("unlisted", json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)));
}
