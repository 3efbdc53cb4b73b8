//! Did a person on this machine say yes to these bytes?

use std::path::{Path, PathBuf};

use ringfence_bundle::{Digest, Drift, Snapshot};
use ringfence_record::MachineLog;
use serde::{Deserialize, Serialize};

/// Whether a bundle may start anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody said yes.
    Untrusted,
    /// These bytes were said yes to, and every pin holds.
    Trusted,
    /// Other bytes were said yes to, or a pin no longer holds.
    Changed,
}

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
    /// Manifest, overlay or lock are other bytes than those that were trusted.
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
    #[error("{} pin(s) no longer hold", .0.len())]
    Drifted(Vec<Drift>),
    /// There is no lock. `ringfence lock` makes one.
    #[error("{0} has no lock")]
    Unlocked(PathBuf),
    /// The digest given is not the one of the bytes that are there.
    #[error("consent was given to {given}, but the bundle is {found}")]
    WrongDigest {
        /// As given.
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
    /// The bundle could not be read.
    #[error(transparent)]
    Bundle(#[from] ringfence_bundle::Error),
    /// The event could not be written, so the store was not changed.
    #[error(transparent)]
    Record(#[from] ringfence_record::Error),
}

/// Proof that a person said yes to exactly these bytes and every pin holds. Made only by
/// [`Store::check`].
#[derive(Debug, Clone)]
pub struct TrustedBundle {
    snapshot: Snapshot,
    consent: Digest,
}

impl TrustedBundle {
    /// What was trusted.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Its consent digest.
    #[must_use]
    pub fn consent(&self) -> Digest {
        self.consent
    }
}

/// `<home>/trust.json`.
#[derive(Debug, Clone)]
pub struct Store {
    home: PathBuf,
}

/// One row of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Consent digest.
    pub consent: Digest,
    /// When, RFC 3339 UTC.
    pub at: String,
}

impl Store {
    /// The store of this home. Reads nothing yet.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// The state of a snapshot, with the drift that was found.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Bundle`].
    pub fn state(&self, _snapshot: &Snapshot) -> Result<(State, Vec<Drift>), Error> {
        let _ = &self.home;
        todo!()
    }

    /// The proof, or why there is none.
    ///
    /// # Errors
    /// [`Error::Untrusted`], [`Error::Changed`], [`Error::Unlocked`], [`Error::Drifted`], [`Error::Store`].
    pub fn check(&self, _snapshot: Snapshot) -> Result<TrustedBundle, Error> {
        todo!()
    }

    /// Whether the project's three files are still the bytes of this proof and the store still says
    /// yes. Reads them anew; cheap enough for every call.
    #[must_use]
    pub fn still(&self, _bundle: &TrustedBundle) -> bool {
        todo!()
    }

    /// Records consent to this snapshot: intent event, store, settled event, under a file lock.
    /// `consented` must be the snapshot's consent digest as text.
    ///
    /// # Errors
    /// [`Error::WrongDigest`], [`Error::Unlocked`], [`Error::Drifted`], [`Error::Store`], [`Error::Record`].
    pub fn grant(
        &self,
        _snapshot: &Snapshot,
        _consented: &str,
        _log: &MachineLog,
    ) -> Result<(), Error> {
        todo!()
    }

    /// Takes consent back. False when there was none.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Record`].
    pub fn revoke(&self, _project: &Path, _log: &MachineLog) -> Result<bool, Error> {
        todo!()
    }
}
