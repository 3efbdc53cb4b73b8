//! A process that calls a priced tool: it asks the ledger, pays, and says each step on stdout.
//!
//! `spend WHO RUN CAPS MAX COST CALLS`: up to CALLS calls, each set aside as MAX (`-`: all that is left)
//! and paid with COST units of 0.01 USD. CAPS is `RUN DAY MONTH`, `-` for none. COST `-` never settles,
//! `?` is a reply without usage. Says `R <amount>`, `S <cost> [stop]`, `N <rule>` (not now), `X <rule>`
//! (spent), and ends with `E`.
//! `report`: the ledger as JSON.
//!
//! `RINGFENCE_HOME` is the machine's folder; `LEDGER_URL`, where it is set, a PostgreSQL server.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::PathBuf;

use ringfence_spend::{
    Asked, Budget, Cap, Caps, Filter, Ledger, Price, Purse as _, Usd, Verdict, report,
};
use ringfence_state::State;
use serde_json::json;

fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // One write for each line: a process that is killed leaves no half one.
    out.write_all(format!("{line}\n").as_bytes()).expect("stdout takes a line");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let home = PathBuf::from(std::env::var_os("RINGFENCE_HOME").expect("RINGFENCE_HOME"));
    let url = std::env::var("LEDGER_URL").ok();
    let state = State::open(&home, url.as_deref()).expect("an address");
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["report"] => {
            let filter = Filter { calls: 1000, ..Filter::default() };
            match report(&state, &filter).await {
                Ok(report) => {
                    say(format_args!("{}", serde_json::to_string(&report).expect("JSON")))
                }
                Err(error) => say(format_args!("{}", json!({ "error": error.to_string() }))),
            }
        }
        ["spend", who, run, caps, max, cost, calls] => {
            let price = Price::new([("result.n", "0.01")], Some(*max).filter(|max| *max != "-"));
            let prices = [("s".to_owned(), price.expect("a price"))];
            let ledger = Ledger::new(state);
            let budget = Budget::new(ledger.clone(), who, run, caps_of(caps), prices);
            let calls = calls.parse().expect("a number of calls");
            spend(&budget, cost, calls).await;
            ledger.flush().await;
            say(format_args!("E"));
        }
        other => panic!("unknown: {other:?}"),
    }
}

fn caps_of(text: &str) -> Caps {
    let mut amounts = text.split(' ').map(|text| {
        let amount = Usd::parse(text)?;
        Some(Cap { amount, rule: "cap".to_owned() })
    });
    Caps {
        per_run: amounts.next().flatten(),
        per_day: amounts.next().flatten(),
        per_month: amounts.next().flatten(),
        warn_at_percent: None,
    }
}

async fn spend(budget: &Budget, cost: &str, calls: u64) {
    for call in 1..=calls {
        let asked = Asked { server: "s".to_owned(), tool: "t".to_owned(), call };
        let reservation = match budget.reserve(asked).await {
            Verdict::Reserved(reservation) => reservation,
            Verdict::Refused { rule, stop: false } => {
                say(format_args!("N {rule}"));
                continue;
            }
            Verdict::Refused { rule, stop: true } => {
                say(format_args!("X {rule}"));
                return;
            }
            Verdict::Free { rule } => panic!("free: {rule}"),
        };
        say(format_args!("R {}", reservation.amount));
        let settled = match cost {
            "-" => {
                std::mem::forget(reservation);
                continue;
            }
            "?" => reservation.settle(Some(&json!({"result": {}}))).await,
            cost => {
                let cost: u64 = cost.parse().expect("a cost");
                reservation.settle(Some(&json!({"result": {"n": cost}}))).await
            }
        };
        say(format_args!("S {} {}", settled.cost, settled.stop.unwrap_or_default()));
    }
}
