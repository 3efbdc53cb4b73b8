//! Writing a bundle's files: whole or not at all.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, flock, mkdirat, openat,
    openat2, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::snapshot::{FOLDER, LOCK, MANIFEST, OVERLAY};
use crate::{Error, Layer, Snapshot, files, read_three};

#[cfg(test)]
mod tests;

const IGNORE: &str = ".gitignore";

/// For others that write: each is done in a moment.
const PATIENCE: Duration = Duration::from_secs(3);

/// Replaces `ringfence.lock` by this text: a new file is written, synced and renamed over the old
/// one, so that a crash leaves the one or the other.
///
/// # Errors
/// [`Error::Write`]: the folder is a symlink, not writable, or full. The old lock is still there then.
pub fn write_lock(snapshot: &Snapshot, text: &str) -> Result<(), Error> {
    replace(snapshot, LOCK, text)
        .map_err(|source| Error::Write { path: snapshot.folder().join(LOCK), source })
}

/// Makes a bundle's folder and in it a first manifest with this text, and a `.gitignore` that keeps
/// the overlay out of git. Gives the manifest's path. The manifest comes last and in one step: where
/// it is, the rest is too.
///
/// # Errors
/// [`Error::Io`]: there is a manifest already (`AlreadyExists`), the folder is a symlink or cannot
/// be written. Nothing that was there is changed.
pub fn write_first(project: &Path, text: &str) -> Result<PathBuf, Error> {
    let path = project.join(FOLDER).join(MANIFEST);
    let write = || {
        let root = files::open_root(project)?;
        let made = match mkdirat(&root, FOLDER, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let folder = open_folder(&root)?;
        match statat(&folder, MANIFEST, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(Errno::EXIST.into()),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        alone(&folder);
        let written = match put(&folder, IGNORE, "ringfence.local.toml\n", RenameFlags::NOREPLACE) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            ignored => put(&folder, MANIFEST, text, RenameFlags::NOREPLACE).inspect_err(|_| {
                if made && ignored.is_ok() {
                    let _ = unlinkat(&folder, IGNORE, AtFlags::empty());
                }
            }),
        };
        written.inspect_err(|_| {
            if made {
                // Goes only when it is empty, as it was made.
                let _ = unlinkat(&root, FOLDER, AtFlags::REMOVEDIR);
            }
        })?;
        File::from(root).sync_all()
    };
    write().map_err(|source: std::io::Error| Error::Io { path: path.clone(), source })?;
    Ok(path)
}

/// Opened beneath the project, following no symlink.
fn open_folder(root: &OwnedFd) -> std::io::Result<OwnedFd> {
    Ok(openat2(
        root,
        FOLDER,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )?)
}

/// A new, synced file. Nothing is replaced; a half-written one does not stay.
fn create(folder: &OwnedFd, name: &str, text: &str) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, name, flags, Mode::from_raw_mode(0o644))?);
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // What failed is reported; a half-written file is of no use to anybody.
        let _ = unlinkat(folder, name, AtFlags::empty());
    }
    written
}

/// Replaces one layer of the manifest by this text, as [`write_lock`] does the lock, if the file still
/// holds the bytes that were read. Gives its path.
///
/// # Errors
/// [`Error::Write`]: as there, or somebody else wrote it meanwhile. The old file is still there then.
pub fn write_layer(snapshot: &Snapshot, layer: Layer, text: &str) -> Result<PathBuf, Error> {
    let path = snapshot.folder().join(layer.file());
    let fail = |source| Error::Write { path: path.clone(), source };
    let folder = open_alone(snapshot).map_err(fail)?;
    // Only now that nobody else who waits for the folder writes here.
    let (manifest, local, _) = read_three(&snapshot.project).map_err(fail)?;
    let now = match layer {
        Layer::Manifest => Some(manifest),
        Layer::Overlay => local,
    };
    if now.as_deref() != snapshot.layer(layer) {
        return Err(fail(std::io::Error::other("it was changed while it was looked at")));
    }
    put(&folder, layer.file(), text, RenameFlags::empty()).map_err(fail)?;
    Ok(path)
}

fn replace(snapshot: &Snapshot, name: &str, text: &str) -> std::io::Result<()> {
    put(&open_alone(snapshot)?, name, text, RenameFlags::empty())
}

/// The bundle's folder, with others who write in it waited for.
fn open_alone(snapshot: &Snapshot) -> std::io::Result<OwnedFd> {
    let folder = open_folder(&files::open_root(&snapshot.project)?)?;
    alone(&folder);
    Ok(folder)
}

/// Puts a whole, synced file in place in one step.
fn put(folder: &OwnedFd, name: &str, text: &str, how: RenameFlags) -> std::io::Result<()> {
    let new = format!("{name}.{}.new", std::process::id());
    create(folder, &new, text)?;
    if let Err(error) = renameat_with(folder, &new, folder, name, how) {
        let _ = unlinkat(folder, &new, AtFlags::empty());
        return Err(error.into());
    }
    Ok(rustix::fs::fsync(folder)?)
}

/// Waits for others that write here, until the folder is closed, and takes away what a killed one
/// left. Where a file system has no locks, or somebody keeps one for longer than any writer does (an
/// agent can: it reads this folder), nothing is taken away: names tell the writers apart.
fn alone(folder: &OwnedFd) {
    let until = Instant::now() + PATIENCE;
    loop {
        match flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(_) => return,
        }
    }
    let Ok(entries) = rustix::fs::Dir::read_from(folder) else { return };
    let stale = |name: &str| {
        let number = [MANIFEST, OVERLAY, LOCK, IGNORE]
            .iter()
            .find_map(|file| name.strip_prefix(file)?.strip_prefix('.')?.strip_suffix(".new"));
        number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_ok_and(stale) {
            let _ = unlinkat(folder, entry.file_name(), AtFlags::empty());
        }
    }
}
