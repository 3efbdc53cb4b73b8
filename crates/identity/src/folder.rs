//! Folders that only their owner may change, checked on the opened descriptor.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::Error;

/// Makes the machine's folder (0700) when it is missing, and refuses one that another user owns or
/// can write to: whoever writes there decides what is trusted.
///
/// # Errors
/// [`Error::Unsafe`] with the command that mends it, [`Error::Io`].
pub fn prepare_home(home: &Path) -> Result<(), Error> {
    open_private(home, Mode::WGRP | Mode::WOTH).map(drop)
}

/// Opens a folder, making it (0700, parents too) when it is missing. It must be a folder and no
/// symlink, belong to the caller, and have none of the mode bits in `forbidden`.
///
/// # Errors
/// [`Error::Unsafe`], [`Error::Io`].
pub fn open_private(path: &Path, forbidden: Mode) -> Result<OwnedFd, Error> {
    match open(path, forbidden) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            make(path)?;
            open(path, forbidden)
        }
        other => other,
    }
}

/// Opens a folder that is there, with the checks of [`open_private`].
pub(crate) fn open(path: &Path, forbidden: Mode) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match fs::open(path, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(unsafe_path(path, "is not a folder (a symlink is not followed)"));
        }
        Err(errno) => return Err(io_at(path, errno.into())),
    };
    check_owner_and_mode(path, &folder, forbidden, "chmod 700")?;
    Ok(folder)
}

/// Refuses a descriptor whose file belongs to somebody else or has a forbidden mode bit.
pub(crate) fn check_owner_and_mode(
    path: &Path,
    descriptor: &OwnedFd,
    forbidden: Mode,
    mend: &str,
) -> Result<(), Error> {
    let stat = fs::fstat(descriptor).map_err(|errno| io_at(path, errno.into()))?;
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me {
        let reason = format!(
            "belongs to user {}, not to you (user {me}); set RINGFENCE_HOME to a folder of yours",
            stat.st_uid
        );
        return Err(Error::Unsafe { path: path.to_owned(), reason });
    }
    let mode = Mode::from_raw_mode(stat.st_mode);
    if mode.intersects(forbidden) {
        let found = mode.bits() & 0o777;
        let what = format!("has mode {found:04o}: other users can reach it");
        let reason = format!("{what}; run `{mend} {}`", path.display());
        return Err(Error::Unsafe { path: path.to_owned(), reason });
    }
    Ok(())
}

fn make(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| io_at(path, source))
}

pub(crate) fn unsafe_path(path: &Path, reason: &str) -> Error {
    Error::Unsafe { path: path.to_owned(), reason: reason.to_owned() }
}

pub(crate) fn io_at(path: &Path, source: io::Error) -> Error {
    Error::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
