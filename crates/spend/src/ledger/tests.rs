use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    Asked, Budget, Cap, Caps, Early, Filter, Kind, Ledger, Price, Purse, Reservation, Settled, Usd,
    Verdict, report,
};
use ringfence_state::State;

pub(super) struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("its mode");
        Self { folder }
    }

    pub(super) fn state(&self) -> State {
        State::open(self.folder.path(), None).expect("no I/O")
    }

    pub(super) fn budget(&self, run: &str, caps: &str, max: Option<&str>) -> Arc<Budget> {
        self.budget_of(&Ledger::new(self.state()), run, caps, max)
    }

    /// Caps are `run day month`, `-` for none.
    pub(super) fn budget_of(
        &self,
        ledger: &Ledger,
        run: &str,
        caps: &str,
        max: Option<&str>,
    ) -> Arc<Budget> {
        let mut amounts = caps.split(' ').map(|text| {
            let amount = Usd::parse(text)?;
            Some(Cap { amount, rule: "cap".to_owned() })
        });
        let caps = Caps {
            per_run: amounts.next().flatten(),
            per_day: amounts.next().flatten(),
            per_month: amounts.next().flatten(),
            warn_at_percent: Some(80),
        };
        let price = Price::new([("result.usage.n", "0.01")], max).expect("a price");
        let prices = [("s".to_owned(), price)];
        Arc::new(Budget::new(ledger.clone(), "did:key:zA", run, caps, prices))
    }

    pub(super) async fn sum(&self, kind: Kind) -> (String, String) {
        let report = report(&self.state(), &Filter::default()).await.expect("reads");
        let mut all = report.sums.into_iter().filter(|sum| sum.kind == kind);
        let sum = all.next().expect("a sum");
        assert!(all.next().is_none());
        (sum.spent_usd.to_string(), sum.reserved_usd.to_string())
    }
}

pub(super) fn asked(call: u64) -> Asked {
    Asked { server: "s".to_owned(), tool: "t".to_owned(), call }
}

pub(super) fn reply(n: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": {"usage": {"n": n}}})
}

