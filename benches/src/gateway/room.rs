//! What the gateway needs: memory by session, and time to search a hundred thousand tools.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use super::{Times, contestants};
use crate::bundle::Bundle;
use crate::{Figure, Result};

/// Open sessions, each with a connection of its own.
const SESSIONS: u64 = 1_000;
/// Servers of 100 tools each.
const SERVERS: usize = 1_000;

/// At idle, and what a session adds.
pub(super) fn memory(program: &Path, server: u16) -> Result<[Figure; 2]> {
    let manifest = contestants::manifest(&contestants::over_http(server));
    let bundle = Bundle::pinned(program, &manifest, None)?;
    let serving = contestants::serve(&bundle)?;
    let mut worker = contestants::worker(&serving.order("/fast/mcp", "echo"))?;
    worker.order(&json!({ "do": "latency", "calls": 100 }))?;
    let idle = serving.process.memory()?;
    worker.order(&json!({ "do": "hold", "sessions": SESSIONS }))?;
    let held = serving.process.memory()?;
    let each = (held - idle) / SESSIONS as f64;
    let mib = idle / 1024.0;
    Ok([
        Figure {
            name: "gateway memory",
            measured: format!("{mib:.1} MiB resident, after 100 calls"),
            target: "at most 15 MiB",
            met: mib <= 15.0,
        },
        Figure {
            name: "gateway memory of a session",
            measured: format!("{each:.1} KiB, {SESSIONS} of them open"),
            target: "at most 64 KiB",
            met: each <= 64.0,
        },
    ])
}

/// `tools_search` at the compact door.
pub(super) fn search(program: &Path, server: u16, rounds: usize) -> Result<Figure> {
    let mut manifest = "version = 1\n\n[agent]\nname = \"bench\"\n".to_owned();
    for number in 0..SERVERS {
        // Writing to a string cannot fail.
        let _ = write!(
            manifest,
            "\n[servers.s{number}]\ntype = \"http\"\nurl = \"http://127.0.0.1:{server}/many/{number}\"\n"
        );
    }
    let bundle = Bundle::pinned(program, &manifest, None)?;
    let serving = contestants::serve(&bundle)?;
    let mut worker = contestants::worker(&serving.order("/compact/mcp", "tools_search"))?;
    let mut times = Times::default();
    let words =
        ["archive invoice", "merge", "share calendar document", "s17 delete", "nothing such"];
    for round in 0..=rounds {
        for query in words {
            let params = json!({ "name": "tools_search", "arguments": { "query": query } });
            let order = json!({ "do": "ask", "method": "tools/call", "params": params });
            let reply = worker.order(&order)?;
            let found = reply["result"].to_string();
            if round == 0 && query == "archive invoice" && !found.contains("archive_invoice") {
                return Err(format!("the search finds nothing: {found}"));
            }
            // The first round only warms up.
            if round > 0 {
                times.0.extend(reply["ns"].as_u64());
            }
        }
    }
    let (p50, p99) = (times.percentile(50) / 1e3, times.percentile(99) / 1e3);
    Ok(Figure {
        name: "gateway search",
        measured: format!("{p50:.2} ms, {p99:.2} ms at p99, {SERVERS} servers with 100 tools each"),
        target: "under 5 ms",
        met: p50 < 5.0,
    })
}
