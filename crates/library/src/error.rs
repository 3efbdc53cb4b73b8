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
    // store
    /// A file or folder of the store or of the library could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    // library
    /// The home could not be prepared.
    #[error(transparent)]
    Record(#[from] ringfence_record::Error),
    /// The library cannot do what was asked. The sentence says why.
    #[error("{0}")]
    Library(String),
    /// Literal secrets were found in what was to be kept or sent.
    #[error("{} literal secret(s) found", .0.len())]
    Secrets(Vec<crate::Finding>),
    /// What was brought is not what the lock pins.
    #[error(
        "{kind} `{name}`: what was brought has the digest {found}, and the lock pins {expected}"
    )]
    NotPinned {
        /// What it is.
        kind: ringfence_bundle::Kind,
        /// Its name.
        name: String,
        /// The pin.
        expected: Digest,
        /// What was brought.
        found: Digest,
    },
}
