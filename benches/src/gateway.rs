//! What the gateway costs, in front of one fast server, side by side with what else people would
//! put there: nothing, nginx (which inspects nothing), `fastmcp` and `supergateway`.

mod contestants;
mod fast;
mod link;
mod load;
pub(crate) mod process;
mod room;
mod stdio;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use self::contestants::Contestant;
use crate::{Figure, Result};

/// Calls of a contestant in each round.
const CALLS: usize = 100;
/// Connections of the rate, as the target has it.
const CONNECTIONS: u64 = 64;
/// Milliseconds of one measurement of the rate.
const RATE_MS: u64 = 2_000;
/// Measurements of the rate.
const RATES: usize = 5;
/// A folder in memory.
const MEMORY: &str = "/dev/shm";

/// Whether this process was started by a benchmark, to be one of its parts.
pub(crate) fn part(word: &str) -> Option<Result> {
    match word {
        "worker" => Some(load::main()),
        "server" => Some(fast::http()),
        "stdio-server" => Some(fast::stdio()),
        _ => None,
    }
}

/// Nanoseconds of many calls.
#[derive(Default)]
pub(crate) struct Times(pub(crate) Vec<u64>);

impl Times {
    /// Microseconds below which so many of a hundred are.
    pub(crate) fn percentile(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let at = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    }
}

/// Latency and rate of all.
pub(crate) fn measure(program: &Path, tools: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let (server, port) = contestants::fast()?;
    let in_memory = tempfile::Builder::new()
        .prefix("ringfence-bench-")
        .tempdir_in(MEMORY)
        .map_err(|e| format!("{MEMORY}: {e}"))?;
    let mut all = vec![
        contestants::direct(port)?,
        contestants::nginx(tools, port)?,
        contestants::fastmcp(tools, port)?,
        contestants::supergateway(tools)?,
        contestants::ringfence("ringfence", program, port, None)?,
        contestants::ringfence(
            "ringfence, record in memory",
            program,
            port,
            Some(in_memory.path()),
        )?,
    ];
    let (mut times, mut sync) = latency(&mut all, rounds)?;
    let rates = rates(&mut all)?;
    drop(all);
    let mut figures = figures(&mut times, &mut sync, &rates);
    figures.push(stdio::measure(program, rounds)?);
    figures.extend(room::memory(program, port)?);
    figures.push(room::search(program, port, rounds)?);
    drop(server);
    Ok(figures)
}

/// One connection, one call after the other; and a bare `fdatasync` of a line in the same rounds.
fn latency(all: &mut [Contestant], rounds: usize) -> Result<(Vec<Times>, Times)> {
    let mut times: Vec<Times> = all.iter().map(|_| Times::default()).collect();
    let mut sync = Times::default();
    let folder = tempfile::Builder::new().prefix("ringfence-bench-").tempdir();
    let folder = folder.map_err(|e| e.to_string())?;
    // The first round only warms up.
    for round in 0..=rounds {
        for (contestant, times) in all.iter_mut().zip(&mut times) {
            let reply = contestant
                .worker
                .order(&json!({ "do": "latency", "calls": CALLS }))
                .map_err(|e| format!("{}: {e}", contestant.name))?;
            if round > 0 {
                let some = reply["ns"].as_array().into_iter().flatten();
                times.0.extend(some.filter_map(serde_json::Value::as_u64));
            }
        }
        let took = syncs(folder.path(), CALLS)?;
        if round > 0 {
            sync.0.extend(took);
        }
    }
    println!("\n{rounds} rounds of {CALLS} calls, one connection; microseconds");
    println!(
        "| in front of the server | p50 | p99 | added p50 | added p99 |\n|---|---|---|---|---|"
    );
    let base = (times[0].percentile(50), times[0].percentile(99));
    for (contestant, times) in all.iter().zip(&mut times) {
        let (p50, p99) = (times.percentile(50), times.percentile(99));
        let (more50, more99) = (p50 - base.0, p99 - base.1);
        println!("| {} | {p50:.0} | {p99:.0} | {more50:.0} | {more99:.0} |", contestant.name);
    }
    let (p50, p99) = (sync.percentile(50), sync.percentile(99));
    println!("| (a bare fdatasync of one line) | {p50:.0} | {p99:.0} | | |");
    Ok((times, sync))
}

/// Nanoseconds of writing a line and of `fdatasync`.
fn syncs(folder: &Path, count: usize) -> Result<Vec<u64>> {
    let path = folder.join("lines");
    let fail = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(fail)?;
    let line = [b'x'; 700];
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(fail)?;
        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times)
}

/// Calls a second of each, the median of some measurements in turn.
fn rates(all: &mut [Contestant]) -> Result<Vec<f64>> {
    let mut rates = vec![Vec::new(); all.len()];
    for _ in 0..RATES {
        for (contestant, rates) in all.iter_mut().zip(&mut rates) {
            let order = json!({ "do": "rate", "connections": CONNECTIONS, "ms": RATE_MS });
            let reply = contestant.worker.order(&order);
            let reply = reply.map_err(|e| format!("{}: {e}", contestant.name))?;
            let (calls, ns) = (reply["calls"].as_f64(), reply["ns"].as_f64());
            rates.push(calls.unwrap_or(0.0) / ns.unwrap_or(f64::NAN) * 1e9);
        }
    }
    println!("\n{CONNECTIONS} connections, {RATE_MS} ms, {RATES} times in turn; calls a second");
    println!("| in front of the server | median | lowest | highest |\n|---|---|---|---|");
    let mut medians = Vec::new();
    for (contestant, rates) in all.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let (middle, last) = (rates[rates.len() / 2], rates[rates.len() - 1]);
        println!("| {} | {middle:.0} | {:.0} | {last:.0} |", contestant.name, rates[0]);
        medians.push(middle);
    }
    Ok(medians)
}

fn figures(times: &mut [Times], sync: &mut Times, rates: &[f64]) -> Vec<Figure> {
    let [direct, nginx, .., ours, _] = times else { return Vec::new() };
    let mut added = |percent| {
        let base = direct.percentile(percent);
        (nginx.percentile(percent) - base, ours.percentile(percent) - base)
    };
    let (nginx50, ours50) = added(50);
    let (nginx99, ours99) = added(99);
    let sync50 = sync.percentile(50);
    let most = 2.0 * nginx50 + 1.5 * sync50;
    let [_, nginx, .., disk, memory] = rates else { return Vec::new() };
    let ratio = memory / nginx;
    vec![
        Figure {
            name: "gateway latency",
            measured: format!(
                "{:.2} of that ({ours50:.0} us to {most:.0} us; nginx adds {nginx50:.0} us, a \
                 fdatasync takes {sync50:.0} us); at p99 {ours99:.0} us, nginx {nginx99:.0} us",
                ours50 / most
            ),
            target: "adds at p50 at most 2 times what nginx adds plus 1.5 times a bare fdatasync",
            met: ours50 <= most,
        },
        Figure {
            name: "gateway rate",
            measured: format!(
                "{ratio:.2} times ({memory:.0} to {nginx:.0} calls a second); {disk:.0} with the \
                 record on disk"
            ),
            target: "at least half of nginx's with the record in memory",
            met: ratio >= 0.5,
        },
    ]
}
