//! What is set aside for a call, and what becomes of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_record::{Event, Outcome};
use ringfence_spend::{
    Asked, Boxed, Early, Held, Pending, Purse, Reservation, Settled, Usd, Verdict,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::world::{Seats, World, check_of};

/// What became of reservations: `settled <reply>`, `released`; dropped, `given back`, or `spent` where the
/// call went out.
type Log = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
struct Till {
    log: Log,
    asked: Mutex<Vec<Asked>>,
    empty: AtomicBool,
    crossed: AtomicBool,
    /// Where the disk is slow: what is said when a reservation got there, or that it did not.
    disk: Mutex<Option<oneshot::Receiver<Result<(), String>>>>,
}

struct Kept {
    log: Log,
    fate: Option<String>,
    crossed: bool,
    sent: bool,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let dropped = if self.sent { "spent" } else { "given back" };
        self.log.lock().unwrap().push(self.fate.take().unwrap_or_else(|| dropped.into()));
    }
}

impl Held for Kept {
    fn settle<'a>(mut self: Box<Self>, reply: Option<&'a Value>) -> Boxed<'a, Settled> {
        self.fate = Some(match reply {
            None => "settled whole".into(),
            Some(reply) => format!("settled {reply}"),
        });
        assert!(self.sent, "what is settled went out");
        let stop = self.crossed.then(|| "max_per_run_usd is crossed".to_owned());
        let cost = Usd::from_units(if reply.is_some() { 1 } else { 5_000_000 });
        Box::pin(std::future::ready(Settled { cost, stop, warning: None }))
    }
    fn release(mut self: Box<Self>) -> Boxed<'static, ()> {
        self.fate = Some("released".into());
        Box::pin(std::future::ready(()))
    }
    fn sent(&mut self, sent: bool) {
        self.sent = sent;
    }
}

const AMOUNT: Usd = Usd::from_units(5_000_000);

impl Till {
    fn set_aside(&self) -> Reservation {
        let crossed = self.crossed.load(Ordering::SeqCst);
        let kept = Kept { log: Arc::clone(&self.log), fate: None, crossed, sent: false };
        Reservation::new(AMOUNT, "max_per_day_usd: 1.00 left".to_owned(), Box::new(kept))
    }
}

impl Purse for Till {
    fn reserve(&self, asked: Asked) -> Boxed<'_, Verdict> {
        let free = asked.tool == "say";
        assert_ne!(asked.tool, "forbidden", "what is refused is not paid for");
        self.asked.lock().unwrap().push(asked);
        let verdict = if free {
            Verdict::Free { rule: "no price".into() }
        } else if self.empty.load(Ordering::SeqCst) {
            Verdict::Refused { rule: "max_per_day_usd is reached".into(), stop: true }
        } else {
            Verdict::Reserved(self.set_aside())
        };
        Box::pin(std::future::ready(verdict))
    }

    fn reserve_early(&self, asked: Asked) -> Boxed<'_, Early> {
        let Some(disk) = self.disk.lock().unwrap().take() else {
            let verdict = self.reserve(asked);
            return Box::pin(async move { Early::Known(verdict.await) });
        };
        let kept = self.set_aside();
        let durable = Box::pin(async move {
            disk.await.expect("the test says")?;
            Ok(kept)
        });
        let early = Early::Pending(Pending::new(AMOUNT, "1.00 left, soon".into(), durable));
        Box::pin(std::future::ready(early))
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
    assert_eq!(till.log.lock().unwrap().pop().unwrap(), "spent");
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
    assert_eq!(till.log.lock().unwrap().pop().unwrap(), "given back");
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

/// A world whose next reservation is on disk when this is said.
fn slow() -> (Arc<World>, Arc<Till>, oneshot::Sender<Result<(), String>>) {
    let (world, till) = world();
    let (says, disk) = oneshot::channel();
    *till.disk.lock().unwrap() = Some(disk);
    (Arc::new(world), till, says)
}

