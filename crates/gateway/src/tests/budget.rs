//! What is set aside for a call, and what becomes of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_record::{Event, Outcome};
use ringfence_spend::{Asked, Boxed, Held, Purse, Reservation, Settled, Usd, Verdict};
use serde_json::{Value, json};

use super::world::{Seats, World, check_of};

/// What became of reservations: `settled <reply>`, `released`, `dropped`.
type Log = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
struct Till {
    log: Log,
    empty: AtomicBool,
    crossed: AtomicBool,
}

struct Kept(Log, Option<String>, bool);
impl Drop for Kept {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(self.1.take().unwrap_or_else(|| "dropped".into()));
    }
}

impl Held for Kept {
    fn settle<'a>(mut self: Box<Self>, reply: Option<&'a Value>) -> Boxed<'a, Settled> {
        self.1 = Some(match reply {
            None => "settled whole".into(),
            Some(reply) => format!("settled {reply}"),
        });
        let stop = self.2.then(|| "max_per_run_usd is crossed".to_owned());
        let cost = Usd::from_units(if reply.is_some() { 1 } else { 5_000_000 });
        Box::pin(std::future::ready(Settled { cost, stop, warning: None }))
    }
    fn release(mut self: Box<Self>) -> Boxed<'static, ()> {
        self.1 = Some("released".into());
        Box::pin(std::future::ready(()))
    }
}

impl Purse for Till {
    fn reserve(&self, asked: Asked) -> Boxed<'_, Verdict> {
        let verdict = if asked.tool == "forbidden" {
            panic!("what is refused is not paid for")
        } else if asked.tool == "say" {
            Verdict::Free { rule: "no price".into() }
        } else if self.empty.load(Ordering::SeqCst) {
            Verdict::Refused { rule: "max_per_day_usd is reached".into(), stop: true }
        } else {
            let kept = Kept(Arc::clone(&self.log), None, self.crossed.load(Ordering::SeqCst));
            let rule = "max_per_day_usd: 1.00 left".to_owned();
            Verdict::Reserved(Reservation::new(Usd::from_units(5_000_000), rule, Box::new(kept)))
        };
        Box::pin(std::future::ready(verdict))
    }
}

fn world() -> (World, Arc<Till>) {
    let till = Arc::new(Till::default());
    let purse = Some(Arc::clone(&till) as Arc<dyn Purse>);
    (World::with_seats(Seats { purse, ..Seats::default() }), till)
}

fn costs(world: &World) -> Vec<(String, Option<String>)> {
    let events = world.journal.events.lock().unwrap();
    let settled = events.iter().filter_map(|event| match event {
        Event::CallSettled { result, cost_usd, .. } => Some((result.clone(), cost_usd.clone())),
        _ => None,
    });
    // The listings are the gateway's own.
    settled.filter(|(_, cost)| cost.is_some()).collect()
}

#[tokio::test]
async fn a_reply_settles_what_was_set_aside_and_the_record_has_the_cost() {
    let (world, till) = world();
    world.call("echo", json!({"a": 1})).await.unwrap();
    let settled = till.log.lock().unwrap().pop().unwrap();
    let reply: Value = serde_json::from_str(settled.strip_prefix("settled ").unwrap()).unwrap();
    assert_eq!(reply["result"]["echo"]["arguments"], json!({"a": 1}));
    assert_eq!(costs(&world), [("answered".to_owned(), Some("0.00000001".to_owned()))]);
    let (_, outcome, check, rule) = world.journal.decisions().pop().unwrap();
    assert_eq!((outcome, check.as_str()), (Outcome::Allowed, "budget"));
    assert!(rule.contains("1.00 left"), "{rule}");
    // Free and refused calls set nothing aside.
    world.call("say", json!({})).await.unwrap();
    world.call("forbidden", json!({})).await.unwrap_err();
    assert!(till.log.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_server_s_error_is_a_reply_too() {
    let (world, till) = world();
    world.call("fail", json!({})).await.unwrap_err();
    let settled = till.log.lock().unwrap().pop().unwrap();
    assert!(settled.contains(r#""error":{"code":-32050"#), "{settled}");
}

#[tokio::test]
async fn what_is_not_known_is_spent_whole() {
    let till = Arc::new(Till::default());
    let purse = Some(Arc::clone(&till) as Arc<dyn Purse>);
    let seats = Seats { purse, ..Seats::default() };
    let world = Arc::new(World::with_seats(seats));
    // Nobody waits any more.
    {
        let call = world.call("hang", json!({}));
        tokio::pin!(call);
        tokio::select! {
            done = &mut call => panic!("{done:?}"),
            () = world.tools.hanging.notified() => {}
        }
    }
    assert_eq!(till.log.lock().unwrap().pop().unwrap(), "dropped");
    assert_eq!(costs(&world), [("cancelled".to_owned(), Some("0.05".to_owned()))]);
    // The server dies.
    let call = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.call("hang", json!({})).await }
    });
    world.tools.hanging.notified().await;
    world.kill().await;
    call.await.unwrap().unwrap_err();
    assert_eq!(till.log.lock().unwrap().pop().unwrap(), "settled whole");
}

#[tokio::test]
async fn what_never_reached_a_server_is_given_back() {
    let (world, till) = world();
    world.call("echo", json!({})).await.unwrap();
    till.log.lock().unwrap().clear();
    world.journal.full.store(true, Ordering::SeqCst);
    world.call("echo", json!({})).await.unwrap_err();
    assert_eq!(till.log.lock().unwrap().pop().unwrap(), "released");
    assert_eq!(world.reached(), ["echo"]);
}

#[tokio::test]
async fn the_call_that_crosses_a_cap_is_the_last_one_through() {
    let (world, till) = world();
    till.crossed.store(true, Ordering::SeqCst);
    world.call("echo", json!({"n": 1})).await.unwrap();
    let halt = tokio::time::timeout(Duration::from_secs(5), world.stop.wait()).await.unwrap();
    assert_eq!((halt.limit, halt.detail.as_str()), ("spending", "max_per_run_usd is crossed"));
    for tool in ["echo", "say"] {
        let error = world.call(tool, json!({"n": 2})).await.unwrap_err();
        assert_eq!(check_of(&error), "spending");
    }
    assert_eq!(world.reached(), ["echo"]);
}

#[tokio::test]
async fn an_empty_purse_refuses_and_stops_the_run() {
    let (world, till) = world();
    till.empty.store(true, Ordering::SeqCst);
    let error = world.call("echo", json!({})).await.unwrap_err();
    assert_eq!(check_of(&error), "budget");
    assert!(error.to_string().contains("max_per_day_usd"), "{error}");
    assert_eq!(world.stop.asked().unwrap().limit, "spending");
    assert!(world.reached().is_empty() && till.log.lock().unwrap().is_empty());
}
