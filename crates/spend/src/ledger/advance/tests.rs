use std::sync::Arc;

use crate::ledger::tests::{Home, asked, pay, refused, reply, reserved};
use crate::{Budget, Early, Filter, Kind, Ledger, Purse, Verdict, report};

/// Makes so many calls of 3 cents each.
async fn busy(budget: &Budget, calls: usize) {
    for _ in 0..calls {
        let settled = pay(budget, 3).await;
        assert_eq!((settled.stop, settled.cost.to_string().as_str()), (None, "0.03"));
    }
}

/// Whether the next call is paid from an advance: it is, when nobody waits for the disk.
async fn is_drawn(budget: &Budget) -> bool {
    match budget.reserve_early(asked(1)).await {
        Early::Known(Verdict::Reserved(reservation)) => {
            reservation.release().await;
            true
        }
        Early::Pending(pending) => {
            pending.durable().await.expect("gets there").release().await;
            false
        }
        Early::Known(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn many_calls_are_paid_in_advance_and_what_is_left_is_given_back() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let budget = home.budget_of(&ledger, "r", "1000 - -", Some("0.05"));
    assert!(!is_drawn(&budget).await, "the first call is admitted by itself");
    busy(&budget, 60).await;
    assert!(is_drawn(&budget).await);
    // Other processes see it as set aside.
    let (_, aside) = home.sum(Kind::Run).await;
    assert_ne!(aside, "0.00");
    ledger.flush().await;
    assert_eq!(home.sum(Kind::Run).await, ("1.80".into(), "0.00".into()));
    let filter = Filter { calls: 1000, ..Filter::default() };
    let calls = report(&home.state(), &filter).await.expect("reads").calls;
    assert_eq!(calls.iter().filter(|call| call.result == "charged").count(), 60);
    assert!(calls.iter().all(|call| call.result != "open" && call.tool == "t"));
    // It goes on.
    busy(&budget, 20).await;
    ledger.flush().await;
    assert_eq!(home.sum(Kind::Run).await, ("2.40".into(), "0.00".into()));
}

#[tokio::test]
async fn near_a_cap_each_call_is_admitted_by_itself() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let few = home.budget_of(&ledger, "few", "1 - -", Some("0.05"));
    busy(&few, 20).await;
    assert!(!is_drawn(&few).await);
    // Where the cap is large and little is left of it.
    let all = home.budget_of(&ledger, "late", "1000 - -", None);
    assert_eq!(pay(&all, 99_600).await.stop, None);
    let late = home.budget_of(&ledger, "late", "1000 - -", Some("0.05"));
    busy(&late, 20).await;
    assert!(!is_drawn(&late).await);
    let enough = home.budget_of(&ledger, "enough", "1000 - -", Some("0.05"));
    busy(&enough, 20).await;
    assert!(is_drawn(&enough).await, "control");
}

#[tokio::test]
async fn a_drawn_call_that_costs_more_stops_and_ends_the_advance() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let budget = home.budget_of(&ledger, "r", "1000 - -", Some("0.05"));
    busy(&budget, 20).await;
    assert!(is_drawn(&budget).await);
    let (dear, next) = (reserved(&budget).await, reserved(&budget).await);
    let settled = dear.settle(Some(&reply(200_000))).await;
    assert_eq!(settled.cost.to_string(), "2000.00");
    assert!(settled.stop.expect("stops").contains("more than the 0.05"));
    // What was let through before is charged; nothing more is.
    assert!(next.settle(Some(&reply(5))).await.cost.to_string() == "0.05");
    assert!(refused(&budget).await.1, "the cap is spent");
    ledger.flush().await;
    assert_eq!(home.sum(Kind::Run).await, ("2000.65".into(), "0.00".into()));
}

