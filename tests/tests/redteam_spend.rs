//! Row 33: calls that race a cap, usage that is missing or late, a crash between call and charge.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use ringfence_tests::{Budgeted, Ledger, PYTHON, Postgres, Spent, Who, each_user, eventually};

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

/// Busy processes far from the cap, which set aside in advance: at most a thousandth of it each.
fn advances(ledger: &Ledger, seed: u64) {
    let run = |n: usize, calls| ledger.spend(&format!("run{n}"), "- 4000 -", "0.40", "30", calls);
    let said: Vec<_> = (0..4).map(|n| run(n, 200)).collect::<Vec<_>>();
    let through: usize = said.into_iter().map(|one| count(&one.said(), "S ")).sum();
    let spent = accounted(ledger);
    assert_eq!((spent.calls, spent.aside, through), (800, 0, 800), "nobody was killed");
    assert_eq!(spent.spent, 800 * 30 * CENT);
    let mut seeded = Seeded(seed);
    let mut all: Vec<Budgeted> = (10..18).map(|n| run(n, 100_000)).collect();
    let busy = spent.spent + 8 * 30 * 30 * CENT;
    eventually("they are busy", || ledger.spent().spent > busy);
    let mut through = 0;
    for mut one in all.drain(..) {
        // Random moments are what is tested here: there is no event to wait for.
        std::thread::sleep(Duration::from_micros(seeded.below(8000)));
        one.kill();
        through += count(&one.said(), "S ");
    }
    let after = ledger.spent();
    let used = after.spent + after.aside - spent.spent;
    let through = through as u64;
    assert!(through > 100, "control: they were busy, {through}");
    assert!(used >= through * 30 * CENT, "each call that was paid is spent: {used} {through}");
    // What they left: an advance of 4.00, one that was on its way, and a call.
    assert!(after.aside <= 8 * (2 * 400 + 40) * CENT, "{after:?}");
    assert!(after.aside > 0, "control: some of them held an advance");
}

#[test]
fn processes_that_set_aside_in_advance_and_are_killed_leave_it_spent_in_sqlite() {
    each_user(|who| advances(&Ledger::new(who, None), 3));
}

#[test]
fn processes_that_set_aside_in_advance_and_are_killed_leave_it_spent_in_postgres() {
    let server = Postgres::start();
    advances(&Ledger::new(Who::Itself, Some(&server)), 4);
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

/// One call, of which the ledger says what this is: `R` or why not.
fn once(ledger: &Ledger, around: &[&str]) -> String {
    let said = ledger.within(around, "once", "- 9.00 -", "0.01", "1", 1).said();
    said.into_iter().next().expect("it says something")
}

#[test]
fn a_cost_that_is_not_known_stops_and_one_that_never_came_stays_spent() {
    each_user(|who| {
        let ledger = Ledger::new(who, None);
        let said = ledger.spend("a", "- 1.00 -", "0.05", "?", 1).said();
        assert!(said[1].starts_with("S 0.05 the cost is not known"), "{said:?}");
        let said = ledger.spend("b", "- 1.00 -", "0.05", "-", 2).said();
        assert_eq!(count(&said, "R "), 2);
        let said = ledger.spend("c", "- 1.00 -", "0.05", "9", 1).said();
        assert!(said[1].starts_with("S 0.09 the call cost 0.09, more than"), "{said:?}");
        let spent = accounted(&ledger);
        assert_eq!((spent.spent, spent.aside), (14 * CENT, 10 * CENT));
    });
}

#[test]
fn a_ledger_that_is_locked_refuses_and_then_works() {
    each_user(|who| {
        let ledger = Ledger::new(who, None);
        assert!(once(&ledger, &[]).starts_with("R "), "control");
        let file = ledger.home.join("state.db");
        let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\ndb.execute('BEGIN IMMEDIATE')\nprint('locked', flush=True)\nsys.stdin.read()\n";
        let mut words = who.prefix();
        words.extend([PYTHON.into(), "-c".into(), script.into(), file.display().to_string()]);
        let mut command = std::process::Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("python runs");
        let mut line = String::new();
        let out = holder.stdout.take().expect("its words");
        BufReader::new(out).read_line(&mut line).expect("it locks");
        let said = once(&ledger, &[]);
        assert!(said.starts_with("N ") && said.contains("locked by another process"), "{said}");
        drop(holder.stdin.take());
        holder.wait().expect("it ends");
        assert!(once(&ledger, &[]).starts_with("R "));
        assert_eq!(accounted(&ledger).calls, 2);
    });
}

#[test]
fn a_ledger_that_is_full_refuses_and_then_works() {
    each_user(|who| {
        let ledger = Ledger::new(who, None);
        assert!(once(&ledger, &[]).starts_with("R "), "control");
        let small = ["prlimit", "--fsize=20000", "env", "--ignore-signal=XFSZ"];
        let said = once(&ledger, &small);
        assert!(said.starts_with("N ") && said.contains("disk"), "{said}");
        // Where the limit comes in the middle of a run, everything after it is refused.
        let small = ["prlimit", "--fsize=300000", "env", "--ignore-signal=XFSZ"];
        let said = ledger.within(&small, "many", "- 9.00 -", "0.01", "1", 200).said();
        let (through, not) = (count(&said, "R "), count(&said, "N "));
        assert!(through > 0 && not > 0, "{through} {not}");
        assert!(once(&ledger, &[]).starts_with("R "));
        let spent = accounted(&ledger);
        assert!(spent.calls >= through + 2, "{spent:?}");
    });
}

#[test]
fn a_ledger_on_a_full_disk_refuses() {
    if !Who::suite_is_root() {
        // An ordinary user cannot mount; the limit on a file's size stands for it there.
        return a_ledger_that_is_full_refuses_and_then_works();
    }
    let ledger = Ledger::new(Who::Itself, None);
    let home = ledger.home.display().to_string();
    let mount = format!("mount -t tmpfs -o size=400k,mode=0700 small '{home}' && exec \"$@\"");
    let around = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &mount, "sh"];
    let said = ledger.within(&around, "many", "- 9.00 -", "0.01", "1", 400).said();
    let (through, not) = (count(&said, "R "), count(&said, "N "));
    assert!(through > 0 && not > 0 && through + not == 400, "{through} {not}");
    let last = said.iter().rev().find(|line| line.starts_with("N ")).expect("refused");
    assert!(last.contains("disk"), "{last}");
}

