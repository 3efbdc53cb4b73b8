//! Writing the lock: whole or not at all.

use std::fs::File;
use std::io::Write as _;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};

use crate::{Error, Snapshot, files};

/// Replaces `ringfence.lock` by this text: a new file is written, synced and renamed over the old
/// one, so that a crash leaves the one or the other.
///
/// # Errors
/// [`Error::Write`]: the folder is a symlink, not writable, or full. The old lock is still there then.
pub fn write_lock(snapshot: &Snapshot, text: &str) -> Result<(), Error> {
    replace(snapshot, text)
        .map_err(|source| Error::Write { path: snapshot.folder().join("ringfence.lock"), source })
}

fn replace(snapshot: &Snapshot, text: &str) -> std::io::Result<()> {
    let root = files::open_root(&snapshot.project)?;
    let folder = openat2(
        &root,
        ".ringfence",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )?;
    let new = format!("ringfence.lock.{}.new", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&folder, &new, flags, Mode::from_raw_mode(0o644))?;
    let mut file = File::from(file);
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(&folder, &new, &folder, "ringfence.lock")?));
    if written.is_err() {
        // What failed is reported; a half-written new file is of no use to anybody.
        let _ = unlinkat(&folder, &new, AtFlags::empty());
    }
    written?;
    File::from(folder).sync_all()
}
