use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Binding, CALLS, Parked, Round, VALUES};
use crate::exchange::rounds::Rounds;
use crate::exchange::{Asking, Exchange, Hears};

fn exchange() -> Arc<Exchange> {
    let asking = Asking::Rounds(Rounds::new(Map::new()));
    Exchange::new(crate::Party::Unknown, Arc::default(), asking, Hears::All, true)
}

fn binding(params: &Value) -> Binding {
    Binding::new(Some("anna".into()), "tools/call", Some(params))
}

fn state(parked: &Parked, exchange: &Arc<Exchange>, values: usize) -> String {
    let answer = parked.park(exchange, &binding(&json!({})), values, Map::new()).unwrap();
    answer["requestState"].as_str().unwrap().to_owned()
}

#[test]
fn a_binding_is_of_values_and_not_of_their_spelling() {
    let one = json!({ "name": "t", "arguments": { "a": 1, "b": [true, null, "x"] }, "_meta": 1 });
    let same = json!({ "_meta": { "other": 2 }, "arguments": { "b": [true, null, "x"], "a": 1 }, "name": "t" });
    assert_eq!(binding(&one), binding(&same));
    for other in [
        json!({ "name": "t", "arguments": { "a": "1", "b": [true, null, "x"] } }),
        json!({ "name": "t", "arguments": { "a": 1.0, "b": [true, null, "x"] } }),
        json!({ "name": "t", "arguments": { "a": 1, "b": [true, "x", null] } }),
        json!({ "name": "t", "arguments": { "a": 1, "b": [true, null, "x", {}] } }),
        json!({ "name": "t", "arguments": { "a": 1, "b": [true, null, "x"], "_meta": 1 } }),
        json!({ "name": "t" }),
    ] {
        assert_ne!(binding(&one), binding(&other), "{other}");
    }
    // Two numbers that a double cannot tell apart.
    let big = |n: u64| binding(&json!({ "n": n }));
    assert_ne!(big(9_007_199_254_740_993), big(9_007_199_254_740_992));
    assert_ne!(binding(&one), Binding::new(Some("bert".into()), "tools/call", Some(&one)));
    assert_ne!(binding(&one), Binding::new(None, "tools/call", Some(&one)));
    assert_ne!(binding(&one), Binding::new(Some("anna".into()), "prompts/get", Some(&one)));
}

#[test]
fn the_oldest_is_given_up_when_too_many_wait() {
    let parked = Parked::default();
    let calls: Vec<_> = (0..=CALLS).map(|_| exchange()).collect();
    let states: Vec<_> = calls.iter().map(|call| state(&parked, call, 1)).collect();
    assert!(calls[0].is_cancelled());
    assert!(calls[1..].iter().all(|call| !call.is_cancelled()));
    let resume = |state: &str| parked.resume(state, &binding(&json!({})), Map::new());
    assert!(resume(&states[0]).is_err());
    assert!(Arc::ptr_eq(&resume(&states[1]).unwrap(), &calls[1]));
    assert!(resume(&states[1]).is_err());
    parked.forget(&calls[2]);
    assert!(resume(&states[2]).is_err());
    parked.end();
    assert!(calls[3..].iter().all(|call| call.is_cancelled()));
}

#[test]
fn large_requests_push_one_another_out() {
    let parked = Parked::default();
    let calls: Vec<_> = (0..4).map(|_| exchange()).collect();
    for call in &calls {
        state(&parked, call, VALUES / 2);
    }
    let given_up: Vec<_> = calls.iter().map(|call| call.is_cancelled()).collect();
    assert_eq!(given_up, [true, true, false, false]);
}

#[test]
fn what_belongs_to_the_rounds_is_taken_out() {
    let mut params = Some(json!({
        "name": "t", "inputResponses": { "a": 1 }, "requestState": "s", "arguments": {},
    }));
    let round = Round::take(&mut params).unwrap();
    assert_eq!((round.responses["a"].clone(), round.state.as_deref()), (json!(1), Some("s")));
    assert_eq!(params, Some(json!({ "name": "t", "arguments": {} })));
    assert!(Round::take(&mut None).unwrap().state.is_none());
    for wrong in [json!({ "inputResponses": [] }), json!({ "requestState": {} })] {
        assert!(Round::take(&mut Some(wrong)).is_err());
    }
}