#[tokio::test]
async fn a_drawn_call_whose_client_went_away_is_spent_and_one_that_never_went_out_is_not() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let budget = home.budget_of(&ledger, "r", "1000 - -", Some("0.05"));
    busy(&budget, 20).await;
    assert!(is_drawn(&budget).await);
    drop(reserved(&budget).await);
    let mut sent = reserved(&budget).await;
    sent.sent(true);
    drop(sent);
    ledger.flush().await;
    assert_eq!(home.sum(Kind::Run).await, ("0.65".into(), "0.00".into()));
}

#[tokio::test]
async fn a_warning_that_a_drawn_call_gives_is_told_once() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let all = home.budget_of(&ledger, "r", "1000 - -", None);
    assert_eq!(pay(&all, 79_950).await.warning, None);
    let budget = home.budget_of(&ledger, "r", "1000 - -", Some("0.05"));
    let mut warnings = Vec::new();
    for round in 0..40 {
        warnings.extend(pay(&budget, 5).await.warning);
        if round % 10 == 9 {
            ledger.flush().await;
        }
    }
    warnings.extend(budget.warning());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("80% of a cap"), "{warnings:?}");
}

#[tokio::test]
async fn a_warning_of_the_last_calls_is_there_at_the_end() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    let all = home.budget_of(&ledger, "r", "1000 - -", None);
    assert_eq!(pay(&all, 79_900).await.warning, None);
    let budget = home.budget_of(&ledger, "r", "1000 - -", Some("0.05"));
    let mut said = None;
    // All of them within the time that charges are collected in, or nearly.
    for _ in 0..25 {
        said = said.or(pay(&budget, 5).await.warning);
    }
    ledger.flush().await;
    assert!(said.or(budget.warning()).is_some_and(|text| text.contains("80% of a cap")));
    assert_eq!(budget.warning(), None, "once");
}

#[tokio::test]
async fn advances_do_not_stack() {
    let home = Home::new();
    let ledger = Ledger::new(home.state());
    // A thousandth of the cap is nine calls.
    let budget = home.budget_of(&ledger, "r", "450 - -", Some("0.05"));
    for _ in 0..300 {
        busy(&budget, 1).await;
        let aside = crate::Usd::parse(&home.sum(Kind::Run).await.1).expect("an amount");
        // What is written lags behind: an advance, and the calls that are not written yet.
        assert!(aside.units() <= 2 * 45_000_000, "{aside}");
    }
    ledger.flush().await;
    assert_eq!(home.sum(Kind::Run).await, ("9.00".into(), "0.00".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_with_advances_never_overspend() {
    let home = Home::new();
    // Each ledger is a process of its own, as far as the database can tell.
    let ledgers: Vec<_> = (0..4).map(|_| Ledger::new(home.state())).collect();
    let mut calls = tokio::task::JoinSet::new();
    for (number, ledger) in ledgers.iter().enumerate() {
        let budget: Arc<Budget> =
            home.budget_of(ledger, &format!("run {number}"), "- 8000 -", Some("1"));
        for _ in 0..8 {
            let budget = Arc::clone(&budget);
            calls.spawn(async move {
                let mut paid = 0;
                loop {
                    match budget.reserve(asked(1)).await {
                        Verdict::Reserved(reservation) => {
                            paid += reservation.settle(Some(&reply(100))).await.cost.units();
                        }
                        Verdict::Refused { .. } => return paid,
                        Verdict::Free { .. } => panic!("it has a price"),
                    }
                }
            });
        }
    }
    let paid: u64 = calls.join_all().await.into_iter().sum();
    // Those that were refused first left what others had set aside.
    assert!(paid <= 8_000 * 100_000_000, "{paid}");
    assert!(paid >= 7_800 * 100_000_000, "{paid}");
    for ledger in &ledgers {
        ledger.flush().await;
    }
    assert_eq!(home.sum(Kind::Day).await.1, "0.00");
    let spent = crate::Usd::from_units(paid).to_string();
    assert_eq!(home.sum(Kind::Day).await.0, spent);
}
