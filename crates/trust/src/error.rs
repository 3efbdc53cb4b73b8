//! Why trust was refused or could not be recorded.

use std::path::PathBuf;

use ringfence_bundle::{Digest, Drift};

use crate::Moved;

/// Why trust was refused or could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody on this machine said yes to this project. `ringfence trust` shows it and asks.
    #[error("{project} is not trusted on this machine")]
    Untrusted {
        /// The project.
        project: PathBuf,
    },
    /// Manifest, overlay or lock are other bytes than those that were trusted. `ringfence trust`
    /// shows what they are now and asks.
    #[error("{project} has changed since it was trusted")]
    Changed {
        /// The project.
        project: PathBuf,
        /// What was trusted.
        trusted: Digest,
        /// What is there.
        found: Digest,
    },
    /// A pin no longer holds. `ringfence lock` shows and records it.
    #[error("{} pin(s) no longer hold: {}", .0.len(), named(.0))]
    Drifted(Vec<Drift>),
    /// A command runs another file, or other bytes, than those that were shown. `ringfence trust`
    /// shows what it runs now and asks.
    #[error("{} program(s) are not those that were trusted{}", .0.len(), each(.0))]
    Programs(Vec<Moved>),
    /// The yes is from a version that did not record programs. `ringfence trust` asks again.
    #[error(
        "{project} was trusted by an older version, which did not record what its commands run"
    )]
    Unrecorded {
        /// The project.
        project: PathBuf,
    },
    /// A command names no file that could be started.
    #[error("the program of {who}: {reason}")]
    Missing {
        /// Whose command it is.
        who: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no lock. `ringfence lock` makes one.
    #[error("{0} has no lock")]
    Unlocked(PathBuf),
    /// The digest given is not the one of the bytes that are there.
    #[error("consent was given to {given}, but the review is {found}")]
    WrongDigest {
        /// As given, escaped and cut to 80 characters.
        given: String,
        /// As found.
        found: Digest,
    },
    /// The store is not readable: nothing is trusted until it is mended.
    #[error("{path}: {reason}; nothing is trusted until this is mended")]
    Store {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The store could not be written; it is as it was before.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The bundle could not be read.
    #[error(transparent)]
    Bundle(#[from] ringfence_bundle::Error),
    /// The event could not be written, so the store was not changed.
    #[error(transparent)]
    Record(#[from] ringfence_record::Error),
}

/// One line each.
fn each(moved: &[Moved]) -> String {
    moved.iter().take(8).map(|moved| format!("\n{moved}")).collect()
}

/// The first few, as `kind name`.
fn named(drift: &[Drift]) -> String {
    let few: Vec<_> =
        drift.iter().take(8).map(|row| format!("{} {}", row.kind, row.name)).collect();
    let more = if drift.len() > few.len() { ", …" } else { "" };
    format!("{}{more}", few.join(", "))
}
