//! Developer chores: `cargo xtask first-run | test | check | bench`.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore talks to the person who typed it"
)]

mod bench;
mod first_run;
mod install;
mod matrix;
mod sh;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <chore>

  first-run   build the program and run examples/first-run from end to end
  test        install what the tests need, then format, lint, licence and test everything
  check       quick: format, lints, unit tests
  bench       measure against the figures in PERFORMANCE.md
  install     only install what the tests and benchmarks need
  snapshots   run the suite and accept what the snapshot tests find, for review with git diff
";

fn is_help(word: &str) -> bool {
    matches!(word, "help" | "--help" | "-h")
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let chore = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    // Asking what a chore does must not start it.
    if [chore.as_str()].into_iter().chain(rest.iter().map(String::as_str)).any(is_help) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let done = match chore.as_str() {
        "first-run" => first_run::run_example(),
        "test" => test::full(&rest),
        "check" => test::quick(),
        "bench" => bench::run(&rest),
        "install" => install::everything().map(|_| ()),
        "snapshots" => test::snapshots(),
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\nxtask {chore}: {why}");
            ExitCode::FAILURE
        }
    }
}
