//! What tests and benchmarks need from elsewhere: Debian, npm, Python and Cargo packages, by name.

mod debian;
mod image;
mod npm;
mod python;
mod unpacked;

use std::fs;
use std::path::{Path, PathBuf};

use crate::sh::{Result, command, heading, quiet, run, tools};

/// Cargo tools, their versions, and whether a newer one that is already there will do.
const CARGO: &[(&str, &str)] = &[("cargo-nextest", "0.9.143"), ("cargo-deny", "0.20.2")];

/// Where the packages are.
pub(crate) struct Installed {
    /// The folder that holds all of them: `npm`, `python`, `debian`, `image`, `node22`, one
    /// folder for each version of the conformance suite.
    pub(crate) tools: PathBuf,
}

/// Installs whatever is missing; quick when nothing is.
pub(crate) fn everything() -> Result<Installed> {
    debian::install()?;
    let folder = tools();
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    // Programs of a Python environment name their folder in full: no link on the way to it.
    let tools = folder.canonicalize().map_err(|e| format!("{}: {e}", folder.display()))?;
    unpacked::install(&tools)?;
    image::install(&tools)?;
    npm::install(&tools)?;
    python::install(&tools)?;
    for (name, version) in CARGO {
        cargo(name, version)?;
    }
    Ok(Installed { tools })
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Makes a folder that is empty.
fn empty(path: &Path) -> Result {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {e}", path.display()));
        }
        _ => {}
    }
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// `major.minor.patch` as numbers that compare.
fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-']).map_while(|n| n.parse().ok()).collect()
}

fn cargo(name: &str, version: &str) -> Result {
    heading(&format!("{name} {version} or newer"));
    let subcommand = name.trim_start_matches("cargo-");
    let found = quiet(&mut command("cargo", &[subcommand, "--version"]));
    let found = found.as_deref().and_then(|text| text.split_whitespace().nth(1));
    if let Some(found) = found.filter(|found| numbers(found) >= numbers(version)) {
        println!("{found} is there");
        return Ok(());
    }
    println!("building it takes a few minutes, once");
    let root = tools().join("cargo");
    let target = tools().join("build");
    let args = ["install", "--quiet", "--locked", name, "--version", version];
    // Outside the repository, whose own Cargo settings are not for other programs.
    let install = run(command("cargo", &args)
        .arg("--root")
        .arg(&root)
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(std::env::temp_dir()));
    let _ = fs::remove_dir_all(&target);
    install
}
