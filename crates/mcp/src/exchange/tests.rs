use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::able::{fits, lack};
use super::{Asking, Driver, Exchange, Hears, Next};
use crate::{Client, Party, Revision};

fn quiet(hears: Hears) -> Arc<Exchange> {
    Exchange::new(Party::Unknown, Arc::default(), Asking::No, hears, true)
}

async fn next(exchange: &Exchange, reader: u64) -> Next {
    poll_fn(|cx| exchange.poll_next(reader, cx)).await
}

#[test]
fn a_client_is_asked_what_it_has_declared() {
    let can = |declared: Value, method: &str, params: Value| {
        lack(&declared, method, Some(&params)).is_none()
    };
    let all = json!({ "sampling": {}, "elicitation": {}, "roots": {} });
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        assert!(can(all.clone(), method, json!({})), "{method}");
        assert!(!can(json!({}), method, json!({})), "{method}");
        assert!(!can(json!({ "sampling": true, "roots": null }), method, json!({})), "{method}");
    }
    let tools = json!({ "tools": [] });
    assert!(!can(all.clone(), "sampling/createMessage", tools.clone()));
    assert!(can(json!({ "sampling": { "tools": {} } }), "sampling/createMessage", tools));
    let url = json!({ "mode": "url" });
    assert!(!can(all.clone(), "elicitation/create", url.clone()));
    let only_url = json!({ "elicitation": { "url": {} } });
    assert!(can(only_url.clone(), "elicitation/create", url));
    assert!(!can(only_url, "elicitation/create", json!({})));
    assert!(!can(all, "tools/call", json!({})));
}

#[test]
fn answers_have_a_form() {
    let (sampling, form, roots) = ("sampling/createMessage", "elicitation/create", "roots/list");
    let said = json!({ "role": "assistant", "model": "m", "content": { "type": "text" } });
    assert!(fits(sampling, &said));
    assert!(fits(form, &json!({ "action": "accept", "content": {} })));
    assert!(fits(form, &json!({ "action": "decline" })));
    assert!(fits(roots, &json!({ "roots": [{ "uri": "file:///a" }] })));
    assert!(!fits(sampling, &json!({ "role": "assistant", "model": "m" })));
    assert!(!fits(form, &json!({ "action": "accept", "content": 1 })));
    assert!(!fits(form, &json!({ "action": "ACCEPT" })));
    assert!(!fits(form, &json!(1)));
    assert!(!fits(roots, &json!({ "roots": [{}] })));
}

#[tokio::test]
async fn log_messages_are_heard_from_the_level_on_that_was_asked_for() {
    let heard = async |level: Option<&str>| {
        let meta = level.map(|level| json!({ "io.modelcontextprotocol/logLevel": level }));
        let params = json!({ "_meta": meta.unwrap_or_else(|| json!({})) });
        let exchange = quiet(Hears::of_request(&Revision::STATELESS, Some(&params)));
        for level in ["debug", "warning", "alert"] {
            exchange.notify("notifications/message", Some(json!({ "level": level }))).await;
        }
        exchange.notify("notifications/progress", None).await;
        let mut count = 0;
        while let Next::Message(text) = next(&exchange, 0).await {
            count += 1;
            if text.windows(8).any(|w| w == b"progress") {
                break;
            }
        }
        count
    };
    assert_eq!(heard(None).await, 1);
    assert_eq!(heard(Some("debug")).await, 4);
    assert_eq!(heard(Some("error")).await, 2);
    assert_eq!(heard(Some("loud")).await, 1);
}

