//! Where evidence lies, and how its files are opened.

use std::fs::File;
use std::path::{Path, PathBuf};

use ringfence_identity::open_private;
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::{Error, RunId};

/// The file of a run, in its folder.
pub(crate) const EVENTS: &str = "events.jsonl";

/// What the machine log's lines name as their run.
pub(crate) const MACHINE: &str = "machine";

/// `<home>/runs`.
pub(crate) fn runs(home: &Path) -> PathBuf {
    home.join("runs")
}

/// `<home>/runs/<id>/events.jsonl`.
#[must_use]
pub fn run_file(home: &Path, run: &RunId) -> PathBuf {
    runs(home).join(run.as_str()).join(EVENTS)
}

/// `<home>/log/machine.jsonl`.
#[must_use]
pub fn machine_file(home: &Path) -> PathBuf {
    home.join("log").join("machine.jsonl")
}

/// Opens a folder below the machine's, making it private when it is missing.
pub(crate) fn folder(path: &Path) -> Result<std::os::fd::OwnedFd, Error> {
    Ok(open_private(path, Mode::WGRP | Mode::WOTH)?)
}

/// Opens a file of evidence to read it; no symlink, regular files only.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    let fail = |source| Error::Read { path: path.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file =
        File::from(fs::open(path, flags, Mode::empty()).map_err(|errno| fail(errno.into()))?);
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(fail(std::io::Error::other("not a regular file")));
    }
    Ok(file)
}

/// Waits until no recorder holds this file.
pub(crate) fn wait_free(file: &File) -> std::io::Result<()> {
    loop {
        match fs::flock(file, FlockOperation::LockShared) {
            Err(Errno::INTR) => {}
            taken => {
                taken?;
                return Ok(fs::flock(file, FlockOperation::Unlock)?);
            }
        }
    }
}

/// Whether a recorder holds this file now.
pub(crate) fn is_held(file: &File) -> std::io::Result<bool> {
    match fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            fs::flock(file, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}
