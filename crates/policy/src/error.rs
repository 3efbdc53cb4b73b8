//! What can go wrong with policy.

use std::path::PathBuf;

use ringfence_bundle::{Diagnostic, Severity};

/// Why policy could not be loaded or a bundle asks for too much.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `machine.toml` is not valid: nothing runs until it is mended.
    #[error("{} problem(s) in machine.toml", .0.len())]
    Machine(Vec<Diagnostic>),
    /// The bundle asks for more than the machine allows, or for what cannot be enforced; each
    /// finding names both places.
    #[error("the bundle asks for more than this machine allows ({} finding(s))", .0.len())]
    Exceeds(Vec<Diagnostic>),
    /// `machine.toml` was not replaced: it is not what it was, is no regular file, or cannot be
    /// written. What was there is still there.
    #[error("{}: {reason}", path.display())]
    Replace {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A ruleset from a newer Ringfence: use the program that wrote it.
    #[error("ruleset version {found} is newer than {known}, which this program understands")]
    Newer {
        /// What it says.
        found: u32,
        /// What is understood.
        known: u32,
    },
    /// A serialised ruleset that does not parse, or that holds what `compile` would have refused.
    /// It was cut, edited, or written by another program.
    #[error("not a ruleset: {0}")]
    Ruleset(String),
}

/// An error finding without a place of its own; its message names both places.
pub(crate) fn finding(rule: &'static str, message: String, help: Option<String>) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        rule,
        message,
        at: None,
        help,
        next: Some("ringfence validate".to_owned()),
    }
}
