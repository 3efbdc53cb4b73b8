//! The bytes of a project's bundle, read once.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Diagnostic, Lock, Manifest};

/// A SHA-256 digest, written `sha256:<64 lower-case hex>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(pub(crate) [u8; 32]);

/// Everything that consent covers, read in one go: what is displayed, digested, recorded and run is
/// this value and never a second read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The project folder, canonical.
    pub project: PathBuf,
    /// The effective manifest.
    pub manifest: Manifest,
    /// The lock, `None` when there is no file.
    pub lock: Option<Lock>,
    /// Bytes of `ringfence.toml`.
    pub manifest_bytes: Vec<u8>,
    /// Bytes of `ringfence.local.toml`.
    pub local_bytes: Option<Vec<u8>>,
    /// Bytes of `ringfence.lock`.
    pub lock_bytes: Option<Vec<u8>>,
    /// Findings that do not stop it from being used.
    pub warnings: Vec<Diagnostic>,
}

/// What is wrong between a lock and the bytes it pins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// `server`, `skill`, `instruction`, …
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What the lock says, `None` when it has no row.
    pub pinned: Option<Digest>,
    /// What is there now, `None` when it is gone or no longer declared.
    pub found: Option<Digest>,
}

impl Snapshot {
    /// Reads `<project>/.ringfence/`: manifest, overlay and lock, without following a symlink at any
    /// of the three, each at most 4 MiB.
    ///
    /// # Errors
    /// [`crate::Error`]: no manifest, not a regular file, too large, not UTF-8, or everything the
    /// strict parse found.
    pub fn read(_project: &Path) -> Result<Self, crate::Error> {
        todo!()
    }

    /// The consent digest: domain-separated, length-framed SHA-256 over the bytes of manifest,
    /// overlay (absent and empty differ) and lock.
    #[must_use]
    pub fn consent_digest(&self) -> Digest {
        todo!()
    }

    /// Compares the lock with the bytes that are there now. Empty means current.
    ///
    /// # Errors
    /// [`crate::Error`] when a pinned tree cannot be read (a symlink or a device in a skill, …).
    pub fn drift(&self) -> Result<Vec<Drift>, crate::Error> {
        todo!()
    }
}

impl From<Digest> for String {
    fn from(_digest: Digest) -> Self {
        todo!()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;
    fn try_from(_text: String) -> Result<Self, String> {
        todo!()
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from(*self))
    }
}
