//! Why evidence could not be written or read.

use std::path::PathBuf;

use crate::RunId;

/// Why evidence could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An append or its `fdatasync` failed: whatever waited for it must not happen.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The machine's folder is not safe to keep evidence in, or cannot be made.
    #[error(transparent)]
    Folder(#[from] ringfence_identity::Error),
    /// The writer has stopped, after an earlier error or because the record is sealed.
    #[error("the record is closed")]
    Closed,
    /// One event would make a line longer than 1 MiB.
    #[error("an event of {0} bytes is too large for the record (at most 1 MiB)")]
    TooLarge(usize),
    /// A line is not what a recorder writes. `ringfence audit verify` says what was done to it.
    #[error("{path}:{line}: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// No run has this id or prefix.
    #[error("{0}")]
    NoSuchRun(String),
    /// Several runs' ids begin so: more of the id is needed.
    #[error("{}", crate::read::several(.prefix, .runs.iter().map(RunId::to_string)))]
    Ambiguous {
        /// What was given.
        prefix: String,
        /// All of them, sorted.
        runs: Vec<RunId>,
    },
}
