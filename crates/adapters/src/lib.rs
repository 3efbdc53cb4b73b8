//! How does each agent CLI spell it? Data files, one per CLI.

#![forbid(unsafe_code)]

use std::sync::LazyLock;

use ringfence_bundle::{Id, check_relative};
use serde::Deserialize;

#[cfg(test)]
mod tests;

/// What stands at a protected path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A folder.
    Dir,
    /// A JSON file: an empty one reads `{}`.
    Json,
    /// Any other file: an empty one is valid.
    File,
}

/// A path in a project that configures or hooks an agent CLI, and so may never be written from a
/// sandbox. Files of instructions (`AGENTS.md`, `CLAUDE.md`) are not among them: agents rightly
/// edit those.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protected {
    /// Relative to the project: plain components, no `..`.
    pub path: String,
    /// What it is.
    pub kind: Kind,
}

/// What is known of one agent CLI.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// As a manifest names it: `[settings.<name>]`, `sandbox.state`, `extensions.*.target`.
    pub name: Id,
    /// As a person reads it.
    pub title: String,
    /// Where it looks for MCP servers in a project: files, and folders of such files.
    #[serde(default)]
    pub mcp: Vec<String>,
    /// What configures it in a project.
    pub protected: Vec<Protected>,
}

/// Why a data file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It does not parse.
    #[error("{file}: {source}")]
    Parse {
        /// Its name.
        file: &'static str,
        /// Why.
        source: toml::de::Error,
    },
    /// A path leads out of the project, or two adapters say different things of one path.
    #[error("{file}: {reason}")]
    Path {
        /// Its name.
        file: &'static str,
        /// Which path, and what is wrong.
        reason: String,
    },
}

macro_rules! data {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../data/", $name, ".toml")))),+]
    };
}

/// Every data file, by name.
const FILES: [(&str, &str); 15] = data![
    "aider",
    "claude-code",
    "cline",
    "codex",
    "continue",
    "copilot",
    "cursor",
    "droid",
    "gemini",
    "kilo",
    "opencode",
    "pi",
    "qwen",
    "vscode",
    "zed",
];

static ADAPTERS: LazyLock<Vec<Adapter>> = LazyLock::new(|| {
    parse(&FILES).expect("the data files are part of the program and a test parses every one")
});

/// Every adapter, sorted by name.
#[must_use]
pub fn adapters() -> &'static [Adapter] {
    &ADAPTERS
}

/// The adapter of one name.
#[must_use]
pub fn adapter(name: &Id) -> Option<&'static Adapter> {
    adapters().iter().find(|adapter| adapter.name == *name)
}

/// Every path that any adapter names, without duplicates, sorted.
#[must_use]
pub fn protected() -> Vec<Protected> {
    merged(adapters())
}

/// Every place in a project where any adapter's program looks for MCP servers, sorted.
#[must_use]
pub fn mcp_files() -> Vec<&'static str> {
    let mut files: Vec<_> =
        adapters().iter().flat_map(|adapter| adapter.mcp.iter().map(String::as_str)).collect();
    files.sort_unstable();
    files.dedup();
    files
}

fn merged(adapters: &[Adapter]) -> Vec<Protected> {
    let mut paths: Vec<Protected> =
        adapters.iter().flat_map(|adapter| adapter.protected.iter().cloned()).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Parses data files strictly.
fn parse(files: &[(&'static str, &str)]) -> Result<Vec<Adapter>, Error> {
    let mut adapters = Vec::new();
    for (file, text) in files.iter().copied() {
        let adapter: Adapter =
            toml::from_str(text).map_err(|source| Error::Parse { file, source })?;
        let fault = |reason: String| Error::Path { file, reason };
        if adapter.name.as_str() != file {
            return Err(fault(format!("it is named `{}`", adapter.name)));
        }
        for protected in &adapter.protected {
            check_relative(&format!("./{}", protected.path)).map_err(fault)?;
        }
        for path in &adapter.mcp {
            check_relative(&format!("./{path}")).map_err(fault)?;
            // An agent could write it otherwise, and so declare servers for the next run.
            let held = |it: &Protected| std::path::Path::new(path).starts_with(&it.path);
            if !adapter.protected.iter().any(held) {
                return Err(fault(format!("`{path}` is not protected")));
            }
        }
        adapters.push(adapter);
        let all = merged(&adapters);
        if let Some(pair) = all.windows(2).find(|pair| pair[0].path == pair[1].path) {
            return Err(fault(format!("`{}` is of two kinds", pair[0].path)));
        }
    }
    adapters.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(adapters)
}
