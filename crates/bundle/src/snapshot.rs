//! The bytes of a project's bundle, read once.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::consent::consent_of;
use crate::files::{self, ReadError};
use crate::pins::{Elsewhere, Found};
use crate::source::{MAX_BYTES, MAX_LOCK_BYTES, Source};
use crate::{
    Diagnostic, Digest, Effective, Error, Id, Kind, Lock, Manifest, Objects, Place, Severity,
    ToolPins, parse, pins,
};

#[cfg(test)]
mod tests;

/// The folder of a bundle, in its project.
pub(crate) const FOLDER: &str = ".ringfence";
pub(crate) const MANIFEST: &str = "ringfence.toml";
pub(crate) const OVERLAY: &str = "ringfence.local.toml";
pub(crate) const LOCK: &str = "ringfence.lock";

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
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Why it does not hold.
    pub reason: Reason,
    /// What the lock says, `None` when it has no row.
    pub pinned: Option<Digest>,
    /// What is there now, `None` when it is gone or no longer declared.
    pub found: Option<Digest>,
}

/// Why a pin does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is declared, and the lock has no row for it.
    Unpinned,
    /// Its bytes, or how it is declared, are not what the row says.
    Changed,
    /// It is declared to come from somewhere else than the row says.
    Redeclared,
    /// It is declared and pinned, and no file is there.
    Missing,
    /// It comes from elsewhere, and its bytes are not in this machine's store.
    NotFetched,
    /// The row is for something that is no longer declared.
    Undeclared,
}

impl Snapshot {
    /// Reads `<project>/.ringfence/`: manifest, overlay and lock, without following a symlink at any
    /// of the three, manifest and overlay of at most 4 MiB, the lock of at most 16 MiB.
    ///
    /// # Errors
    /// [`crate::Error`]: no manifest, not a regular file, too large, not UTF-8, or everything the
    /// strict parse found.
    pub fn read(project: &Path) -> Result<Self, Error> {
        Self::read_files(project, true)
    }

    /// As [`Snapshot::read`], but does not look at the lock: for commands that check the manifest or
    /// make the lock anew, where an old lock may be broken. `lock` and `lock_bytes` are `None`.
    ///
    /// # Errors
    /// As for [`Snapshot::read`], of manifest and overlay alone.
    pub fn read_without_lock(project: &Path) -> Result<Self, Error> {
        Self::read_files(project, false)
    }

    fn read_files(project: &Path, with_lock: bool) -> Result<Self, Error> {
        let io = |source| Error::Io { path: project.to_owned(), source };
        let project = project.canonicalize().map_err(io)?;
        let root = files::open_root(&project).map_err(io)?;
        let mut findings = Vec::new();
        let mut read = |name: &str| match read_one(root.as_fd(), name) {
            Ok(bytes) => Ok(bytes),
            Err(Problem::Found(finding)) => {
                findings.push(*finding);
                Ok(None)
            }
            Err(Problem::Io(source)) => {
                Err(Error::Io { path: project.join(FOLDER).join(name), source })
            }
        };
        let manifest = read(MANIFEST)?;
        let overlay = read(OVERLAY)?;
        let lock = if with_lock { read(LOCK)? } else { None };
        let Some(manifest_bytes) = manifest else {
            if findings.is_empty() {
                return Err(Error::Missing(project.join(FOLDER).join(MANIFEST)));
            }
            return Err(Error::Invalid(findings));
        };
        let mut sources = Vec::new();
        let texts = [(MANIFEST, Some(&manifest_bytes)), (OVERLAY, overlay.as_ref())];
        for (name, bytes) in texts.into_iter().filter_map(|(name, b)| Some((name, b?))) {
            match Source::from_bytes(&shown(name), bytes) {
                Ok(source) => sources.push(source),
                Err(finding) => findings.push(*finding),
            }
        }
        let parsed_lock = lock.as_ref().map(|bytes| Lock::parse(&shown(LOCK), bytes)).transpose();
        let parsed_lock = parsed_lock.unwrap_or_else(|found| {
            findings.extend(found);
            None
        });
        // Half of what belongs together says nothing about the whole.
        if sources.len() != 1 + usize::from(overlay.is_some()) {
            return Err(Error::Invalid(findings));
        }
        let (manifest, warnings) = match parse::decode_sources(sources) {
            Ok(decoded) => decoded,
            Err(found) => {
                findings.splice(0..0, found);
                return Err(Error::Invalid(findings));
            }
        };
        if !findings.is_empty() {
            findings.splice(0..0, warnings);
            return Err(Error::Invalid(findings));
        }
        Ok(Self {
            project,
            manifest,
            lock: parsed_lock,
            manifest_bytes,
            local_bytes: overlay,
            lock_bytes: lock,
            warnings,
        })
    }