pub(super) async fn reserved(budget: &Budget) -> Reservation {
    match budget.reserve(asked(1)).await {
        Verdict::Reserved(reservation) => reservation,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn refused(budget: &Budget) -> (String, bool) {
    match budget.reserve(asked(1)).await {
        Verdict::Refused { rule, stop } => (rule, stop),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn pay(budget: &Budget, n: u64) -> Settled {
    let reply = reply(n);
    reserved(budget).await.settle(Some(&reply)).await
}

#[tokio::test]
async fn without_a_price_or_a_cap_nothing_is_touched() {
    let home = Home::new();
    let budget = home.budget("r", "- - -", None);
    assert!(matches!(budget.reserve(asked(1)).await, Verdict::Free { .. }));
    let budget = home.budget("r", "1 - -", None);
    let other = Asked { server: "other".to_owned(), ..asked(1) };
    assert!(matches!(budget.reserve(other).await, Verdict::Free { .. }));
    assert_eq!(fs::read_dir(home.folder.path()).expect("lists").count(), 0);
    assert!(report(&home.state(), &Filter::default()).await.expect("reads").sums.is_empty());
    let _ = pay(&budget, 1).await;
    assert!(home.folder.path().join("state.db").exists());
}

#[tokio::test]
async fn the_call_that_crosses_the_cap_is_the_last_one_through() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let budget = home.budget_of(&ledger, "r", "0.10 - -", Some("0.05"));
    let settled = pay(&budget, 4).await;
    assert_eq!(
        (settled.cost.to_string().as_str(), settled.stop, settled.warning),
        ("0.04", None, None)
    );
    let settled = pay(&budget, 4).await;
    assert_eq!(settled.stop, None);
    assert!(settled.warning.expect("80% are used").contains("80%"));
    let settled = pay(&budget, 5).await;
    assert!(settled.stop.expect("crossed").contains("0.10: 0.13 spent"));
    assert_eq!(settled.warning, None, "once");
    let (rule, stop) = refused(&budget).await;
    assert!(stop && rule.contains("0.13 spent"), "{rule}");
    ledger.flush().await;
    assert_eq!(home.sum(Kind::Day).await, ("0.13".into(), "0.00".into()));
}

#[tokio::test]
async fn runs_of_one_process_have_one_budget_whoever_they_are_for() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let caps = |amount| Caps {
        per_run: Some(Cap { amount: Usd::parse(amount).expect("USD"), rule: "cap".to_owned() }),
        ..Caps::default()
    };
    let budget = |who: &str, run: &str, amount| {
        let price = Price::new([("result.usage.n", "0.01")], Some("0.05")).expect("a price");
        let prices = [("s".to_owned(), price)];
        Budget::new(ledger.clone(), who, run, caps(amount), prices).counted_with("did:a", "one")
    };
    assert!(pay(&budget("did:a", "one", "0.10"), 4).await.stop.is_none());
    // Another folder, another agent, and a higher cap of its own.
    let other = budget("did:b", "two", "0.12");
    assert!(pay(&other, 4).await.stop.is_none());
    let kept = reserved(&other).await;
    // Back again: what the other one spent and set aside is used here too.
    let (rule, stop) = refused(&budget("did:a", "three", "0.10")).await;
    assert!(!stop && rule.contains("0.08 spent, 0.05 set aside"), "{rule}");
    let dear = reply(5);
    assert!(kept.settle(Some(&dear)).await.stop.expect("crossed").contains("0.13 spent"));
    for back in [budget("did:a", "four", "0.10"), budget("did:b", "five", "0.12")] {
        let (rule, stop) = refused(&back).await;
        assert!(stop && rule.contains("0.13 spent"), "{rule}");
    }
    // Days and months are each holder's own, and a run of another process is another.
    ledger.flush().await;
    let report = report(&home.state(), &Filter::default()).await.expect("reads");
    let sum = |who: &str, kind| {
        let mut all = report.sums.iter().filter(|sum| sum.who == who && sum.kind == kind);
        all.next().map(|sum| sum.spent_usd.to_string())
    };
    assert_eq!(sum("did:a", Kind::Day).as_deref(), Some("0.04"));
    assert_eq!(sum("did:b", Kind::Day).as_deref(), Some("0.09"));
    assert_eq!(sum("did:a", Kind::Run).as_deref(), Some("0.13"));
    assert_eq!(sum("did:b", Kind::Run), None);
    assert!(pay(&home.budget("six", "0.10 - -", Some("0.05")), 4).await.stop.is_none(), "control");
}

#[tokio::test]
async fn caps_hold_across_runs_and_programs() {
    let home = Home::new();
    assert!(pay(&home.budget("one", "0.50 0.10 -", Some("0.05")), 5).await.stop.is_none());
    let two = home.budget("two", "0.50 0.10 -", Some("0.05"));
    assert!(pay(&two, 5).await.stop.expect("the day's cap").contains("0.10: 0.10 spent"));
    let (_, stop) = refused(&home.budget("three", "0.50 0.10 -", Some("0.05"))).await;
    assert!(stop);
    assert!(pay(&home.budget("four", "0.50 0.20 -", Some("0.05")), 4).await.stop.is_none());
}

#[tokio::test]
async fn a_cost_that_is_not_known_is_the_whole_reservation_and_stops() {
    for reply in [json!({}), json!({"result": {"usage": {"n": -1}}}), json!({"error": {"code": 1}})]
    {
        let home = Home::new();
        let ledger = Ledger::new(home.state());
        let budget = home.budget_of(&ledger, "r", "1 - -", Some("0.05"));
        let settled = reserved(&budget).await.settle(Some(&reply)).await;
        assert_eq!(settled.cost.to_string(), "0.05");
        assert!(settled.stop.expect("stops").contains("not known"), "{reply}");
        let settled = reserved(&budget).await.settle(None).await;
        assert!(settled.stop.expect("stops").contains("no answer"));
        ledger.flush().await;
        assert_eq!(home.sum(Kind::Run).await, ("0.10".into(), "0.00".into()));
    }
}

#[tokio::test]
async fn more_than_was_set_aside_is_charged_whole_and_stops() {
    let home = Home::new();
    let settled = pay(&home.budget("r", "1 - -", Some("0.05")), 6).await;
    assert_eq!(settled.cost.to_string(), "0.06");
    assert!(settled.stop.expect("stops").contains("0.06, more than the 0.05"));
}

#[tokio::test]
async fn dropped_before_it_goes_out_it_is_given_back_and_after_it_is_spent() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let budget = home.budget_of(&ledger, "r", "1 1 1", Some("0.05"));
    let mut out = reserved(&budget).await;
    out.sent(true);
    drop(out);
    drop(reserved(&budget).await);
    let mut back = reserved(&budget).await;
    back.sent(true);
    back.sent(false);
    drop(back);
    let Early::Pending(pending) = budget.reserve_early(asked(1)).await else { panic!("pending") };
    drop(pending);
    reserved(&budget).await.release().await;
    let forgotten = reserved(&budget).await;
    ledger.flush().await;
    assert_eq!(home.sum(Kind::Month).await, ("0.05".into(), "0.05".into()));
    // A program that dies here gives nothing back, and the next one neither.
    std::mem::forget(forgotten);
    assert!(pay(&home.budget("r", "1 1 1", Some("0.05")), 1).await.stop.is_none());
    assert_eq!(home.sum(Kind::Run).await, ("0.06".into(), "0.05".into()));
}

#[tokio::test]
async fn whoever_stops_waiting_at_any_moment_leaves_nothing_in_flight() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    // Without a price of their own, one that were forgotten would let no other through.
    let budget = home.budget_of(&ledger, "r", "1 - -", None);
    for polls in 1..40 {
        let mut reserving = budget.reserve(asked(1));
        let mut left = polls;
        let done = std::future::poll_fn(|context| {
            left -= 1;
            match reserving.as_mut().poll(context) {
                std::task::Poll::Ready(verdict) => std::task::Poll::Ready(Some(verdict)),
                std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
                std::task::Poll::Pending => std::task::Poll::Pending,
            }
        });
        let done = done.await;
        drop(reserving);
        // What the ledger does with it, it does after whoever asked has gone.
        let next = tokio::time::timeout(std::time::Duration::from_secs(20), async {
            drop(done);
            reserved(&budget).await
        });
        let next = next.await.expect("the next one is let through");
        assert_eq!(next.amount.to_string(), "1.00", "after {polls}");
        next.release().await;
    }
    ledger.flush().await;
    assert_eq!(home.sum(Kind::Run).await, ("0.00".into(), "0.00".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_dearer_than_it_may_be_overspends_by_the_calls_under_way_alone() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let budget = home.budget_of(&ledger, "r", "1 - -", Some("0.05"));
    // As many at once as the cap has room for, each six times as dear as it may be.
    let mut under_way = Vec::new();
    for _ in 0..20 {
        under_way.push(reserved(&budget).await);
    }
    let waits = tokio::spawn({
        let budget = budget.clone();
        async move { refused(&budget).await }
    });
    let dear = reply(30);
    for reservation in under_way {
        let settled = reservation.settle(Some(&dear)).await;
        assert!(settled.stop.expect("each stops the run").contains("more than the 0.05"));
        // The first of them is enough for everybody who comes later, in this program or another.
        let other = home.budget("r", "1 - -", Some("0.05"));
        let _ = refused(&other).await;
    }
    assert!(waits.await.expect("it is told").1, "stopped, not let through");
    assert!(refused(&budget).await.1);
    ledger.flush().await;
    // The cap, and for each call under way what it cost beyond what it may.
    assert_eq!(home.sum(Kind::Run).await, ("6.00".into(), "0.00".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_price_of_their_own_run_one_by_one() {
    let home = Home::new();
    let budget = home.budget("r", "1 - -", None);
    let first = reserved(&budget).await;
    assert_eq!(first.amount.to_string(), "1.00");
    let second = tokio::spawn({
        let budget = budget.clone();
        async move { reserved(&budget).await.amount }
    });
    // It waits: another process is refused meanwhile, and not stopped.
    let (rule, stop) = refused(&home.budget("r", "1 - -", None)).await;
    assert!(!stop && rule.contains("have not said what they cost"), "{rule}");
    assert!(!second.is_finished());
    let reply = reply(25);
    let settled = first.settle(Some(&reply)).await;
    assert_eq!(settled.stop, None);
    assert_eq!(second.await.expect("goes on").to_string(), "0.75");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_told_when_the_cap_is_spent() {
    let home = Home::new();
    let budget = home.budget("r", "1 - -", None);
    let first = reserved(&budget).await;
    let waits: Vec<_> = (0..20)
        .map(|_| {
            let budget = budget.clone();
            tokio::spawn(async move { refused(&budget).await })
        })
        .collect();
    let _ = first.settle(Some(&reply(100))).await;
    for one in waits {
        assert!(one.await.expect("answers").1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_never_overspend_by_more_than_one() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let budget = home.budget_of(&ledger, "r", "- 1 -", Some("0.05"));
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let budget = budget.clone();
            tokio::spawn(async move {
                match budget.reserve(asked(n)).await {
                    Verdict::Reserved(reservation) => {
                        reservation.settle(Some(&reply(1 + n % 5))).await.cost.units()
                    }
                    _ => 0,
                }
            })
        })
        .collect();
    let mut paid = 0;
    for call in calls {
        paid += call.await.expect("ends");
    }
    let most = Usd::parse("1.04").expect("an amount").units();
    assert!(paid > 95_000_000 && paid <= most, "{paid}");
    ledger.flush().await;
    let (spent, aside) = home.sum(Kind::Day).await;
    assert_eq!((spent, aside.as_str()), (Usd::from_units(paid).to_string(), "0.00"));
}

#[tokio::test]
async fn a_verdict_can_be_had_before_it_is_on_disk_and_used_only_after() {
    let home = Home::new();
    let budget = home.budget("r", "1 - -", Some("0.05"));
    let Early::Pending(pending) = budget.reserve_early(asked(1)).await else { panic!("pending") };
    assert_eq!(pending.amount.to_string(), "0.05");
    let reservation = pending.durable().await.expect("gets there");
    assert_eq!(home.sum(Kind::Run).await, ("0.00".into(), "0.05".into()));
    reservation.release().await;
    assert_eq!(home.sum(Kind::Run).await, ("0.00".into(), "0.00".into()));
}

#[tokio::test]
async fn a_ledger_that_cannot_be_used_refuses_and_works_again() {
    let home = Home::new();
    let budget = home.budget("r", "1 - -", Some("0.05"));
    fs::set_permissions(home.folder.path(), fs::Permissions::from_mode(0o777)).expect("its mode");
    let (rule, stop) = refused(&budget).await;
    assert!(!stop && rule.contains("others may write this folder"), "{rule}");
    fs::set_permissions(home.folder.path(), fs::Permissions::from_mode(0o700)).expect("its mode");
    assert!(pay(&budget, 1).await.stop.is_none());
    let file = home.folder.path().join("state.db");
    fs::rename(&file, home.folder.path().join("away")).expect("renames");
    assert!(refused(&budget).await.0.contains("was deleted"));
    fs::write(&file, "").expect("writes");
    assert!(refused(&budget).await.0.contains("was replaced"));
    fs::rename(home.folder.path().join("away"), &file).expect("renames");
    assert!(pay(&budget, 1).await.stop.is_none());
}

#[tokio::test]
async fn a_clock_that_goes_back_opens_no_spent_period() {
    let home = Home::new();
    assert!(pay(&home.budget("one", "- 0.05 -", Some("0.05")), 5).await.stop.is_some());
    // The ledger has seen a day that this clock has not.
    let db = home.state().db(&crate::store::SCHEMA).await.expect("opens");
    let mut tx = db.write().await.expect("begins");
    for statement in [
        "UPDATE spend_holders SET day = '2999-12-31'",
        "UPDATE spend_scopes SET period = '2999-12-31' WHERE kind = 'day'",
    ] {
        assert_eq!(tx.execute(statement, &[]).await.expect("writes"), 1);
    }
    tx.commit().await.expect("commits");
    assert!(refused(&home.budget("two", "- 0.05 -", Some("0.05"))).await.1);
    // The day's cap alone: what is in no period that was spent may be.
    assert!(pay(&home.budget("two", "1 - -", Some("0.05")), 1).await.stop.is_none());
}

#[tokio::test]
async fn sums_that_no_ledger_can_hold_are_refused() {
    let home = Home::new();
    let budget = home.budget("r", "1 - -", Some("0.05"));
    assert!(pay(&budget, 1).await.stop.is_none());
    let db = home.state().db(&crate::store::SCHEMA).await.expect("opens");
    for (statement, back) in [
        (
            "PRAGMA ignore_check_constraints = 1; UPDATE spend_scopes SET spent = -5",
            "UPDATE spend_scopes SET spent = 5",
        ),
        ("UPDATE spend_scopes SET spent = 1.5", "UPDATE spend_scopes SET spent = 5"),
        ("UPDATE spend_holders SET day = 'x'", "UPDATE spend_holders SET day = '2026-01-01'"),
    ] {
        let run = |sql: &'static str| {
            let db = db.clone();
            async move {
                let mut tx = db.write().await.expect("begins");
                for one in sql.split("; ") {
                    tx.execute(one, &[]).await.expect("writes");
                }
                tx.commit().await.expect("commits");
            }
        };
        run(statement).await;
        assert!(!refused(&budget).await.0.is_empty(), "{statement}");
        run(back).await;
        assert!(matches!(budget.reserve(asked(1)).await, Verdict::Reserved(_)), "{statement}");
    }
}
