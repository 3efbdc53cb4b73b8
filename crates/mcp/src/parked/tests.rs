use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ALL, Binding, EACH, Parked, Round, Size};
use crate::exchange::rounds::Rounds;
use crate::exchange::{Asking, Exchange, Hears};

fn exchange() -> Arc<Exchange> {
    let asking = Asking::Rounds(Rounds::new(Map::new()));
    Exchange::new(crate::Party::Unknown, Arc::default(), asking, Hears::All, true)
}

fn binding(params: &Value) -> Binding {
    Binding::new(1, Some("anna".into()), "tools/call", Some(params))
}

/// How much a call holds that is as small as it can be.
const LITTLE: Size = Size { values: 1, bytes: 1 };

fn state(parked: &Parked, exchange: &Arc<Exchange>, size: Size) -> String {
    let answer = parked.park(exchange, &binding(&json!({})), size, Map::new()).unwrap();
    answer["requestState"].as_str().unwrap().to_owned()
}

/// Lets a call of this client wait.
fn park(parked: &Parked, who: &str, size: Size) -> Arc<Exchange> {
    let exchange = exchange();
    let binding = Binding::new(1, Some(who.into()), "tools/call", None);
    let _ = parked.park(&exchange, &binding, size, Map::new());
    exchange
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
    assert_ne!(binding(&one), Binding::new(1, Some("bert".into()), "tools/call", Some(&one)));
    assert_ne!(binding(&one), Binding::new(1, None, "tools/call", Some(&one)));
    assert_ne!(binding(&one), Binding::new(1, Some("anna".into()), "prompts/get", Some(&one)));
}

#[test]
fn the_oldest_is_given_up_when_too_many_wait() {
    let parked = Parked::default();
    let calls: Vec<_> = (0..=EACH.calls).map(|_| exchange()).collect();
    let states: Vec<_> = calls.iter().map(|call| state(&parked, call, LITTLE)).collect();
    assert!(calls[0].is_cancelled());
    assert!(calls[1..].iter().all(|call| !call.is_cancelled()));
    let resume = |state: &str| parked.resume(state, &binding(&json!({})), Map::new());
    assert!(resume(&states[0]).is_err());
    assert!(Arc::ptr_eq(&resume(&states[1]).unwrap().0, &calls[1]));
    assert!(resume(&states[1]).is_err());
    parked.forget(&calls[2]);
    assert!(resume(&states[2]).is_err());
    parked.end(2);
    assert!(!calls[3].is_cancelled(), "that was another door");
    parked.end(1);
    assert!(calls[3..].iter().all(|call| call.is_cancelled()));
}

#[test]
fn large_requests_push_those_of_their_own_client_out() {
    for size in [
        Size { values: EACH.size.values / 2, bytes: 0 },
        Size { values: 0, bytes: EACH.size.bytes / 2 - 2 },
    ] {
        let parked = Parked::default();
        let other = park(&parked, "bert", size);
        let calls: Vec<_> = (0..4).map(|_| park(&parked, "anna", size)).collect();
        let given_up: Vec<_> = calls.iter().map(|call| call.is_cancelled()).collect();
        assert_eq!(given_up, [true, true, false, false], "{size:?}");
        assert!(!other.is_cancelled(), "{size:?}");
    }
}

#[test]
fn the_questions_count_too() {
    let parked = Parked::default();
    let binding = binding(&json!({}));
    let large = || {
        let requests = [("q".to_owned(), json!("x".repeat(EACH.size.bytes / 2)))];
        let exchange = exchange();
        parked.park(&exchange, &binding, LITTLE, requests.into_iter().collect()).unwrap();
        exchange
    };
    let calls = [large(), large()];
    assert!(calls[0].is_cancelled() && !calls[1].is_cancelled());
}

#[test]
fn when_all_room_is_taken_whoever_has_the_most_gives_up() {
    let parked = Parked::default();
    let half = Size { values: 1, bytes: EACH.size.bytes / 2 - 2 };
    // As many as there is room for, each with all that is its own; one of them more than the others.
    let clients = ALL.size.bytes / EACH.size.bytes;
    let calls: Vec<_> = (0..clients)
        .flat_map(|n| [n, n])
        .map(|n| park(&parked, &format!("greedy-{n}"), half))
        .collect();
    assert!(calls.iter().all(|call| !call.is_cancelled()));
    let small = park(&parked, "anna", Size { values: 1, bytes: 1000 });
    assert!(!small.is_cancelled());
    assert_eq!(calls.iter().filter(|call| call.is_cancelled()).count(), 1);
    // However many come, one who has little keeps it.
    for n in 0..4 * clients {
        park(&parked, &format!("greedy-{}", n % clients), half);
    }
    assert!(!small.is_cancelled());
    assert!(parked.lock().all.fits(ALL));
    let (all, used) = {
        let table = parked.lock();
        (table.all, table.used.values().fold(super::Used::default(), |sum, used| sum.and(*used)))
    };
    assert_eq!((all.calls, all.size), (used.calls, used.size));
    parked.end(1);
    assert!(parked.lock().used.is_empty() && small.is_cancelled());
}

#[test]
fn a_state_is_of_its_door() {
    let parked = Parked::default();
    let call = exchange();
    let state = state(&parked, &call, LITTLE);
    let elsewhere = Binding::new(2, Some("anna".into()), "tools/call", Some(&json!({})));
    assert!(parked.resume(&state, &elsewhere, Map::new()).is_err());
    assert!(parked.resume(&state, &binding(&json!({})), Map::new()).is_ok());
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
