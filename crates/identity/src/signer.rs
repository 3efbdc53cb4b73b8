//! Private keys of this machine.

use std::fmt;
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signer as _, SigningKey};
use rustix::fs::Mode;

use crate::folder::{self, io_at};
use crate::{Did, Error, keyfile};

/// The folder of the machine's own key, below `identities`.
const MACHINE: &str = "machine";

/// How many identities are looked through for a DID.
const MAX_IDENTITIES: usize = 4096;

/// A private key in memory; zeroed when dropped, never printed.
pub struct Signer {
    key: SigningKey,
    did: Did,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("did", &self.did).finish_non_exhaustive()
    }
}

impl Signer {
    /// The machine's own key, `<home>/identities/machine/key.pem`, made on first use (mode 0600 in
    /// a 0700 folder; safe when two processes make it at once).
    ///
    /// # Errors
    /// [`Error::Unsafe`], [`Error::Malformed`], [`Error::Io`].
    pub fn machine(home: &Path) -> Result<Self, Error> {
        Self::named(home, MACHINE)
    }

    /// The key of the identity `name`, `<home>/identities/<name>/key.pem`, made on first use as for
    /// [`Signer::machine`]. The name is one path component of `a-z`, `0-9` and `-`.
    ///
    /// # Errors
    /// [`Error::NoKey`] when the name is not of that form; the rest as for [`Signer::machine`].
    pub fn named(home: &Path, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        folder::prepare_home(home)?;
        let identities = home.join("identities");
        folder::open_private(&identities, Mode::WGRP | Mode::WOTH)?;
        let path = identities.join(name);
        let folder = folder::open_private(&path, Mode::RWXG | Mode::RWXO)?;
        if let Some(key) = keyfile::load(&folder, &path, keyfile::NAME)? {
            return Ok(Self::of(key));
        }
        keyfile::make(&folder, &path, keyfile::NAME)?;
        // What is there now may be another process's key: that one counts.
        let key = keyfile::load(&folder, &path, keyfile::NAME)?;
        key.map(Self::of).ok_or_else(|| Error::NoKey(name.to_owned()))
    }

    /// Makes `<home>/webhook-keys/<name>.pem` (0600 in a 0700 folder), the key of somebody who
    /// answers questions, and says where it is. This machine never uses it: it is for whoever runs
    /// the decision endpoint. Nothing is ever replaced.
    ///
    /// # Errors
    /// [`Error::Exists`]; the rest as for [`Signer::named`].
    pub fn make_webhook(home: &Path, name: &str) -> Result<(Did, PathBuf), Error> {
        check_name(name)?;
        folder::prepare_home(home)?;
        let path = home.join("webhook-keys");
        let folder = folder::open_private(&path, Mode::RWXG | Mode::RWXO)?;
        let file = format!("{name}.pem");
        if !keyfile::make(&folder, &path, &file)? {
            return Err(Error::Exists { path: path.join(file) });
        }
        let key = keyfile::load(&folder, &path, &file)?;
        let key = key.ok_or_else(|| Error::NoKey(name.to_owned()))?;
        Ok((Self::of(key).did, path.join(file)))
    }

    /// The key of a declared DID, from `<home>/identities/*/key.pem`.
    ///
    /// # Errors
    /// [`Error::NoKey`] when no file holds it; [`Error::Unsafe`] or [`Error::Malformed`] when none
    /// holds it and a file could not be judged.
    pub fn for_did(home: &Path, did: &Did) -> Result<Self, Error> {
        let mut refused = None;
        for path in identities(home)? {
            match load_from(&path) {
                Ok(Some(signer)) if signer.did == *did => return Ok(signer),
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| Error::NoKey(did.to_string())))
    }

    /// Whose signatures these are.
    #[must_use]
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// Signs bytes (RFC 8032, Ed25519).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }

    fn of(key: SigningKey) -> Self {
        let did = Did::of(&key.verifying_key());
        Self { key, did }
    }
}

/// One path component that no system takes for another.
fn check_name(name: &str) -> Result<(), Error> {
    let valid = (1..=63).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if valid {
        return Ok(());
    }
    Err(Error::NoKey(name.chars().take(80).flat_map(char::escape_debug).collect()))
}

/// The machine's DID when its key has been made, without making one.
///
/// # Errors
/// [`Error::NoKey`] when there is none; the rest as for [`Signer::machine`].
pub fn machine_did(home: &Path) -> Result<Did, Error> {
    match load_from(&home.join("identities").join(MACHINE)) {
        Ok(Some(signer)) => Ok(signer.did),
        Ok(None) => Err(Error::NoKey(MACHINE.to_owned())),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::NoKey(MACHINE.to_owned()))
        }
        Err(error) => Err(error),
    }
}

fn load_from(path: &Path) -> Result<Option<Signer>, Error> {
    let folder = folder::open(path, Mode::RWXG | Mode::RWXO)?;
    Ok(keyfile::load(&folder, path, keyfile::NAME)?.map(Signer::of))
}

fn identities(home: &Path) -> Result<Vec<PathBuf>, Error> {
    let folder = home.join("identities");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_at(&folder, error)),
    };
    let mut paths = Vec::new();
    for entry in entries.take(MAX_IDENTITIES) {
        paths.push(entry.map_err(|error| io_at(&folder, error))?.path());
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
