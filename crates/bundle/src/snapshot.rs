//! The bytes of a project's bundle, read once.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::files::{self, ReadError};
use crate::source::{MAX_BYTES, Source};
use crate::{Diagnostic, Digest, Error, Lock, Manifest, Place, Severity, parse, pins};

#[cfg(test)]
mod tests;

/// The folder of a bundle, in its project.
const FOLDER: &str = ".ringfence";
const MANIFEST: &str = "ringfence.toml";
const OVERLAY: &str = "ringfence.local.toml";
const LOCK: &str = "ringfence.lock";

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
        let local = self.local_bytes.as_deref();
        let lock = self.lock_bytes.as_deref();
        let mark = |bytes: Option<&[u8]>| if bytes.is_some() { b"present" } else { b"absent " };
        Digest::framed(
            "consent",
            &[
                &self.manifest_bytes,
                mark(local),
                local.unwrap_or_default(),
                mark(lock),
                lock.unwrap_or_default(),
            ],
        )
    }

    /// Compares the lock with the bytes that are there now. Empty means current.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when a pinned tree cannot be read (a symlink or a device in a
    /// skill, …), each finding at its place in the manifest.
    pub fn drift(&self) -> Result<Vec<Drift>, Error> {
        let found = pins::found(self)?;
        let pins = self.lock.as_ref().map(|lock| lock.pins.as_slice()).unwrap_or_default();
        let mut drift: Vec<Drift> = Vec::new();
        for ((kind, name), digest) in &found {
            let pinned = self.lock.as_ref().and_then(|lock| lock.digest(kind, name));
            if pinned.is_none() || pinned != *digest {
                drift.push(Drift { kind, name: name.clone(), pinned, found: *digest });
            }
        }
        for pin in pins {
            // The lock's parse holds kinds to this list.
            let kind = pins::KINDS.into_iter().find(|kind| *kind == pin.kind);
            if let Some(kind) = kind
                && !found.contains_key(&(kind, pin.name.clone()))
            {
                let pinned = Some(pin.digest);
                drift.push(Drift { kind, name: pin.name.clone(), pinned, found: None });
            }
        }
        Ok(drift)
    }
}

enum Problem {
    Found(Box<Diagnostic>),
    Io(std::io::Error),
}

fn shown(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn read_one(root: std::os::fd::BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, Problem> {
    match files::read_file(root, &format!("{FOLDER}/{name}"), MAX_BYTES as u64) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ReadError::Absent) => Ok(None),
        Err(ReadError::Io(error)) => Err(Problem::Io(error)),
        Err(ReadError::Refused(reason)) => Err(Problem::Found(Box::new(Diagnostic {
            severity: Severity::Error,
            rule: "not-a-regular-file",
            message: format!("{FOLDER}/{name}: {reason}"),
            at: Some(Place {
                file: shown(name),
                line: 1,
                column: 1,
                text: String::new(),
                width: 1,
            }),
            help: Some("put a regular file there, not a link or a pipe".to_owned()),
            next: Some("ringfence validate".to_owned()),
        }))),
    }
}
