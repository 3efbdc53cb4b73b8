//! What can go wrong when a bundle is read.

use std::path::PathBuf;

use crate::Diagnostic;

/// Why a bundle could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no manifest in this folder. `ringfence init` makes one.
    #[error("no manifest at {0}")]
    Missing(PathBuf),
    /// The strict parse found these; at least one is an error.
    #[error("{} problem(s) in the bundle", .0.len())]
    Invalid(Vec<Diagnostic>),
    /// The lock could not be written; the one that was there still is.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What lies in the content store is not what its address says, or cannot be read.
    #[error("{path}: {reason}")]
    Object {
        /// The object's folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A program that the manifest names could not be found or read.
    #[error("{path}: {reason}")]
    Program {
        /// The program.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}