#[test]
fn a_ledger_that_cannot_be_written_refuses_and_then_works() {
    each_user(|who| {
        let ledger = Ledger::new(who, None);
        assert!(once(&ledger, &[]).starts_with("R "), "control");
        if who.is_root() {
            let home = ledger.home.display().to_string();
            let mount = format!(
                "mount --bind '{home}' '{home}' && mount -o remount,bind,ro '{home}' && exec \"$@\""
            );
            let around =
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", &mount, "sh"];
            let said = once(&ledger, &around);
            assert!(said.starts_with("N ") && said.contains("Read-only"), "{said}");
        } else {
            let file = ledger.home.join("state.db");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).expect("its mode");
            let said = once(&ledger, &[]);
            assert!(said.starts_with("N ") && said.contains("denied"), "{said}");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
        }
        assert!(once(&ledger, &[]).starts_with("R "));
    });
}

fn python(who: Who, script: &str, file: &std::path::Path) {
    let mut words = who.prefix();
    words.extend([PYTHON.into(), "-c".into(), script.into(), file.display().to_string()]);
    let status = std::process::Command::new(&words[0]).args(&words[1..]).status();
    assert!(status.expect("python runs").success());
}

#[test]
fn a_ledger_that_is_damaged_refuses() {
    each_user(|who| {
        for (at, what) in [(0, "the header"), (4096, "a page"), (18, "the versions")] {
            let ledger = Ledger::new(who, None);
            assert!(once(&ledger, &[]).starts_with("R "), "control");
            let file = ledger.home.join("state.db");
            // What is in the log beside the file would stand for the damaged part.
            python(
                who,
                "import sqlite3, sys\nsqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint(TRUNCATE)')",
                &file,
            );
            let mut bytes = fs::read(&file).expect("reads");
            let end = bytes.len().min(at + if at == 18 { 2 } else { 4096 });
            bytes[at..end].fill(0xff);
            fs::write(&file, bytes).expect("writes");
            let said = once(&ledger, &[]);
            assert!(said.starts_with("N "), "{what}: {said}");
            assert!(ledger.report()["error"].is_string(), "{what}: {}", ledger.report());
        }
    });
}

#[test]
fn a_ledger_that_goes_away_or_is_another_refuses() {
    each_user(|who| {
        let ledger = Ledger::new(who, None);
        let mut one = ledger.spend("many", "- 99.00 -", "0.01", "1", 1_000_000);
        let mut until = |what: &str| loop {
            let line = one.line().expect("it goes on");
            if line.starts_with(what) {
                return line;
            }
        };
        until("R ");
        let (file, away) = (ledger.home.join("state.db"), ledger.home.join("away"));
        fs::rename(&file, &away).expect("renames");
        assert!(until("N ").contains("was deleted"));
        fs::copy(&away, &file).expect("copies");
        who.own(&file);
        let mut said = until("N ");
        while said.contains("was deleted") {
            said = until("N ");
        }
        assert!(said.contains("was replaced"), "{said}");
        fs::rename(&away, &file).expect("renames");
        until("R ");
        one.kill();
        let _ = one.said();
        accounted(&ledger);
    });
}

