//! How long one policy decision and one compilation take, and how they grow.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use ringfence_bundle::{
    Egress, Host, Id, Manifest, Pattern, PolicyTables, SecretName, Server, Transport,
};
use ringfence_policy::{MachinePolicy, Principal, Ruleset};
use rustix::time::{ClockId, clock_gettime};

use crate::{Figure, Result};

/// The shapes of patterns over names; `N` becomes a number.
const NAMES: [(&str, &[&str]); 6] = [
    ("exact", &["tool_N"]),
    ("begin", &["tool_N_*"]),
    ("end", &["*_N_tool"]),
    ("both ends", &["tool_*_N"]),
    ("inside", &["*_N_*"]),
    ("mixed", &["tool_N", "t_N_*", "*_N_x", "t_*_N", "!no_N_*", "!*_no_N", "*N*", "t?N_*"]),
];
/// The shapes of patterns over hosts.
const HOSTS: (&str, &[&str]) =
    ("hosts", &["*.hN.example", "hN.example:443", "!*.noN.example", "api*.hN.example", "[*]:8443"]);

fn list(shapes: &[&str], count: usize) -> Vec<Pattern> {
    (0..count)
        .map(|n| Pattern { text: shapes[n % shapes.len()].replace('N', &n.to_string()), line: n })
        .collect()
}

fn id(n: usize) -> Id {
    Id::parse(&format!("s{n}")).expect("a letter and a number are a name")
}

/// A bundle with so many servers and these rules, open to the web.
fn manifest(servers: usize, policy: PolicyTables) -> Manifest {
    let mut manifest = Manifest { policy, ..Manifest::default() };
    for n in 0..servers {
        let transport = Transport::Stdio {
            command: "x".into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            allowed_hosts: Vec::new(),
        };
        let server = Server { transport, tools: None, methods: Vec::new(), pricing: None };
        manifest.servers.insert(id(n), server);
    }
    manifest.sandbox.network.egress = Egress::Open;
    manifest
}

/// Both layers hold the same 1,000 patterns, the last of which is `last`.
fn both(shapes: &[&str], last: &str) -> Result<Ruleset> {
    let mut patterns = list(shapes, 999);
    patterns.push(Pattern { text: last.to_owned(), line: 1000 });
    let names = || BTreeMap::from([("s0".to_owned(), patterns.clone())]);
    let tables = || {
        if shapes == HOSTS.1 {
            let egress = BTreeMap::from([("agent".to_owned(), patterns.clone())]);
            PolicyTables { egress, ..PolicyTables::default() }
        } else {
            PolicyTables { tools: names(), secrets: names(), ..PolicyTables::default() }
        }
    };
    let machine = MachinePolicy { tables: tables(), ..MachinePolicy::default() };
    Ruleset::compile(&machine, &manifest(1, tables())).map_err(|e| e.to_string())
}

/// The median of many short rounds' means.
fn per_call(mut call: impl FnMut() -> bool, allowed: bool) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..501 {
        let start = Instant::now();
        let mut same = true;
        for _ in 0..200 {
            same &= call() == allowed;
        }
        times.push(start.elapsed() / 200);
        if !same {
            return Err("a decision is not the one that is to be measured".into());
        }
    }
    Ok(median(times))
}

/// The processor's time of this thread: what takes many milliseconds is interrupted on a busy machine.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).expect("less than a second");
    Duration::new(time.tv_sec.cast_unsigned(), nanos)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The figures.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    Ok(vec![decisions()?, compiling()?, growing()?])
}

fn decisions() -> Result<Figure> {
    println!("\none decision, 1,000 patterns in each of two layers; nanoseconds");
    println!("| patterns | question | allowed | refused |\n|---|---|---|---|");
    let mut worst = Duration::ZERO;
    let mut row = |shape: &str, question: &str, allowed: Duration, refused: Duration| {
        println!("| {shape} | {question} | {} | {} |", allowed.as_nanos(), refused.as_nanos());
        worst = worst.max(allowed).max(refused);
    };
    for (shape, shapes) in NAMES {
        let (rules, server) = (both(shapes, "last_*")?, id(0));
        let tool = |name: &'static str, allowed| {
            per_call(|| rules.tool(black_box(&server), black_box(name)).allowed, allowed)
        };
        row(shape, "tool", tool("last_tool", true)?, tool("no_such_tool_is", false)?);
        let who = Principal::Server(id(0));
        let secret = |name: &str, allowed| {
            let name = SecretName::parse(name).map_err(|e| e.to_string())?;
            per_call(|| rules.secret(black_box(&who), black_box(&name)).allowed, allowed)
        };
        row(shape, "secret", secret("last_secret", true)?, secret("no_such_secret_is", false)?);
    }
    let rules = both(HOSTS.1, "*.last.example:443")?;
    let host = |name: &str, allowed| {
        let host = Host::parse(name).map_err(|e| e.reason.to_string())?;
        let ask = || rules.egress(&Principal::Agent, black_box(&host), black_box(443)).allowed;
        per_call(ask, allowed)
    };
    let (allowed, refused) = (host("a.b.last.example", true)?, host("a.b.other.test", false)?);
    row(HOSTS.0, "host", allowed, refused);
    Ok(Figure {
        name: "policy decision",
        measured: format!("{:.2} µs, the slowest of 14", worst.as_secs_f64() * 1e6),
        target: "at most 2 µs",
        met: worst <= Duration::from_micros(2),
    })
}

/// Median of the processor's time for compiling rules of so many servers with so many patterns each.
fn compile(servers: usize, patterns: usize, rounds: usize) -> Result<Duration> {
    let tools = (0..servers).map(|n| (format!("s{n}"), list(NAMES[5].1, patterns))).collect();
    let tables = PolicyTables { tools, ..PolicyTables::default() };
    let (machine, manifest) = (MachinePolicy::default(), manifest(servers, tables));
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = processor();
        let rules = Ruleset::compile(&machine, &manifest).map_err(|e| e.to_string())?;
        times.push(processor().saturating_sub(start));
        drop(black_box(rules));
    }
    Ok(median(times))
}

fn compiling() -> Result<Figure> {
    println!("\ncompiling, 100 patterns each\n| servers | milliseconds |\n|---|---|");
    let mut last = Duration::ZERO;
    for servers in [10, 100, 1000] {
        last = compile(servers, 100, 31)?;
        println!("| {servers} | {:.2} |", last.as_secs_f64() * 1e3);
    }
    Ok(Figure {
        name: "policy compile",
        measured: format!("{:.1} ms", last.as_secs_f64() * 1e3),
        target: "at most 50 ms",
        met: last <= Duration::from_millis(50),
    })
}

/// What one pattern costs in lists of 100, 1,000 and 10,000.
fn growing() -> Result<Figure> {
    println!("\ncompiling one list\n| patterns | nanoseconds a pattern |\n|---|---|");
    let mut each = Vec::new();
    for patterns in [100, 1_000, 10_000_u32] {
        let time = compile(1, patterns as usize, 101)?;
        let one = time.as_secs_f64() * 1e9 / f64::from(patterns);
        println!("| {patterns} | {one:.0} |");
        each.push(one);
    }
    let ratio = each[2] / each[0];
    Ok(Figure {
        name: "policy compile grows",
        measured: format!("{ratio:.2} times a pattern's cost from 100 to 10,000"),
        target: "at most 2 times",
        met: ratio <= 2.0,
    })
}
