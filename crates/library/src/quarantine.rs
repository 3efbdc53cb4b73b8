//! Where received archives wait, inert: `<home>/quarantine/<SHA-256 of the archive>/`.
//!
//! Nothing in it is run, delivered or looked up. A person's yes moves it out, into a folder of its
//! own that did not exist before.

pub(crate) mod check;
pub(crate) mod files;
mod release;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ringfence_bundle::{Objects, Snapshot};
use ringfence_identity::Did;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};

use crate::archive::{
    ATTESTATION, About, Fault, MAX_ATTESTATION, Unpacked, read_attestation, unpack,
};
use crate::sign::is_hex;
use crate::{Error, private};

#[cfg(test)]
mod tests;

/// Before the name of a folder that is being filled.
const NEW: &str = ".new-";

/// Most archives that are looked at.
const MOST: usize = 10_000;

/// `<home>/quarantine`.
#[derive(Debug, Clone)]
pub struct Quarantine {
    home: PathBuf,
    root: PathBuf,
}

/// One archive in quarantine, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// SHA-256 of the archive, 64 hex digits.
    pub id: String,
    /// Who signed it, which agent, which version; or why that cannot be said.
    pub about: Result<(Did, String, String), String>,
}

/// An archive in quarantine whose signature, bytes and lock were all verified just now.
#[derive(Debug, Clone)]
pub struct Received {
    id: String,
    folder: PathBuf,
    by: Did,
    about: About,
    snapshot: Snapshot,
}

impl Received {
    /// SHA-256 of the archive, 64 hex digits.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whose signature is on it.
    #[must_use]
    pub fn by(&self) -> &Did {
        &self.by
    }

    /// The agent's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.about.agent.name
    }

    /// The agent's version.
    #[must_use]
    pub fn version(&self) -> &str {
        self.about.agent.version.as_deref().unwrap_or_default()
    }

    /// How many files it has.
    #[must_use]
    pub fn members(&self) -> usize {
        self.about.members.len()
    }

    /// The bundle, read once.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The bytes from repositories and libraries that came with it.
    #[must_use]
    pub fn objects(&self) -> Objects {
        Objects::of(&self.folder)
    }
}

impl Quarantine {
    /// The quarantine of this home. Touches nothing yet.
    #[must_use]
    pub fn of(home: &Path) -> Self {
        Self { home: home.to_owned(), root: home.join("quarantine") }
    }

    /// Its folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Takes an archive in: read strictly, verified whole, and only then given its place. What was
    /// received before is verified anew.
    ///
    /// # Errors
    /// [`Error::Archive`] when anything is wrong with it: nothing of it is kept then.
    /// [`Error::Read`], [`Error::Write`], [`Error::Identity`].
    pub fn receive(&self, file: &Path) -> Result<Received, Error> {
        self.receive_if(file, &|_, _| Ok(()))
    }