    /// The bundle's folder, absolute.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.project.join(FOLDER)
    }

    /// The consent digest: domain-separated, length-framed SHA-256 over the bytes of manifest,
    /// overlay (absent and empty differ) and lock.
    #[must_use]
    pub fn consent_digest(&self) -> Digest {
        consent_of(&self.manifest_bytes, self.local_bytes.as_deref(), self.lock_bytes.as_deref())
    }

    /// Compares the lock with the bytes that are there now: beside the manifest, and in the store
    /// for what comes from elsewhere. Empty means current.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when a pinned tree cannot be read (a symlink or a device in a
    /// skill, …), each finding at its place in the manifest. [`crate::Error::Object`].
    pub fn drift(&self, objects: &Objects) -> Result<Vec<Drift>, Error> {
        let Found { here, elsewhere } = pins::found(self)?;
        let mut drift: Vec<Drift> = Vec::new();
        let rows = self.lock.as_ref().map(Lock::rows).unwrap_or_default();
        let pinned = |(kind, name): &pins::Name| Some(rows.get(&(*kind, name.as_str()))?.digest);
        let has_origin = |(kind, name): &pins::Name| {
            rows.get(&(*kind, name.as_str())).is_some_and(|pin| pin.origin.is_some())
        };
        let mut add = |key: &pins::Name, reason, found| {
            let (pinned, (kind, name)) = (pinned(key), key.clone());
            drift.push(Drift { kind, name, reason, pinned, found });
        };
        for (key, digest) in &here {
            match (pinned(key), digest) {
                (None, _) => add(key, Reason::Unpinned, *digest),
                (Some(_), None) => add(key, Reason::Missing, None),
                // The row says that it comes from elsewhere, and it lies here.
                (Some(_), Some(_)) if has_origin(key) => add(key, Reason::Redeclared, *digest),
                (Some(pinned), Some(found)) if pinned == *found => {}
                (Some(_), Some(_)) => add(key, Reason::Changed, *digest),
            }
        }
        for (key, stands) in &pins::from_store(objects, self.lock.as_ref(), &elsewhere)? {
            match *stands {
                Elsewhere::Unpinned => add(key, Reason::Unpinned, None),
                Elsewhere::Redeclared => add(key, Reason::Redeclared, None),
                Elsewhere::NotHere => add(key, Reason::NotFetched, None),
                Elsewhere::Here(found, _) if pinned(key) == Some(found) => {}
                Elsewhere::Here(found, _) => add(key, Reason::Changed, Some(found)),
            }
        }
        for pin in self.lock.iter().flat_map(|lock| &lock.pins) {
            let key = (pin.kind, pin.name.clone());
            if !here.contains_key(&key) && !elsewhere.contains_key(&key) {
                add(&key, Reason::Undeclared, None);
            }
        }
        Ok(drift)
    }

    /// The canonical JSON (RFC 8785) of each thing that is pinned by how it is declared: servers,
    /// hooks, settings; references unresolved.
    #[must_use]
    pub fn definitions(&self) -> BTreeMap<(Kind, String), Vec<u8>> {
        pins::definition_bytes(&self.manifest)
    }

    /// The manifest that holds, the overlay laid over, and where each of its values comes from.
    #[must_use]
    pub fn effective(&self) -> Effective {
        let texts = [(MANIFEST, Some(&self.manifest_bytes)), (OVERLAY, self.local_bytes.as_ref())];
        let sources = texts.into_iter().filter_map(|(name, bytes)| {
            // Both are text: this snapshot was made of them.
            Source::from_bytes(&shown(name), bytes?).ok()
        });
        Effective::of(sources.collect())
    }

    /// What a server offered when it was last asked, as long as it is declared as it was then; `None`
    /// where it is unpinned.
    #[must_use]
    pub fn tool_pins(&self, server: &Id) -> Option<&ToolPins> {
        let lock = self.lock.as_ref()?;
        let key = (Kind::Server, server.to_string());
        let now = Digest::framed(key.0.as_str(), &[self.definitions().get(&key)?]);
        let pins = lock.tools_of(server.as_str())?;
        (lock.digest(key.0, &key.1) == Some(now)).then_some(pins)
    }

    /// Everything that is declared with a source: kind, name, where its bytes come from.
    pub fn sources(&self) -> impl Iterator<Item = (Kind, &Id, &crate::manifest::Source)> {
        pins::sources(&self.manifest)
    }
}

enum Problem {
    Found(Box<Diagnostic>),
    Io(std::io::Error),
}

fn shown(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// How many bytes one of the three files may have.
pub(crate) fn most(name: &str) -> u64 {
    (if name == LOCK { MAX_LOCK_BYTES } else { MAX_BYTES }) as u64
}

fn read_one(root: std::os::fd::BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, Problem> {
    match files::read_file(root, &format!("{FOLDER}/{name}"), most(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ReadError::Absent) => Ok(None),
        Err(ReadError::Io(error)) => Err(Problem::Io(error)),
        Err(refused) => {
            let (rule, help) = match refused {
                ReadError::Changed => ("changed-while-read", "try again when nobody writes to it"),
                _ => ("not-a-regular-file", "put a regular file there, not a link or a pipe"),
            };
            Err(Problem::Found(Box::new(Diagnostic {
                severity: Severity::Error,
                rule,
                message: format!("{FOLDER}/{name}: {refused}"),
                at: Some(Place {
                    file: shown(name),
                    line: 1,
                    column: 1,
                    text: String::new(),
                    width: 1,
                }),
                help: Some(help.to_owned()),
                next: Some("ringfence validate".to_owned()),
            })))
        }
    }
}
