//! The egress proxy beside Squid: the same client, the same names, the same servers, in a network of
//! its own. Ringfence is the whole program, `ringfence run` with the client as its agent: the trial of
//! its sandbox, the ruleset, the resolver and the signed record on disk are all there. Squid is Debian's,
//! with what a careful person would write by hand: names compared as they are, one port, private
//! addresses refused, a password, an access log, no cache.

mod client;
mod contestants;
mod wire;
mod world;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::gateway::Times;
use crate::gateway::process::{Running, memory};
use crate::{Figure, Result};
use contestants::Contestant;

/// CONNECTs of a contestant in each round.
const CALLS: usize = 100;
/// Clients at a time where new tunnels are counted.
const CLIENTS: u64 = 16;
/// Milliseconds of one measurement of a rate.
const RATE_MS: u64 = 2_000;
/// Measurements of each rate.
const RATES: usize = 5;
/// Open tunnels where memory is measured.
const HELD: u64 = 1_000;

/// Whether this process was started by this benchmark, to be one of its parts.
pub(crate) fn part(word: &str) -> Option<Result> {
    match word {
        "egress-room" => Some(room()),
        "egress-world" => Some(world::main()),
        "egress-client" => Some(client::main()),
        _ => None,
    }
}

fn own() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| e.to_string())
}

/// All of it, in namespaces that end with it.
pub(crate) fn measure(program: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut command = Command::new("unshare");
    if !rustix::process::getuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--net", "--mount", "--propagation", "private"]).arg(own()?);
    command.arg("egress-room").arg(program).arg(rounds.to_string());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("unshare: {e}"))?;
    let stdout = child.stdout.take().ok_or("stdout is a pipe")?;
    let mut figures = None;
    for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
        match serde_json::from_str::<Value>(&line) {
            Ok(Value::Array(all)) => figures = Some(all),
            _ => println!("{line}"),
        }
    }
    let _ = child.wait();
    let figures = figures.ok_or("the measurement ended early")?;
    let names = NAMES.iter().zip(figures);
    Ok(names
        .map(|((name, target), figure)| Figure {
            name,
            measured: figure["measured"].as_str().unwrap_or_default().to_owned(),
            target,
            met: figure["met"] == true,
        })
        .collect())
}

/// The figures and what they are to be.
const NAMES: [(&str, &str); 6] = [
    ("egress CONNECT at p50", "no slower than Squid"),
    ("egress CONNECT at p99", "no slower than Squid"),
    ("egress new tunnels", "at least 2 times as many a second as Squid"),
    ("egress bulk, one tunnel", "at least Squid's"),
    ("egress bulk, 64 tunnels", "at least Squid's"),
    ("egress memory", "with 1,000 open tunnels at most a third of Squid's"),
];

/// The supervisor's side.
fn room() -> Result {
    let mut args = std::env::args_os().skip(2);
    let program = PathBuf::from(args.next().ok_or("no program")?);
    let rounds = args.next().and_then(|n| n.to_string_lossy().parse().ok()).ok_or("no rounds")?;
    let folder = tempfile::Builder::new().prefix("ringfence-bench-").tempdir();
    let folder = folder.map_err(|e| e.to_string())?;
    let mut world = Command::new("unshare");
    world.arg("--net").arg(own()?).arg("egress-world").stdout(Stdio::piped());
    let mut world = Running::start("the world", &mut world)?;
    world::join(&mut world, folder.path())?;
    let mut all = [contestants::squid(folder.path())?, contestants::ringfence(&program)?];
    let figures = all_figures(&mut all, rounds)?;
    println!("{}", Value::Array(figures));
    Ok(())
}

fn figure(measured: String, met: bool) -> Value {
    json!({ "measured": measured, "met": met })
}