    /// As [`Quarantine::receive`], if what was unpacked, and its bundle, is what the caller expects.
    pub(crate) fn receive_if(
        &self,
        file: &Path,
        expected: &dyn Fn(&Unpacked, &Snapshot) -> Result<(), Fault>,
    ) -> Result<Received, Error> {
        let _held = private::lock(&self.home, "quarantine")?;
        ringfence_identity::open_private(&self.root, Mode::RWXG | Mode::RWXO)?;
        let write = |source| Error::Write { path: self.root.clone(), source };
        self.sweep().map_err(write)?;
        let input = open(file).map_err(|source| Error::Read { path: file.to_owned(), source })?;
        let refuse = |fault| Error::Archive { path: file.to_owned(), fault };
        let new = tempfile::Builder::new().prefix(NEW).tempdir_in(&self.root).map_err(write)?;
        let unpacked = unpack(input, new.path()).map_err(refuse)?;
        let snapshot = check::bundle(new.path(), &unpacked.about).map_err(refuse)?;
        expected(&unpacked, &snapshot).map_err(refuse)?;
        let id = unpacked.sha256;
        let place = self.root.join(&id);
        match rustix::fs::renameat_with(CWD, new.path(), CWD, &place, RenameFlags::NOREPLACE) {
            Ok(()) => {
                // It has another name now; there is nothing to remove under the old one.
                let _ = new.keep();
                File::open(&self.root).and_then(|root| root.sync_all()).map_err(write)?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(write(error.into())),
        }
        self.verify(&id)
    }

    /// One archive by its id or the beginning of it, verified anew.
    ///
    /// # Errors
    /// [`Error::NoSuchArchive`], [`Error::Quarantine`] when it is no longer what was received.
    pub fn open(&self, id: &str) -> Result<Received, Error> {
        self.verify(&self.find(id)?)
    }

    /// Everything in quarantine, sorted by id. Only the attestations are read.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn list(&self) -> Result<Vec<Kept>, Error> {
        let look = |id: String| {
            let read = files::read(&self.root.join(&id), ATTESTATION, MAX_ATTESTATION as u64);
            let about = read.map_err(|error| error.to_string()).and_then(|bytes| {
                let (signed, about) = read_attestation(&bytes).map_err(|e| e.to_string())?;
                let version = about.agent.version.unwrap_or_default();
                Ok((signed.by().clone(), about.agent.name, version))
            });
            Kept { id, about }
        };
        Ok(self.ids()?.into_iter().map(look).collect())
    }

    /// Removes one archive, by its id or the beginning of it. Gives the whole id.
    ///
    /// # Errors
    /// [`Error::NoSuchArchive`], [`Error::Write`].
    pub fn discard(&self, id: &str) -> Result<String, Error> {
        let _held = private::lock(&self.home, "quarantine")?;
        let id = self.find(id)?;
        let place = self.root.join(&id);
        let fail = |source| Error::Write { path: place.clone(), source };
        // Under another name first: what is half removed is not half there.
        let going = self.root.join(format!("{NEW}going-{id}"));
        fs::rename(&place, &going).map_err(fail)?;
        fs::remove_dir_all(&going).map_err(fail)?;
        Ok(id)
    }

    fn verify(&self, id: &str) -> Result<Received, Error> {
        let folder = self.root.join(id);
        let fail = |reason: String| Error::Quarantine { id: id.to_owned(), reason };
        let read = files::read(&folder, ATTESTATION, MAX_ATTESTATION as u64);
        let bytes = read.map_err(|error| fail(error.to_string()))?;
        let (signed, about) = read_attestation(&bytes).map_err(|error| fail(error.to_string()))?;
        files::compare(&folder, &about.members).map_err(fail)?;
        let snapshot = check::bundle(&folder, &about).map_err(|fault| fail(fault.to_string()))?;
        Ok(Received { id: id.to_owned(), folder, by: signed.by().clone(), about, snapshot })
    }

    fn find(&self, given: &str) -> Result<String, Error> {
        let no = |what: &str| {
            let given: String = given.chars().take(64).flat_map(char::escape_debug).collect();
            Error::NoSuchArchive(format!("{what} in quarantine begins with `{given}`"))
        };
        let mut fitting = self.ids()?.into_iter().filter(|id| id.starts_with(given));
        match (fitting.next(), fitting.next()) {
            (Some(id), None) if given.len() >= 4 => Ok(id),
            (Some(_), Some(_)) => Err(no("more than one archive")),
            (Some(_), None) => Err(no("to be sure, give at least 4 digits: something")),
            (None, _) => Err(no("nothing")),
        }
    }

    fn ids(&self) -> Result<Vec<String>, Error> {
        let fail = |source| Error::Read { path: self.root.clone(), source };
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut ids = Vec::new();
        for entry in entries.take(MOST) {
            let name = entry.map_err(fail)?.file_name();
            ids.extend(name.to_str().filter(|name| is_hex(name)).map(str::to_owned));
        }
        ids.sort();
        Ok(ids)
    }

    /// Removes what a killed process left half filled. Only under the lock.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(NEW) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Opens an archive that a person named: a link is theirs to follow, a pipe or a device is not read.
pub(crate) fn open(file: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(file, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other("it is not a regular file"))
}
