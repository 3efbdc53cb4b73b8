//! A detached signature over a project's lock, `.ringfence/ringfence.lock.sig`.
//!
//! The lock pins what is declared; what the bundle may do stands in the manifest. So the statement
//! is about both files. The overlay is personal and never signed.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use ringfence_bundle::Snapshot;
use ringfence_identity::{Did, Signer};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::statement::sha256;
use super::{Agent, Flaw, Statement, seal, unseal};
use crate::{Error, Publishers, private};

/// Its name, beside the lock.
const NAME: &str = "ringfence.lock.sig";

/// The files it is about.
const SUBJECT: [&str; 2] = ["ringfence.lock", "ringfence.toml"];

/// What it states: that these are the signer's lock and manifest.
const PREDICATE: &str = "urn:ringfence:lock:1";

/// Most bytes of a signature file.
const MAX_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Predicate {
    agent: Option<Agent>,
}

/// What a signature file turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockSignature {
    /// There is none.
    Absent,
    /// It is there, and it says nothing.
    Flawed(Flaw),
    /// Good, and over other bytes of these files.
    OtherBytes {
        /// Whose.
        by: Did,
        /// `ringfence.lock`, `ringfence.toml`, or both.
        files: Vec<&'static str>,
    },
    /// Good, and over these very bytes.
    Good {
        /// Whose.
        by: Did,
    },
}

/// Who vouches for a lock, and whether it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The signature.
    pub signature: LockSignature,
    /// The name under which this machine's person listed the signer's key.
    pub publisher: Option<String>,
    /// How many pins do not hold; `None` where there is no lock.
    pub moved: Option<usize>,
    /// Whether there is an overlay, which nobody signs: it changes what the bundle may do.
    pub overlay: bool,
}

impl Verdict {
    /// Whether a publisher that the person listed signed these bytes, and every pin holds.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(self.signature, LockSignature::Good { .. })
            && self.publisher.is_some()
            && self.moved == Some(0)
    }
}

/// Signs a snapshot's lock and manifest, and writes the signature beside them: whole or not at all.
/// Gives the file's path.
///
/// # Errors
/// [`Error::Unlocked`], [`Error::Drifted`] when a pin does not hold, [`Error::Write`],
/// [`Error::Bundle`].
pub fn sign_lock(
    snapshot: &Snapshot,
    objects: &ringfence_bundle::Objects,
    signer: &Signer,
) -> Result<PathBuf, Error> {
    let Some(lock) = &snapshot.lock_bytes else {
        return Err(Error::Unlocked(snapshot.project.clone()));
    };
    let drift = snapshot.drift(objects)?;
    if !drift.is_empty() {
        return Err(Error::Drifted(drift));
    }
    let agent = snapshot.manifest.agent.as_ref();
    let predicate = Predicate {
        agent: agent.map(|it| Agent { name: it.name.clone(), version: it.version.clone() }),
    };
    let subject = SUBJECT.into_iter().zip([sha256(lock), sha256(&snapshot.manifest_bytes)]);
    let subject: Vec<_> = subject.collect();
    let bytes = seal(signer, &Statement::new(PREDICATE, &subject, predicate).bytes());
    let path = snapshot.folder().join(NAME);
    private::replace_in(&snapshot.folder(), NAME, &bytes, 0o644)
        .map_err(|source| Error::Write { path: path.clone(), source })?;
    Ok(path)
}

/// What the signature beside a snapshot's lock says about the snapshot's bytes.
fn signature_of(snapshot: &Snapshot) -> Result<LockSignature, Error> {
    let path = snapshot.folder().join(NAME);
    let fail = |source| Error::Read { path: path.clone(), source };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(LockSignature::Absent),
        Err(error) => return Err(fail(error.into())),
    };
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(fail(std::io::Error::other("it is not a regular file")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    Ok(judge(snapshot, &bytes))
}

/// Compares an envelope with a snapshot. Pure.
fn judge(snapshot: &Snapshot, bytes: &[u8]) -> LockSignature {
    let read = || {
        let signed = unseal(bytes, MAX_BYTES)?;
        let (digests, _) = Statement::<Predicate>::of(&signed, PREDICATE, &SUBJECT)?;
        Ok((signed.by().clone(), digests))
    };
    let (by, digests) = match read() {
        Ok(read) => read,
        Err(flaw) => return LockSignature::Flawed(flaw),
    };
    let lock = snapshot.lock_bytes.as_deref().map(sha256);
    let found = [lock, Some(sha256(&snapshot.manifest_bytes))];
    let pairs = SUBJECT.into_iter().zip(digests.into_iter().zip(found));
    let files: Vec<_> =
        pairs.filter(|(_, (said, is))| Some(said) != is.as_ref()).map(|(name, _)| name).collect();
    if files.is_empty() {
        LockSignature::Good { by }
    } else {
        LockSignature::OtherBytes { by, files }
    }
}

/// Who vouches for a snapshot's lock, and whether it holds against the bytes that are there.
///
/// # Errors
/// [`Error::Read`], [`Error::Bundle`].
pub fn verify_lock(
    snapshot: &Snapshot,
    objects: &ringfence_bundle::Objects,
    publishers: &Publishers,
) -> Result<Verdict, Error> {
    let signature = signature_of(snapshot)?;
    let publisher = match &signature {
        LockSignature::Good { by } | LockSignature::OtherBytes { by, .. } => {
            publishers.name_of(by).map(str::to_owned)
        }
        _ => None,
    };
    let moved = match snapshot.lock {
        Some(_) => Some(snapshot.drift(objects)?.len()),
        None => None,
    };
    Ok(Verdict { signature, publisher, moved, overlay: snapshot.local_bytes.is_some() })
}

#[cfg(test)]
mod tests;
