//! The benchmarks, with what they are measured against.

use crate::install;
use crate::sh::{self, Result, command, heading, programs};

/// Installs what is compared with, builds for release, measures.
pub(crate) fn run(rest: &[String]) -> Result {
    let installed = install::everything()?;
    heading("release build");
    sh::run(&mut command(
        "cargo",
        &[
            "build",
            "--quiet",
            "--locked",
            "--release",
            "-p",
            "ringfence-cli",
            "-p",
            "ringfence-benches",
        ],
    ))?;
    let folder = programs("release")?;
    let mut bench = command(&folder.join("ringfence-benches").display().to_string(), &[]);
    bench.arg(folder.join("ringfence")).arg(installed.tools).args(rest);
    sh::run(&mut bench)
}
