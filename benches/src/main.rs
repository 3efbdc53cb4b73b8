//! Benchmarks: `ringfence-benches PROGRAM TOOLS [SECTION...] [--rounds N] [--json]`, started by
//! `cargo xtask bench`; TOOLS is the folder that `cargo xtask install` fills. Sections: `start`,
//! `memory`, `lock`, `policy`, `gateway`, `egress`; all of them when none is named.
//!
//! Everything compared runs in the same rounds, one after the other, so that a busy machine is busy
//! for all. Figures are medians; a missed target is said, and is no failure.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to a person")]
#![allow(clippy::disallowed_methods, reason = "it dials servers that it started itself")]

mod bundle;
mod egress;
mod gateway;
mod lock;
mod memory;
mod policy;
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

/// What a benchmark ends with; the error is for people.
type Result<T = ()> = std::result::Result<T, String>;

/// One line of the table.
struct Figure {
    /// Name, as PERFORMANCE.md has it.
    name: &'static str,
    /// What was measured, for people.
    measured: String,
    /// What it is to be.
    target: &'static str,
    /// Whether it is.
    met: bool,
}

/// What the person asked for.
struct Wanted {
    program: PathBuf,
    tools: PathBuf,
    sections: Vec<String>,
    rounds: usize,
    json: bool,
}

/// All sections, in the order in which they run.
const SECTIONS: &[&str] = &["start", "memory", "lock", "policy", "gateway", "egress"];

fn main() -> ExitCode {
    let part = std::env::args()
        .nth(1)
        .and_then(|word| gateway::part(&word).or_else(|| egress::part(&word)));
    if let Some(done) = part {
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("ringfence-benches: {why}");
                ExitCode::FAILURE
            }
        };
    }
    match wanted().and_then(|wanted| Ok((measure(&wanted)?, wanted.json))) {
        Ok((figures, json)) => {
            show(&figures, json);
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("ringfence-benches: {why}");
            ExitCode::FAILURE
        }
    }
}

fn show(figures: &[Figure], json: bool) {
    println!("\n| figure | measured | target | met |\n|---|---|---|---|");
    for f in figures {
        let met = if f.met { "yes" } else { "NO" };
        println!("| {} | {} | {} | {met} |", f.name, f.measured, f.target);
    }
    if json {
        // The last line, for programs.
        let all: Vec<_> = figures
            .iter()
            .map(|f| {
                serde_json::json!({
                    "figure": f.name, "measured": f.measured, "target": f.target, "met": f.met,
                })
            })
            .collect();
        println!("{}", serde_json::json!({ "version": 1, "figures": all }));
    }
}

fn wanted() -> Result<Wanted> {
    let mut args = std::env::args_os().skip(1);
    // Both are named in manifests too, and used from other folders.
    let place = |given: Option<std::ffi::OsString>, what: &str| {
        let given = given.ok_or_else(|| format!("{what} is not named"))?;
        std::path::absolute(given).map_err(|error| format!("{what}: {error}"))
    };
    let program = place(args.next(), "the program")?;
    let tools = place(args.next(), "the folder of tools")?;
    let mut wanted = Wanted { program, tools, sections: Vec::new(), rounds: 30, json: false };
    while let Some(word) = args.next() {
        match word.to_str() {
            Some("--json") => wanted.json = true,
            Some("--rounds") => {
                wanted.rounds = args
                    .next()
                    .and_then(|v| v.to_string_lossy().parse().ok())
                    .filter(|n| *n >= 20)
                    .ok_or("`--rounds N`, at least 20")?;
            }
            Some(name) if SECTIONS.contains(&name) => wanted.sections.push(name.to_owned()),
            _ => {
                return Err(format!(
                    "`{}` is no section: {}, or `--rounds N`, `--json`",
                    word.display(),
                    SECTIONS.join(", ")
                ));
            }
        }
    }
    Ok(wanted)
}

fn measure(wanted: &Wanted) -> Result<Vec<Figure>> {
    let Wanted { program, tools, rounds, .. } = wanted;
    let mut figures = Vec::new();
    for section in SECTIONS {
        if !wanted.sections.is_empty() && !wanted.sections.iter().any(|s| s == section) {
            continue;
        }
        match *section {
            "start" => figures.extend(start::measure(program, tools, *rounds)?),
            "memory" => figures.push(memory::measure(program)?),
            "lock" => figures.extend(lock::measure(program, *rounds)?),
            "policy" => figures.extend(policy::measure()?),
            "egress" => figures.extend(egress::measure(program, *rounds)?),
            _ => figures.extend(gateway::measure(program, tools, *rounds)?),
        }
    }
    Ok(figures)
}
