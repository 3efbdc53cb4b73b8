//! Small files of this machine that say whom and what to believe: read with every check on the
//! opened descriptor, replaced whole, one writer at a time.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::Error;

/// Most bytes of such a file.
const MAX_BYTES: u64 = 16 << 20;

/// Reads `<home>/<name>`; `None` when it is not there. It must be a regular file of the caller's
/// that nobody else can write to, and so must the folder.
///
/// # Errors
/// [`Error::Refused`] with what is wrong, [`Error::Read`].
pub(crate) fn read(home: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let path = home.join(name);
    if !home.exists() {
        return Ok(None);
    }
    ringfence_identity::prepare_home(home)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refuse = |reason: &str| Err(Error::Refused { path: path.clone(), reason: reason.into() });
    let fail = |source| Error::Read { path: path.clone(), source };
    let file = match fs::open(&path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return refuse("is a symlink, which is not followed"),
        Err(error) => return Err(fail(error.into())),
    };
    let stat = fs::fstat(&file).map_err(|error| fail(error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refuse("is not a regular file");
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return refuse("belongs to another user");
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return refuse("can be written to by other users; look at it, then `chmod 600` it");
    }
    let mut bytes = Vec::new();
    File::from(file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > MAX_BYTES {
        return refuse("is larger than 16 MiB");
    }
    Ok(Some(bytes))
}

/// Puts the bytes at `<home>/<name>` (0600), whole or not at all, and durable. Only under [`lock`].
///
/// # Errors
/// [`Error::Write`].
pub(crate) fn replace(home: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    replace_in(home, name, bytes, 0o600)
        .map_err(|source| Error::Write { path: home.join(name), source })
}

/// Puts the bytes at `<folder>/<name>`: a new file is written, synced and renamed over the old one.
/// The folder is no symlink.
pub(crate) fn replace_in(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::open(folder, flags, Mode::empty())?;
    let new = format!(".{name}.{}.new", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // What a killed writer with this number left behind.
    let _ = fs::unlinkat(&folder, &new, AtFlags::empty());
    let mut file = File::from(fs::openat(&folder, &new, flags, Mode::from_raw_mode(mode))?);
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(fs::renameat(&folder, &new, &folder, name)?));
    if written.is_err() {
        // What failed is reported; half a file is of no use to anybody.
        let _ = fs::unlinkat(&folder, &new, AtFlags::empty());
    }
    written?;
    Ok(fs::fsync(&folder)?)
}

/// Held while something of this home changes; released when dropped.
pub(crate) struct Held {
    _file: File,
}

/// Makes the home where it is missing, and waits for whoever else changes what this name stands for.
///
/// # Errors
/// [`Error::Write`], [`Error::Identity`] when others can write to the home.
pub(crate) fn lock(home: &Path, name: &str) -> Result<Held, Error> {
    ringfence_identity::prepare_home(home)?;
    let path = home.join(format!("{name}.lock"));
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let locked = fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR)
        .and_then(|file| fs::flock(&file, FlockOperation::LockExclusive).map(|()| file));
    let file = locked.map_err(|errno| Error::Write { path, source: errno.into() })?;
    Ok(Held { _file: File::from(file) })
}

/// A new folder beside what is to be put in place, or taken away.
pub(crate) struct Aside {
    made: tempfile::TempDir,
    _held: File,
}

impl Aside {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.made.path()
    }

    /// It stays, since it was moved.
    pub(crate) fn keep(self) {
        let _ = self.made.keep();
    }

    /// It goes, now.
    pub(crate) fn close(self) -> io::Result<()> {
        self.made.close()
    }
}

/// Makes a folder in this one with a name that begins so, and holds this one, which is no symlink, as
/// long as that is there. Those that killed processes left go.
pub(crate) fn aside(folder: &Path, prefix: &str) -> io::Result<Aside> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = File::from(fs::open(folder, flags, Mode::empty())?);
    fs::flock(&held, FlockOperation::LockExclusive)?;
    let me = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let meta = entry.metadata()?;
            if meta.is_dir() && std::os::unix::fs::MetadataExt::uid(&meta) == me {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
    }
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(folder)?;
    Ok(Aside { made, _held: held })
}
