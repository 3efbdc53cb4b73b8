//! Benchmarks: `ringfence-benches PROGRAM NPM_FOLDER [--rounds N]`, started by `cargo xtask bench`;
//! `lock` in place of the folder measures the check of locks alone.
//! `ringfence-benches policy` measures the rules alone, which needs neither.
//!
//! Everything compared runs in the same rounds, one after the other, so that a busy machine is busy
//! for all. Figures are medians; a missed target is said, and is no failure.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to a person")]

mod bundle;
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

fn main() -> ExitCode {
    match all() {
        Ok(figures) => {
            println!("\n| figure | measured | target | met |\n|---|---|---|---|");
            for f in &figures {
                println!(
                    "| {} | {} | {} | {} |",
                    f.name,
                    f.measured,
                    f.target,
                    if f.met { "yes" } else { "NO" }
                );
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("ringfence-benches: {why}");
            ExitCode::FAILURE
        }
    }
}

fn all() -> Result<Vec<Figure>> {
    let mut args = std::env::args_os().skip(1);
    if std::env::args_os().nth(1).is_some_and(|first| first == "policy") {
        return policy::measure();
    }
    let program = PathBuf::from(args.next().ok_or("the program is not named")?);
    let npm = PathBuf::from(args.next().ok_or("the npm folder is not named")?);
    let mut rounds = 30;
    while let Some(flag) = args.next() {
        let value = args.next().and_then(|v| v.to_string_lossy().parse().ok());
        match (flag.to_str(), value) {
            (Some("--rounds"), Some(n)) if n >= 20 => rounds = n,
            _ => return Err("only `--rounds N`, at least 20".into()),
        }
    }
    if npm.as_os_str() == "lock" {
        return lock::measure(&program, rounds);
    }
    let mut figures = start::measure(&program, &npm, rounds)?;
    figures.push(memory::measure(&program)?);
    figures.extend(lock::measure(&program, rounds)?);
    figures.extend(policy::measure()?);
    Ok(figures)
}
