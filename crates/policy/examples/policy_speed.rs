//! How long one decision and one compilation take.
//!
//! `cargo run --release -p ringfence-policy --example policy_speed`. Budgets: one decision with
//! 1,000 patterns in each of two layers, at most 2 µs; 1,000 servers by 100 patterns compiled in at
//! most 50 ms, and twice the servers in about twice the time.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for a person")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use ringfence_bundle::{
    Egress, Host, Id, Manifest, Pattern, PolicyTables, SecretName, Server, Transport,
};
use ringfence_policy::{MachinePolicy, Principal, Ruleset};

/// The shapes of 1,000 patterns; `N` becomes a number.
const SHAPES: [(&str, &[&str]); 6] = [
    ("exact", &["tool_N"]),
    ("prefix", &["tool_N_*"]),
    ("suffix", &["*_N_tool"]),
    ("both ends", &["tool_*_N"]),
    ("inside", &["*_N_*"]),
    ("mixed", &["tool_N", "t_N_*", "*_N_x", "t_*_N", "!no_N_*", "!*_no_N", "*N*", "t?N_*"]),
];

fn list(shapes: &[&str], count: usize) -> Vec<Pattern> {
    (0..count)
        .map(|n| Pattern { text: shapes[n % shapes.len()].replace('N', &n.to_string()), line: n })
        .collect()
}

fn server() -> Server {
    let transport = Transport::Stdio {
        command: "x".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        allowed_hosts: Vec::new(),
    };
    Server { transport, tools: None, methods: Vec::new(), pricing: None }
}

fn manifest(servers: usize, policy: PolicyTables) -> Manifest {
    let mut manifest = Manifest { policy, ..Manifest::default() };
    for n in 0..servers {
        manifest.servers.insert(Id::parse(&format!("s{n}")).unwrap(), server());
    }
    manifest.sandbox.network.egress = Egress::Open;
    manifest
}

/// The best mean of several rounds.
fn per_call(mut call: impl FnMut()) -> Duration {
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..10_000).for_each(|_| call());
        start.elapsed() / 10_000
    };
    (0..5).map(|_| round(&mut call)).min().unwrap()
}

fn main() {
    println!("one decision, 1,000 patterns in each of two layers");
    for (shape, shapes) in SHAPES {
        let mut patterns = list(shapes, 999);
        patterns.push(Pattern { text: "last_*".into(), line: 1000 });
        let tables = || PolicyTables {
            tools: BTreeMap::from([("s0".to_owned(), patterns.clone())]),
            secrets: BTreeMap::from([("s0".to_owned(), patterns.clone())]),
            ..PolicyTables::default()
        };
        let machine = MachinePolicy { tables: tables(), ..MachinePolicy::default() };
        let rules = Ruleset::compile(&machine, &manifest(1, tables())).unwrap();
        let id = Id::parse("s0").unwrap();
        assert!(rules.tool(&id, "last_tool").allowed && !rules.tool(&id, "other").allowed);
        let allowed = per_call(|| drop(black_box(rules.tool(&id, black_box("last_tool")))));
        let refused = per_call(|| drop(black_box(rules.tool(&id, black_box("no_such_tool_is")))));
        let name = SecretName::parse("last_secret").unwrap();
        let who = Principal::Server(id);
        let secret = per_call(|| drop(black_box(rules.secret(&who, black_box(&name)))));
        println!(
            "  {shape:<10} allowed {:>6} ns  refused {:>6} ns  secret {:>6} ns",
            allowed.as_nanos(),
            refused.as_nanos(),
            secret.as_nanos()
        );
    }

    let shapes =
        ["*.hN.example", "hN.example:443", "!*.noN.example", "api*.hN.example", "[*]:8443"];
    let mut patterns = list(&shapes, 999);
    patterns.push(Pattern { text: "*.last.example:443".into(), line: 1000 });
    let tables = || PolicyTables {
        egress: BTreeMap::from([("agent".to_owned(), patterns.clone())]),
        ..PolicyTables::default()
    };
    let machine = MachinePolicy { tables: tables(), ..MachinePolicy::default() };
    let rules = Ruleset::compile(&machine, &manifest(1, tables())).unwrap();
    let host = Host::parse("a.b.last.example").unwrap();
    assert!(rules.egress(&Principal::Agent, &host, 443).allowed);
    let time = per_call(|| drop(black_box(rules.egress(&Principal::Agent, black_box(&host), 443))));
    println!("  {:<10} allowed {:>6} ns", "hosts", time.as_nanos());

    println!("compiling servers of 100 patterns");
    for servers in [250, 500, 1000, 2000] {
        let tools = (0..servers).map(|n| (format!("s{n}"), list(SHAPES[5].1, 100))).collect();
        let tables = PolicyTables { tools, ..PolicyTables::default() };
        let (machine, manifest) = (MachinePolicy::default(), manifest(servers, tables));
        let compile = || {
            let start = Instant::now();
            black_box(Ruleset::compile(&machine, &manifest).unwrap());
            start.elapsed()
        };
        let time = (0..5).map(|_| compile()).min().unwrap();
        println!("  {servers:>5} servers {time:>8.1?}");
    }
}
