//! Row 33: calls that race a cap, usage that is missing or late, a crash between call and charge.

use std::fs;
use std::time::Duration;

use ringfence_tests::{Budgeted, Ledger, Postgres, Spent, Who, each_user};

/// 0.01 USD, in units of 1e-8.
const CENT: u64 = 1_000_000;
const PROCESSES: usize = 50;

/// Numbers that look random and are the same each time (SplitMix64).
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// What holds of a ledger at any moment when nobody writes: the sums are those of the calls.
fn accounted(ledger: &Ledger) -> Spent {
    let spent = ledger.spent();
    assert_eq!((spent.spent, spent.aside), (spent.charged, spent.open), "{spent:?}");
    spent
}

fn count(said: &[String], what: &str) -> usize {
    said.iter().filter(|line| line.starts_with(what)).count()
}

/// Many at once, under one daily cap of 1.00: each sets aside 0.05 and pays 0.04.
fn race(ledger: &Ledger) {
    let all: Vec<Budgeted> = (0..PROCESSES)
        .map(|n| ledger.spend(&format!("run{n}"), "- 1.00 -", "0.05", "4", 100))
        .collect();
    let said: Vec<Vec<String>> = all.into_iter().map(Budgeted::said).collect();
    let through: usize = said.iter().map(|said| count(said, "R ")).sum();
    for said in &said {
        assert_eq!(said.last().map(String::as_str), Some("E"), "{said:?}");
    }
    let spent = accounted(ledger);
    assert_eq!((spent.calls, spent.aside), (through, 0), "nobody was killed");
    // All of the cap can be spent, and the crossing call is the last one through.
    assert_eq!(spent.spent, 100 * CENT, "25 calls of 0.04");
    // A process of its own finds the same.
    let late = ledger.spend("late", "- 1.00 -", "0.05", "4", 1).said();
    assert!(late[0].starts_with("X "), "{late:?}");
    let other_cap = ledger.spend("late", "- 1.10 -", "0.05", "4", 1).said();
    assert!(other_cap[0].starts_with("R "), "control: {other_cap:?}");
}

/// The same, and processes are killed at any moment; each kill may leave one reservation, spent.
fn race_with_kills(ledger: &Ledger, seed: u64) {
    let mut seeded = Seeded(seed);
    let mut all: Vec<(String, bool, Budgeted)> = (0..PROCESSES)
        .map(|n| {
            let run = format!("run{n}");
            let one = ledger.spend(&run, "- 4.00 -", "0.05", "4", 60);
            (run, false, one)
        })
        .collect();
    for _ in 0..PROCESSES / 2 {
        let at = usize::try_from(seeded.below(PROCESSES as u64)).expect("an index");
        // Random moments are what is tested here: there is no event to wait for.
        std::thread::sleep(Duration::from_micros(seeded.below(8000)));
        all[at].1 = true;
        all[at].2.kill();
    }
    let mut through = 0;
    let mut killed = Vec::new();
    for (run, was_killed, one) in all {
        let said = one.said();
        through += count(&said, "R ");
        let ended = said.last().is_some_and(|line| line == "E");
        assert!(ended || was_killed, "{run}: {said:?}");
        if !ended {
            killed.push(run);
        }
    }
    assert!(killed.len() > 5, "control: processes were killed in the middle, {}", killed.len());
    let spent = accounted(ledger);
    assert!(spent.calls >= through, "each call that went through is in the ledger: {spent:?}");
    assert!(spent.calls <= through + killed.len(), "and at most one more of each that was killed");
    for run in &spent.open_runs {
        let theirs = spent.open_runs.iter().filter(|other| *other == run).count();
        assert!(killed.contains(run) && theirs == 1, "{run} left {theirs}");
    }
    let used = spent.spent + spent.aside;
    assert!(used < 400 * CENT + 5 * CENT, "the crossing call alone: {spent:?}");
    // What they left stays spent: whoever comes later has so much less.
    let rest = ledger.spend("rest", "- 4.00 -", "0.05", "4", 200).said();
    assert_eq!(count(&rest, "N "), rest.iter().filter(|line| line.contains("set aside")).count());
    let after = accounted(ledger);
    assert_eq!(after.aside, spent.aside, "nobody gives it back");
    assert!(after.spent + after.aside >= 400 * CENT, "{after:?}");
    assert!(after.spent + after.aside < 405 * CENT, "{after:?}");
}

#[test]
fn fifty_processes_under_one_cap_never_overspend_it_in_sqlite() {
    each_user(|who| race(&Ledger::new(who, None)));
}

#[test]
fn fifty_processes_killed_at_random_never_overspend_in_sqlite() {
    each_user(|who| {
        for seed in [1, 2] {
            race_with_kills(&Ledger::new(who, None), seed);
        }
    });
}

#[test]
fn fifty_processes_under_one_cap_never_overspend_it_in_postgres() {
    let server = Postgres::start();
    race(&Ledger::new(Who::Itself, Some(&server)));
}

#[test]
fn fifty_processes_killed_at_random_never_overspend_in_postgres() {
    for seed in [1, 2] {
        let server = Postgres::start();
        race_with_kills(&Ledger::new(Who::Itself, Some(&server)), seed);
    }
}

#[test]
fn two_hosts_have_one_budget() {
    let server = Postgres::start();
    let hosts = [Ledger::new(Who::Itself, Some(&server)), Ledger::new(Who::Itself, Some(&server))];
    let all = hosts.each_ref().map(|host| host.spend("same", "- 1.00 -", "0.05", "4", 100));
    for said in all.map(Budgeted::said) {
        assert_eq!(said.last().map(String::as_str), Some("E"), "{said:?}");
    }
    let spent = accounted(&hosts[0]);
    assert_eq!(spent, accounted(&hosts[1]));
    assert_eq!(spent.spent, 100 * CENT);
    for host in &hosts {
        assert_eq!(fs::read_dir(&host.home).expect("lists").count(), 0, "nothing is kept here");
    }
}
