//! The content store, write side: verbatim copies at the address that their digest gives.
//!
//! An object is written beside its place, synced, and moved there in one step: it is there whole or
//! not at all. Reading, and proving what is read, is [`Objects`]'s.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_bundle::{Blob, Content, Digest, Kind, Objects};

use crate::Error;

#[cfg(test)]
mod tests;

/// `<home>/store`.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Objects,
}

impl Store {
    /// The store of this home. Touches nothing yet.
    #[must_use]
    pub fn of(home: &Path) -> Self {
        Self { objects: Objects::of(home) }
    }

    /// Its read side.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Keeps the canonical JSON of something that is pinned by how it is declared.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn deposit_definition(&self, kind: Kind, bytes: &[u8]) -> Result<Digest, Error> {
        self.deposit_file(kind, &Blob { bytes: bytes.to_owned(), executable: false })
    }

    /// Keeps one file.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn deposit_file(&self, kind: Kind, blob: &Blob) -> Result<Digest, Error> {
        let digest = Content::File(blob.clone()).digest(kind);
        self.place(kind, digest, |content| write(content, blob))
    }

    /// Keeps the files of a folder.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn deposit_tree(
        &self,
        kind: Kind,
        blobs: &BTreeMap<String, Blob>,
    ) -> Result<Digest, Error> {
        let digest = Content::Tree(blobs.clone()).digest(kind);
        self.place(kind, digest, |content| {
            make(content)?;
            for (path, blob) in blobs {
                let file = content.join(path);
                make(file.parent().unwrap_or(content))?;
                write(&file, blob)?;
            }
            Ok(())
        })
    }

    /// Writes an object beside its place and moves it there. A whole one that is there stays; a
    /// damaged one goes.
    fn place(
        &self,
        kind: Kind,
        digest: Digest,
        fill: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<Digest, Error> {
        let place = self.objects.place(kind, &digest);
        if matches!(self.objects.proved(kind, &digest), Ok(Some(found)) if found == digest) {
            return Ok(digest);
        }
        let done = || {
            let folder = place.parent().ok_or(io::ErrorKind::InvalidInput)?;
            make(folder)?;
            let new = tempfile::Builder::new().prefix(".new-").tempdir_in(folder)?;
            fill(&new.path().join("content"))?;
            sync(new.path())?;
            match fs::remove_dir_all(&place) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // Another process may have been quicker: what it put there has this digest too.
            match fs::rename(new.path(), &place) {
                Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
                _ => File::open(folder)?.sync_all(),
            }
        };
        done().map_err(|source: io::Error| Error::Write { path: place.clone(), source })?;
        Ok(digest)
    }
}

/// A folder and what it lies in, for the owner alone.
fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn write(path: &Path, blob: &Blob) -> io::Result<()> {
    let mode = if blob.executable { 0o700 } else { 0o600 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(&blob.bytes)?;
    file.sync_all()
}

/// Folders below, then the folder itself: their entries are on disk before the object is moved.
fn sync(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync(&PathBuf::from(folder).join(entry.file_name()))?;
        }
    }
    File::open(folder)?.sync_all()
}