#[tokio::test(start_paused = true)]
async fn work_ends_when_nobody_reads_for_long() {
    let work = || {
        let exchange = quiet(Hears::All);
        let driver = Driver::new(Box::pin(std::future::pending()), Arc::clone(&exchange));
        (exchange, tokio::spawn(driver.run()))
    };
    let wait = Duration::from_secs(30);
    let (exchange, running) = work();
    exchange.detach(0, wait);
    tokio::time::sleep(wait / 2).await;
    let reader = exchange.attach();
    tokio::time::sleep(wait * 10).await;
    assert!(!running.is_finished());
    // One who was taken over from says nothing.
    exchange.detach(0, Duration::ZERO);
    tokio::time::sleep(wait).await;
    assert!(!running.is_finished());
    assert!(matches!(tokio::time::timeout(wait, next(&exchange, 0)).await, Ok(Next::Over)));
    exchange.detach(reader, wait);
    running.await.unwrap();
    let (exchange, running) = work();
    exchange.cancel();
    assert!(matches!(next(&exchange, 0).await, Next::Done(Err(_))));
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn little_is_kept_for_one_who_is_away_and_all_waits_for_one_who_reads() {
    let exchange = quiet(Hears::All);
    let say = async |exchange: &Exchange| {
        let said = exchange.notify("n", Some(json!({ "pad": "x".repeat(1000) })));
        tokio::time::timeout(Duration::from_secs(1), said).await.is_ok()
    };
    for _ in 0..32 {
        assert!(say(&exchange).await);
    }
    assert!(!say(&exchange).await);
    let away = quiet(Hears::All);
    away.detach(0, Duration::from_secs(1000));
    for _ in 0..1000 {
        assert!(say(&away).await);
    }
    let reader = away.attach();
    let mut kept = 0;
    while let Ok(Next::Message(_)) =
        tokio::time::timeout(Duration::from_secs(1), next(&away, reader)).await
    {
        kept += 1;
    }
    assert!((10..=16).contains(&kept), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn questions_that_come_one_by_one_are_in_one_result_and_those_with_keys_are_at_once() {
    let rounds = || Asking::Rounds(super::rounds::Rounds::new(serde_json::Map::new()));
    let able = Arc::new(json!({ "roots": {} }));
    let exchange = || Exchange::new(Party::Unknown, Arc::clone(&able), rounds(), Hears::All, true);
    let keys = async |exchange: &Arc<Exchange>| match next(exchange, 0).await {
        Next::Round(requests) => requests.keys().cloned().collect::<Vec<_>>(),
        _ => panic!("no round"),
    };
    let begun = tokio::time::Instant::now();
    // A server with a handshake: one request, and a moment later another.
    let one_by_one = exchange();
    let asks = Arc::clone(&one_by_one);
    let work = async move {
        let later = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            asks.ask("roots/list", None).await
        };
        let (first, second) = tokio::join!(asks.ask("roots/list", None), later);
        Ok(json!([first.unwrap(), second.unwrap()]))
    };
    let driver = Driver::new(Box::pin(work), Arc::clone(&one_by_one));
    let running = tokio::spawn(driver.run());
    assert_eq!(keys(&one_by_one).await, ["question-1", "question-2"]);
    assert_eq!(begun.elapsed(), Duration::from_millis(100));
    // Each answer goes to its own question; what was told once is not told again.
    let root = |name: &str| json!({ "roots": [{ "uri": name }] });
    let answers =
        [("question-2", root("b:")), ("question-1", root("a:")), ("question-3", json!({}))];
    let answers = answers.map(|(key, answer)| (key.to_owned(), answer));
    one_by_one.rounds().unwrap().answer(answers.into_iter().collect());
    match next(&one_by_one, 0).await {
        Next::Done(Ok(said)) => assert_eq!(said, json!([root("a:"), root("b:")])),
        _ => panic!("it is not done"),
    }
    running.await.unwrap();
    // A server that names its questions has asked all of them: nothing is waited for.
    let (named, begun) = (exchange(), tokio::time::Instant::now());
    let asks = Arc::clone(&named);
    let work = async move {
        let (one, two) = tokio::join!(
            asks.ask_as("one", "roots/list", None),
            asks.ask_as("two", "roots/list", None)
        );
        Ok(json!([one.unwrap(), two.unwrap()]))
    };
    let running = tokio::spawn(Driver::new(Box::pin(work), Arc::clone(&named)).run());
    assert_eq!(keys(&named).await, ["one", "two"]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    named.cancel();
    assert!(matches!(next(&named, 0).await, Next::Done(Err(_))));
    running.await.unwrap();
}
