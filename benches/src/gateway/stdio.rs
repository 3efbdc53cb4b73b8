//! What `ringfence mcp` adds to a stdio server, against starting that server oneself.

use std::path::Path;

use serde_json::{Value, json};

use super::process::Worker;
use super::{CALLS, Times, contestants, syncs};
use crate::{Figure, Result};

fn latency(worker: &mut Worker, times: &mut Times) -> Result {
    let reply = worker.order(&json!({ "do": "latency", "calls": CALLS }))?;
    times.0.extend(reply["ns"].as_array().into_iter().flatten().filter_map(Value::as_u64));
    Ok(())
}

pub(super) fn measure(program: &Path, rounds: usize) -> Result<Figure> {
    let mut direct = contestants::stdio()?;
    let (mut ours, bundle) = contestants::ringfence_stdio(program)?;
    let folder = tempfile::Builder::new().prefix("ringfence-bench-").tempdir();
    let folder = folder.map_err(|e| e.to_string())?;
    let (mut without, mut with, mut sync) = (Times::default(), Times::default(), Times::default());
    for round in 0..=rounds {
        // The first round only warms up.
        if round == 1 {
            (without, with, sync) = (Times::default(), Times::default(), Times::default());
        }
        latency(&mut direct, &mut without)?;
        latency(&mut ours, &mut with)?;
        sync.0.extend(syncs(folder.path(), CALLS)?);
    }
    drop((direct, ours, bundle));
    println!("\n{rounds} rounds of {CALLS} calls over stdio; microseconds");
    println!("| in front of the server | p50 | p99 |\n|---|---|---|");
    for (name, times) in [("direct", &mut without), ("ringfence mcp", &mut with)] {
        println!("| {name} | {:.0} | {:.0} |", times.percentile(50), times.percentile(99));
    }
    let (added, sync) = (with.percentile(50) - without.percentile(50), sync.percentile(50));
    let most = 300.0 + sync;
    Ok(Figure {
        name: "gateway through stdio",
        measured: format!("adds {added:.0} us at p50; a fdatasync takes {sync:.0} us"),
        target: "adds at most 300 us and one fdatasync",
        met: added <= most,
    })
}
