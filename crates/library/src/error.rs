//! What can go wrong between here and elsewhere.

use std::path::PathBuf;

use ringfence_bundle::{Digest, Drift};

use crate::archive::Fault;
use crate::sign::Flaw;

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
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of this machine is not what it must be, or what was asked for may not be done.
    #[error("{path}: {reason}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is no lock. `ringfence lock` makes one.
    #[error("{0} has no lock")]
    Unlocked(PathBuf),
    /// Pins do not hold. `ringfence lock` shows and records it.
    #[error("{} pin(s) do not hold: {}", .0.len(), named(.0))]
    Drifted(Vec<Drift>),
    /// The lock pins what manifest and overlay make together, and the overlay is not shared.
    #[error(
        "without ringfence.local.toml, which is yours and never shared, {} pin(s) do not hold: {}",
        .0.len(), named(.0)
    )]
    Overlay(Vec<Drift>),
    /// The manifest does not say what an archive is named after.
    #[error("{0}")]
    Unnamed(&'static str),
    /// Literal secrets stand in what would be shared. Each line says where.
    #[error("{} literal secret(s) would be shared:\n{}", .0.len(), .0.join("\n"))]
    Literals(Vec<String>),
    /// An archive is not one that is taken in. Nothing of it was kept.
    #[error("{path}: {fault}")]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        fault: Fault,
    },
    /// Nothing in quarantine has this id, or more than one thing begins with it.
    #[error("{0}")]
    NoSuchArchive(String),
    /// What lies in quarantine is no longer what was received.
    #[error("quarantine {id}: {reason}")]
    Quarantine {
        /// Its id.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// A signature says nothing.
    #[error(transparent)]
    Flaw(#[from] Flaw),
    /// There is no such registry, or no such version in it; or there is one where none may be.
    #[error("{message}")]
    Registry {
        /// What is wrong.
        message: String,
        /// What to type next.
        next: Option<&'static str>,
    },
    /// What a registry gives now is not what it gave this machine before, or what is expected.
    #[error("{0}")]
    Distrusted(String),

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

impl Error {
    /// Whether it is a refusal of something that came from elsewhere, rather than a file or an
    /// argument to mend.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Archive { .. }
                | Self::Quarantine { .. }
                | Self::Drifted(_)
                | Self::Overlay(_)
                | Self::Literals(_)
                | Self::Flaw(_)
                | Self::Moved { .. }
                | Self::NotPinned { .. }
                | Self::Secrets(_)
                | Self::Distrusted(_)
        )
    }

    /// What to type next, where there is one thing.
    #[must_use]
    pub fn next(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unlocked(_) | Self::Drifted(_) | Self::Moved { .. } => "ringfence lock",
            Self::NotPinned { .. } => "ringfence lock --fetch",
            Self::Overlay(_) => {
                "mv .ringfence/ringfence.local.toml . && ringfence lock && ringfence share"
            }
            Self::Registry { next, .. } => return *next,
            Self::NoSuchArchive(_) => "ringfence receive --list",
            Self::Unnamed(_) => "ringfence validate",
            _ => return None,
        })
    }
}

/// The first few, as `kind name`.
fn named(drift: &[Drift]) -> String {
    let few: Vec<_> =
        drift.iter().take(8).map(|row| format!("{} {}", row.kind, row.name)).collect();
    let more = if drift.len() > few.len() { ", …" } else { "" };
    format!("{}{more}", few.join(", "))
}
