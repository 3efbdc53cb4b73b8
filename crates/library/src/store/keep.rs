//! Keeping every byte that a lock pins.

use std::path::PathBuf;

use ringfence_bundle::{Content, Digest, Kind, Lock, Snapshot};

use super::Store;
use crate::Error;

/// What was kept of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// How many pins have their bytes in the store now.
    pub pins: usize,
    /// The digest under which the three files lie.
    pub consent: Digest,
}

impl Store {
    /// Keeps every byte that this lock pins: definitions, files and folders beside the manifest, the
    /// programs of the project; and the three files themselves, with `lock_bytes` as the lock. What
    /// comes from elsewhere is in the store already, since it was resolved.
    ///
    /// # Errors
    /// [`Error::Moved`]: a file is not what was pinned any more. [`Error::Write`],
    /// [`Error::Bundle`]. What was kept before stays; no object is there half.
    pub fn keep(&self, snapshot: &Snapshot, lock: &Lock, lock_bytes: &[u8]) -> Result<Pinned, Error> {
        let mut pins = 0;
        let mut add = |kind: Kind, name: &str, path: PathBuf, content: &Content| {
            let Some(expected) = lock.digest(kind, name) else { return Ok(()) };
            let found = content.digest(kind);
            if found != expected {
                return Err(Error::Moved { path, expected, found });
            }
            pins += 1;
            self.deposit(kind, content).map(drop)
        };
        for ((kind, name), bytes) in snapshot.definitions() {
            let blob = ringfence_bundle::Blob { bytes, executable: false };
            add(kind, &name, snapshot.folder().join("ringfence.toml"), &Content::File(blob))?;
        }
        for it in snapshot.beside()? {
            add(it.kind, &it.name, snapshot.project.join(&it.path), &it.content)?;
        }
        let three = (
            snapshot.manifest_bytes.clone(),
            snapshot.local_bytes.clone(),
            Some(lock_bytes.to_owned()),
        );
        Ok(Pinned { consent: self.deposit_three(&three)?, pins })
    }
}
