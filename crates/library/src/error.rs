//! What can go wrong between here and elsewhere.

use std::path::PathBuf;

use ringfence_bundle::Digest;

/// What can go wrong between here and elsewhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bundle, or an object of the store, could not be read.
    #[error(transparent)]
    Bundle(#[from] ringfence_bundle::Error),
    /// The key to sign with is not usable.
    #[error(transparent)]
    Identity(#[from] ringfence_identity::Error),
    /// A file could not be written. What was there before still is.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Bytes changed between being pinned and being copied.
    #[error("{path} changed while it was read: {found} instead of {expected}")]
    Moved {
        /// What was read.
        path: PathBuf,
        /// The pin.
        expected: Digest,
        /// What was copied.
        found: Digest,
    },

    // git
    /// The git program could not do something. Its own words, or which bound it went past.
    #[error("cannot {doing}: {reason}")]
    Git {
        /// What was to be done.
        doing: String,
        /// Why not.
        reason: String,
    },
    /// A repository, folder or library holds what is never taken in: a link, a submodule, a name
    /// that is not plain, too much.
    #[error("`{}`: {reason}", path.escape_debug())]
    Foreign {
        /// The path in it.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}
