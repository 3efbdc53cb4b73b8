//! Writing evidence.

use std::path::{Path, PathBuf};

use ringfence_identity::Signer;

use crate::{Event, RunId};

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
    /// The writer has stopped, after an earlier error or because the record is sealed.
    #[error("the record is closed")]
    Closed,
    /// No run has this id or prefix, or more than one has.
    #[error("{0}")]
    NoSuchRun(String),
}

/// Proof that an event is durable. Made only here; whoever needs evidence before an effect demands one.
#[derive(Debug)]
#[must_use]
pub struct Receipt {
    pub(crate) seq: u64,
}

impl Receipt {
    /// The event's sequence number in its file.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

/// What a sealed file ends with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Lines in the file.
    pub lines: u64,
    /// Hash of the last one.
    pub head: String,
}

/// Writes one run's `events.jsonl`. Clones share one writer thread that commits in groups.
#[derive(Debug, Clone)]
pub struct Recorder {}

impl Recorder {
    /// Makes `<home>/runs/<id>/` (0700) and its file, exclusively.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn create(
        _home: &Path,
        _run: &RunId,
        _signer: Signer,
        _machine: &MachineLog,
    ) -> Result<Self, Error> {
        todo!()
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        todo!()
    }

    /// Appends an event and returns when its group is signed and on disk.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Closed`].
    pub async fn commit(&self, _event: Event) -> Result<Receipt, Error> {
        todo!()
    }

    /// [`Recorder::commit`] for code that is not async.
    ///
    /// # Errors
    /// As [`Recorder::commit`].
    pub fn commit_blocking(&self, _event: Event) -> Result<Receipt, Error> {
        todo!()
    }

    /// Appends an event that will be durable within 100 ms.
    ///
    /// # Errors
    /// [`Error::Closed`] when an earlier append failed.
    pub fn note(&self, _event: Event) -> Result<(), Error> {
        todo!()
    }

    /// Ends when an append has failed, with the reason.
    pub async fn failed(&self) -> String {
        todo!()
    }

    /// Commits what is left, closes the file and chains its seal into the machine log.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Closed`].
    pub fn seal(&self, _machine: &MachineLog) -> Result<Seal, Error> {
        todo!()
    }
}

/// The machine chain, `<home>/log/machine.jsonl`: run seals and trust changes. One writer at a time,
/// by a file lock; every append is signed and durable when it returns.
#[derive(Debug)]
pub struct MachineLog {}

impl MachineLog {
    /// Opens or makes the log; signs with the machine's key.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Read`].
    pub fn open(_home: &Path, _signer: Signer) -> Result<Self, Error> {
        todo!()
    }

    /// Appends an event, signed and durable.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn append(&self, _event: Event) -> Result<Receipt, Error> {
        todo!()
    }
}
