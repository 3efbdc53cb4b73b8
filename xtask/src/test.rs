//! Everything that must hold, in the order in which it fails fastest.

use crate::install;
use crate::matrix;
use crate::sh::{Result, command, heading, run};

fn cargo(args: &[&str]) -> Result {
    run(&mut command("cargo", args))
}

fn style() -> Result {
    heading("format");
    cargo(&["fmt", "--all", "--check"])?;
    heading("lints (a first build of everything: some minutes)");
    cargo(&[
        "clippy",
        "--quiet",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])
}

/// Everything but the cases that have an engine and no other sandbox to run on.
const WITHOUT_ENGINE: &str = "not test(/^(engine::|docker::(a_container|killed)|docker_ends::|docker_input::(what|limits|a_granted|a_denied|a_name|an_engine_that_made))/)";

/// Installs what is missing, then checks everything. Ends with the summary line of nextest.
pub(crate) fn full(rest: &[String]) -> Result {
    install::everything()?;
    style()?;
    heading("licences, banned crates, sources");
    println!(
        "known vulnerabilities need a database from the network: `cargo deny check advisories`"
    );
    // It looks at the crates of every platform, of which a build downloads only its own.
    cargo(&["fetch", "--locked"])?;
    cargo(&[
        "deny",
        "--locked",
        "--offline",
        "--all-features",
        "check",
        "licenses",
        "bans",
        "sources",
    ])?;
    heading("examples in the documentation");
    cargo(&["test", "--locked", "--workspace", "--doc"])?;
    heading("unit tests and the black-box suite, against the built program (some minutes)");
    cargo(&["build", "--quiet", "--locked", "--package", "ringfence-cli"])?;
    let mut args = vec!["nextest", "run", "--locked", "--workspace", "--no-fail-fast"];
    args.extend(rest.iter().map(String::as_str));
    if rest.is_empty() && !matrix::is_root() {
        println!("only root can start a container engine: the cases that need one are left out");
        args.extend(["-E", WITHOUT_ENGINE]);
    }
    matrix::forget()?;
    // Only the whole suite has to fill the table.
    let whole = rest.is_empty();
    matrix::with_table(command("cargo", &args).env("INSTA_UPDATE", "no"), whole)
}

/// Format, lints and unit tests; installs nothing.
pub(crate) fn quick() -> Result {
    style()?;
    heading("unit tests");
    let some = "not package(ringfence-tests) or test(/^house/)";
    cargo(&["nextest", "run", "--locked", "--workspace", "-E", some])
}

/// Accepts what the snapshot tests find.
pub(crate) fn snapshots() -> Result {
    cargo(&["build", "--quiet", "--package", "ringfence-cli"])?;
    let args = [
        "nextest",
        "run",
        "--package",
        "ringfence-tests",
        "--no-fail-fast",
        "-E",
        "test(/snapshot/)",
    ];
    run(command("cargo", &args).env("INSTA_UPDATE", "always"))
}