#[test]
fn a_server_that_is_restarted_in_the_middle_refuses_and_then_works() {
    let mut server = Postgres::start();
    let ledger = Ledger::new(Who::Itself, Some(&server));
    let mut one = ledger.spend("many", "- 999999.00 -", "200.00", "1", 100_000_000);
    let mut until = |what: &str| loop {
        let line = one.line().expect("it goes on");
        if line.starts_with(what) {
            return line;
        }
    };
    for _ in 0..3 {
        until("R ");
        server.stop();
        assert!(until("N ").contains("postgres at /"));
        server.resume();
        until("R ");
    }
    one.kill();
    let said = one.said();
    let through = count(&said, "R ");
    let sql = |sql: &str| server.sql(sql).parse::<usize>().expect("a number");
    // After a crash nothing that was told as kept is missing, and the sums are those of the calls.
    let calls = sql("SELECT count(*) FROM ringfence.spend_calls");
    assert!((through..=through + 4).contains(&calls), "{through} {calls}");
    for (sum, of) in [("spent", "cost"), ("reserved", "reserved")] {
        let open = if of == "cost" { "result <> 'open'" } else { "result = 'open'" };
        let day = sql(&format!("SELECT sum({sum}) FROM ringfence.spend_scopes WHERE kind = 'day'"));
        let all =
            sql(&format!("SELECT coalesce(sum({of}), 0) FROM ringfence.spend_calls WHERE {open}"));
        assert_eq!(day, all, "{sum}");
    }
}

#[test]
fn a_server_whose_rows_are_locked_refuses() {
    let server = Postgres::start();
    let ledger = Ledger::new(Who::Itself, Some(&server));
    assert!(once(&ledger, &[]).starts_with("R "), "control");
    let held = server.hold("SELECT * FROM ringfence.spend_holders FOR UPDATE");
    let said = once(&ledger, &[]);
    assert!(said.starts_with("N ") && said.contains("locked by another process"), "{said}");
    drop(held);
    assert!(once(&ledger, &[]).starts_with("R "), "and then works");
}

#[test]
fn another_machines_server_is_reached_by_verified_tls_alone() {
    // An address that is not loopback's own to Ringfence, and never leaves this machine.
    let mapped: std::net::IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut named = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    named.subject_alt_names = vec![rcgen::SanType::IpAddress(mapped)];
    let right = named.self_signed(&key).expect("a certificate");
    let other = rcgen::CertificateParams::new(vec!["db.example".to_owned()]).expect("a name");
    let other = other.self_signed(&key).expect("a certificate");
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
    let port = port.expect("a port").port();
    let mut server = Postgres::with(&["listen_addresses=127.0.0.1", &format!("port={port}")]);
    let folder = server.folder().to_owned();
    let mut ledger = Ledger::new(Who::Itself, Some(&server));
    let certificate = folder.join("server.crt");
    let at = |path: &std::path::Path| {
        format!(
            "postgres://ringfence@localhost/postgres?hostaddr={mapped}&port={port}&sslrootcert={}",
            path.display()
        )
    };
    ledger.at(&at(&certificate));
    let refused = |ledger: &Ledger, why: &str| {
        let said = once(ledger, &[]);
        assert!(said.starts_with("N ") && said.contains(why), "{why}: {said}");
    };
    refused(&ledger, "TLS");
    for (pem, works) in [(other.pem(), false), (right.pem(), true)] {
        fs::write(&certificate, pem).expect("writes");
        fs::write(folder.join("server.key"), key.serialize_pem()).expect("writes");
        fs::set_permissions(folder.join("server.key"), fs::Permissions::from_mode(0o600))
            .expect("its mode");
        server.own(&certificate);
        server.own(&folder.join("server.key"));
        server.stop();
        server.set("ssl=on");
        server.set(&format!("ssl_cert_file={}", certificate.display()));
        server.set(&format!("ssl_key_file={}", folder.join("server.key").display()));
        server.resume();
        if works {
            assert!(once(&ledger, &[]).starts_with("R "), "control: the right name");
        } else {
            refused(&ledger, "TLS");
        }
    }
}