/// The decision of a call of this tool is in the record.
async fn decided(world: &World) {
    while !world.journal.decisions().iter().any(|(.., check, _)| check == "budget") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_goes_out_when_decision_and_reservation_are_both_on_disk() {
    let (world, till, says) = slow();
    let call = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.call("echo", json!({"n": 1})).await }
    });
    decided(&world).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(world.reached().is_empty() && !call.is_finished(), "the decision alone does not do");
    says.send(Ok(())).unwrap();
    call.await.unwrap().unwrap();
    assert_eq!(world.reached(), ["echo"]);
    assert!(till.log.lock().unwrap().pop().unwrap().starts_with("settled "));
    assert_eq!(costs(&world), [("answered".to_owned(), Some("0.00000001".to_owned()))]);
}

#[tokio::test]
async fn a_reservation_that_does_not_get_to_the_disk_refuses_and_costs_nothing() {
    let (world, till, says) = slow();
    says.send(Err("the disk is full".into())).unwrap();
    let error = world.call("echo", json!({})).await.unwrap_err();
    assert_eq!(check_of(&error), "budget");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(world.reached().is_empty() && costs(&world).is_empty());
    assert_eq!(*till.log.lock().unwrap(), ["given back"]);
    world.call("echo", json!({})).await.expect("control");
}

#[tokio::test]
async fn whoever_leaves_before_it_goes_out_pays_nothing() {
    let (world, till, says) = slow();
    {
        let call = world.call("echo", json!({}));
        tokio::pin!(call);
        tokio::select! {
            done = &mut call => panic!("{done:?}"),
            () = decided(&world) => {}
        }
    }
    assert_eq!(*till.log.lock().unwrap(), ["given back"]);
    assert!(says.send(Ok(())).is_err(), "nobody waits for it any more");
    assert!(world.reached().is_empty() && costs(&world).is_empty());
    // It was allowed, and the record says what became of it.
    let events = world.journal.events.lock().unwrap();
    let cancelled = events.iter().filter(
        |event| matches!(event, Event::CallSettled { result, cost_usd: None, .. } if result == "cancelled"),
    );
    assert_eq!(cancelled.count(), 1);
}

#[tokio::test]
async fn a_decision_that_is_not_written_gives_the_reservation_back() {
    let (world, till) = world();
    world.call("echo", json!({})).await.expect("control");
    till.log.lock().unwrap().clear();
    let (says, disk) = oneshot::channel();
    *till.disk.lock().unwrap() = Some(disk);
    world.journal.full.store(true, Ordering::SeqCst);
    says.send(Ok(())).unwrap();
    world.call("echo", json!({})).await.unwrap_err();
    assert_eq!(*till.log.lock().unwrap(), ["given back"]);
    assert_eq!(world.reached(), ["echo"]);
}

#[tokio::test]
async fn through_every_door_the_tool_that_is_called_is_the_one_that_is_paid() {
    let (world, till) = world();
    let asker = ringfence_mcp::Asker {
        session: None,
        revision: ringfence_mcp::Revision::STATELESS,
        principal: None,
    };
    let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    let selection = || world.gateway.selection(None).unwrap();
    let caller = crate::Caller::agent;
    let doors = [
        (
            crate::transparent(&world.gateway, caller(), super::world::id("s")),
            call("echo", json!({})),
        ),
        (crate::aggregated(&world.gateway, caller(), selection()), call("s__echo", json!({}))),
        (
            crate::compact(&world.gateway, caller(), selection()),
            call("tools_call", call("s__echo", json!({}))),
        ),
    ];
    for (door, params) in doors {
        let nobody = super::world::nobody();
        door.request(&asker, &nobody, "tools/call", Some(params.clone())).await.unwrap();
        let asked = till.asked.lock().unwrap().drain(..).collect::<Vec<_>>();
        let [Asked { server, tool, .. }] = &asked[..] else { panic!("{params}: {asked:?}") };
        assert_eq!((server.as_str(), tool.as_str()), ("s", "echo"), "{params}");
        assert!(till.log.lock().unwrap().pop().unwrap().starts_with("settled "), "{params}");
        // What is no call of a tool has no price.
        let uri = json!({"uri": "file:///x"});
        let _ = door.request(&asker, &nobody, "resources/read", Some(uri)).await;
        let _ = door.request(&asker, &nobody, "tools/list", Some(json!({}))).await;
        assert!(till.asked.lock().unwrap().is_empty());
    }
}
