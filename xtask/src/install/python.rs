//! Python packages in an environment of their own, pinned by hashes.

use std::fs;
use std::path::Path;

use super::{empty, read, write};
use crate::sh::{Result, command, heading, repository, run};

/// Debian's, and no other that may be first on the path.
const PYTHON: &str = "/usr/bin/python3";

/// Installs what is missing into `python`.
pub(super) fn install(tools: &Path) -> Result {
    heading("Python packages (xtask/tools/requirements.txt, pinned by hashes)");
    let from = repository().join("xtask/tools");
    print!("{}", read(&from.join("requirements.in"))?);
    let to = tools.join("python");
    // Programs of an environment name its folder: one that was moved is made anew.
    let list = from.join("requirements.txt");
    let wanted = format!("{}\n{}", to.display(), read(&list)?);
    // The stamp is written last, so that an interrupted install is done again.
    let stamp = to.join("installed.txt");
    let there = to.join("bin/python").exists();
    if there && fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    empty(&to)?;
    run(command(PYTHON, &["-m", "venv"]).arg(&to))?;
    let pip = to.join("bin/pip").display().to_string();
    let args = ["install", "--quiet", "--no-input", "--disable-pip-version-check"];
    let pinned = ["--require-hashes", "--only-binary=:all:", "-r"];
    run(command(&pip, &args).args(pinned).arg(&list))?;
    write(&stamp, &wanted)
}
