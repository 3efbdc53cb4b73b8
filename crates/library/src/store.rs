//! The content store, write side: verbatim copies at the address that their digest gives.
//!
//! An object is written beside its place, brought to the disk, and moved there in one step: it is
//! there whole or not at all. Reading, and proving what is read, is [`Objects`]'s.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_bundle::{Blob, Content, Digest, Kind, Objects, Origin, tree_digest};
use rustix::fs::{AtFlags, CWD, FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, syncfs};

use crate::Error;

mod approved;
mod gc;
mod keep;
mod walk;

pub use gc::{Gone, Needed, needed};
pub use keep::Pinned;
pub use walk::{Object, State};

#[cfg(test)]
mod tests;

/// Objects that are being written, and those that are being taken away, begin with this.
const NEW: &str = ".new-";
const OLD: &str = ".old-";
/// Held shared while an object is put in place, alone while objects are taken away.
const LOCK: &str = ".lock";
/// Up to this many files are brought to the disk one by one; more of them all at once.
const FEW: usize = 8;

/// Room for what is brought from elsewhere. Nothing is taken away from the store meanwhile.
pub(crate) struct Scratch {
    folder: tempfile::TempDir,
    _held: File,
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

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
        let proved = || matches!(self.objects.proved(kind, &digest), Ok(Some(it)) if it == digest);
        self.place(&self.objects.place(kind, &digest), proved, |new| {
            write(&new.join("content"), blob, true)
        })?;
        Ok(digest)
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
        let digest = tree_digest(kind, blobs);
        let proved = || matches!(self.objects.proved(kind, &digest), Ok(Some(it)) if it == digest);
        self.place(&self.objects.place(kind, &digest), proved, |new| {
            write_tree(&new.join("content"), blobs)
        })?;
        Ok(digest)
    }

    /// Keeps what was read, whichever it is.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn deposit(&self, kind: Kind, content: &Content) -> Result<Digest, Error> {
        match content {
            Content::File(blob) => self.deposit_file(kind, blob),
            Content::Tree(blobs) => self.deposit_tree(kind, blobs),
        }
    }

    /// Notes that something that is in the store was brought from there.
    ///
    /// # Errors
    /// [`Error::Write`]: among others, it is not in the store.
    pub(crate) fn note_origin(
        &self,
        kind: Kind,
        digest: &Digest,
        origin: &Origin,
    ) -> Result<(), Error> {
        let note = self.objects.origin_note(kind, digest, origin);
        let write = || {
            let _held = self.hold(FlockOperation::LockShared)?;
            let folder = note.parent().ok_or(io::ErrorKind::InvalidInput)?;
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            File::create(&note).map(drop)
        };
        write().map_err(|source: io::Error| Error::Write { path: note.clone(), source })
    }

    /// A folder for what is brought from elsewhere, on the store's file system, that goes away.
    pub(crate) fn scratch(&self) -> Result<Scratch, Error> {
        let root = self.objects.root();
        let held = self.hold(FlockOperation::LockShared);
        let made = held.and_then(|held| {
            let folder = tempfile::Builder::new().prefix(NEW).tempdir_in(root)?;
            Ok(Scratch { folder, _held: held })
        });
        made.map_err(|source| Error::Write { path: root.to_owned(), source })
    }

    /// Writes an object beside its place and moves it there. A whole one that is there stays, and
    /// counts as new again; a damaged one goes.
    fn place(
        &self,
        place: &Path,
        proved: impl Fn() -> bool,
        fill: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), Error> {
        let done = || {
            let _held = self.hold(FlockOperation::LockShared)?;
            if proved() {
                return touch(place);
            }
            let folder = place.parent().ok_or(io::ErrorKind::InvalidInput)?;
            make(folder)?;
            let new = tempfile::Builder::new().prefix(NEW).tempdir_in(folder)?;
            fill(new.path())?;
            sync(new.path())?;
            loop {
                match fs::rename(new.path(), place) {
                    // Somebody's: whole, as another process was quicker, or damaged.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                        ) =>
                    {
                        if proved() {
                            return Ok(());
                        }
                        set_aside(place)?;
                    }
                    Err(error) => return Err(error),
                    Ok(()) => return File::open(folder)?.sync_all(),
                }
            }
        };
        done().map_err(|source: io::Error| Error::Write { path: place.to_owned(), source })
    }

    /// The store's lock file, held.
    fn hold(&self, how: FlockOperation) -> io::Result<File> {
        let root = self.objects.root();
        make(root)?;
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(root.join(LOCK))?;
        flock(&file, how)?;
        Ok(file)
    }
}

/// Takes an object out of its place in one step, then away. False when it was not there any more.
fn set_aside(place: &Path) -> io::Result<bool> {
    let folder = place.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let old = tempfile::Builder::new().prefix(OLD).tempdir_in(folder)?;
    match fs::rename(place, old.path().join("object")) {
        Ok(()) => old.close().map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Says that an object is needed now.
fn touch(place: &Path) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    match rustix::fs::utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A folder and what it lies in, for the owner alone.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn write(path: &Path, blob: &Blob, synced: bool) -> io::Result<()> {
    let mode = if blob.executable { 0o700 } else { 0o600 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(&blob.bytes)?;
    if synced { file.sync_all() } else { Ok(()) }
}

/// Writes the files of a folder. Where they are many, the file system is brought to the disk once.
pub(crate) fn write_tree(content: &Path, blobs: &BTreeMap<String, Blob>) -> io::Result<()> {
    make(content)?;
    let few = blobs.len() <= FEW;
    let mut made = PathBuf::new();
    for (path, blob) in blobs {
        let file = content.join(path);
        let folder = file.parent().unwrap_or(content);
        if folder != made {
            make(folder)?;
            made = folder.to_owned();
        }
        write(&file, blob, few)?;
    }
    if few { Ok(()) } else { Ok(syncfs(File::open(content)?)?) }
}

/// Folders below, then the folder itself: their entries are on disk before the object is moved.
fn sync(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync(&folder.join(entry.file_name()))?;
        }
    }
    File::open(folder)?.sync_all()
}
