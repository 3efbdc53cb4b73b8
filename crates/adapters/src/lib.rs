//! How does each agent CLI spell it? Data files, one per CLI.

use serde::Deserialize;

/// What stands at a protected path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
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
/// sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protected {
    /// Relative to the project.
    pub path: String,
    /// What it is.
    pub kind: Kind,
}

/// Every path that any adapter names, without duplicates, sorted.
#[must_use]
pub fn protected() -> Vec<Protected> {
    todo!()
}