fn all_figures(all: &mut [Contestant; 2], rounds: usize) -> Result<Vec<Value>> {
    let mut times = set_up(all, rounds)?;
    let mut figures = Vec::new();
    for percent in [50, 99] {
        let [squid, ours] = &mut times;
        let (squid, ours) = (squid.percentile(percent), ours.percentile(percent));
        let measured = format!("{:.2} times ({ours:.0} us to {squid:.0} us)", ours / squid);
        figures.push(figure(measured, ours <= squid));
    }
    let rates = rates(all, &json!({ "do": "rate", "clients": CLIENTS, "ms": RATE_MS }), "tunnels")?;
    let ratio = rates[1] / rates[0];
    let measured = format!("{ratio:.2} times ({:.0} to {:.0} a second)", rates[1], rates[0]);
    figures.push(figure(measured, ratio >= 2.0));
    for tunnels in [1_u64, 64] {
        let order = json!({ "do": "bulk", "tunnels": tunnels, "ms": RATE_MS });
        let rates = self::rates(all, &order, "bytes")?;
        let ratio = rates[1] / rates[0];
        let mib = rates.map(|rate| rate / f64::from(1 << 20));
        let measured = format!("{ratio:.2} times ({:.0} to {:.0} MiB/s)", mib[1], mib[0]);
        figures.push(figure(measured, ratio >= 1.0));
    }
    figures.push(held(all)?);
    Ok(figures)
}

/// One CONNECT after the other, each a connection of its own: from its beginning to the answer.
fn set_up(all: &mut [Contestant; 2], rounds: usize) -> Result<[Times; 2]> {
    let mut times = [Times::default(), Times::default()];
    // The first round only warms up.
    for round in 0..=rounds {
        for (contestant, times) in all.iter_mut().zip(&mut times) {
            let reply = contestant.order(&json!({ "do": "connect", "calls": CALLS }))?;
            if round > 0 {
                let some = reply["ns"].as_array().into_iter().flatten();
                times.0.extend(some.filter_map(Value::as_u64));
            }
        }
    }
    println!(
        "\n{rounds} rounds of {CALLS} CONNECTs; microseconds\n| proxy | p50 | p99 |\n|---|---|---|"
    );
    for (contestant, times) in all.iter().zip(&mut times) {
        let (p50, p99) = (times.percentile(50), times.percentile(99));
        println!("| {} | {p50:.0} | {p99:.0} |", contestant.name);
    }
    Ok(times)
}

/// So many a second of each, the median of some measurements in turn.
fn rates(all: &mut [Contestant; 2], order: &Value, what: &str) -> Result<[f64; 2]> {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..RATES {
        for (contestant, rates) in all.iter_mut().zip(&mut rates) {
            let reply = contestant.order(order)?;
            let (count, ns) = (reply["count"].as_f64(), reply["ns"].as_f64());
            rates.push(count.unwrap_or(0.0) / ns.unwrap_or(f64::NAN) * 1e9);
        }
    }
    println!(
        "\n{order}, {RATES} times in turn; {what} a second\n| proxy | median | lowest | highest |\n|---|---|---|---|"
    );
    let mut medians = [0.0; 2];
    for ((contestant, rates), median) in all.iter().zip(&mut rates).zip(&mut medians) {
        rates.sort_by(f64::total_cmp);
        *median = rates[rates.len() / 2];
        let (first, last) = (rates[0], rates[rates.len() - 1]);
        println!("| {} | {median:.0} | {first:.0} | {last:.0} |", contestant.name);
    }
    Ok(medians)
}

/// KiB of each proxy's process with many open tunnels.
fn held(all: &mut [Contestant; 2]) -> Result<Value> {
    println!(
        "\n| proxy | before | with {HELD} open tunnels | of it anonymous | a tunnel |\n|---|---|---|---|---|"
    );
    let mut most = [0.0; 2];
    let mut anonymous = [0.0; 2];
    for (contestant, (most, anonymous)) in all.iter_mut().zip(most.iter_mut().zip(&mut anonymous)) {
        let process = contestant.process;
        let before = memory(process, "Rss:")?;
        contestant.order(&json!({ "do": "hold", "tunnels": HELD }))?;
        (*most, *anonymous) = (memory(process, "Rss:")?, memory(process, "Anonymous:")?);
        contestant.order(&json!({ "do": "let-go" }))?;
        println!(
            "| {} | {before:.0} KiB | {most:.0} KiB | {anonymous:.0} KiB | {:.1} KiB |",
            contestant.name,
            (*most - before) / HELD as f64
        );
    }
    let ratio = most[1] / most[0];
    let mib = |kib: f64| kib / 1024.0;
    Ok(figure(
        format!(
            "{ratio:.2} of it ({:.1} MiB to {:.1} MiB; anonymous {:.1} MiB to {:.1} MiB)",
            mib(most[1]),
            mib(most[0]),
            mib(anonymous[1]),
            mib(anonymous[0])
        ),
        ratio <= 1.0 / 3.0,
    ))
}
