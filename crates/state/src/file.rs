//! The file of SQLite: made private before SQLite touches it, and watched for being another.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::Error;

/// What SQLite puts beside its file.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Which file it was when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Makes the file when it is missing, with mode 0600, and checks that it, what SQLite puts beside it
/// and its folder are this user's alone. Links are not followed.
pub(crate) fn prepare(path: &Path) -> Result<Identity, Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    folder(parent)?;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|error| cannot(path, &error))?;
    let identity = check(path, &file)?;
    for suffix in BESIDE {
        let mut beside = path.as_os_str().to_owned();
        beside.push(suffix);
        let beside = PathBuf::from(beside);
        let opened =
            File::options().read(true).custom_flags(flags.bits().cast_signed()).open(&beside);
        match opened {
            Ok(file) => drop(check(&beside, &file)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot(&beside, &error)),
        }
    }
    // The name is as durable as what will be in the file.
    if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
        let folder = File::open(parent).and_then(|folder| folder.sync_all());
        folder.map_err(|error| cannot(parent, &error))?;
    }
    Ok(identity)
}

/// Whether there is a file.
pub(crate) fn exists(path: &Path) -> Result<bool, Error> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot(path, &error)),
    }
}

impl Identity {
    /// Whether the name still leads to the file that is open. SQLite would go on writing to one that
    /// was deleted, where no other process reads it.
    pub(crate) fn holds(&self) -> Result<(), Error> {
        let gone = |what: &str| Error::Unavailable {
            place: self.path.display().to_string(),
            reason: format!("the file {what} since it was opened: put it back and begin anew"),
        };
        match self.path.symlink_metadata() {
            Ok(now) if (now.dev(), now.ino()) == (self.device, self.inode) => Ok(()),
            Ok(_) => Err(gone("was replaced")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(gone("was deleted")),
            Err(error) => Err(cannot(&self.path, &error)),
        }
    }
}

fn folder(path: &Path) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| cannot(path, &errno.into()))?;
    let metadata = File::from(folder).metadata().map_err(|error| cannot(path, &error))?;
    owned(path, &metadata)?;
    if metadata.mode() & 0o022 != 0 {
        return Err(wrong(path, "others may write this folder", "chmod go-w"));
    }
    Ok(())
}

fn check(path: &Path, file: &File) -> Result<Identity, Error> {
    let metadata = file.metadata().map_err(|error| cannot(path, &error))?;
    if !metadata.is_file() {
        return Err(wrong(path, "not a regular file", "ls -l"));
    }
    owned(path, &metadata)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(wrong(path, "others may read or write this file", "chmod go="));
    }
    if metadata.nlink() != 1 {
        return Err(wrong(path, "the file has a second name", "ls -l"));
    }
    Ok(Identity { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
}

fn owned(path: &Path, metadata: &std::fs::Metadata) -> Result<(), Error> {
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() == me {
        return Ok(());
    }
    Err(wrong(path, &format!("it belongs to user {}", metadata.uid()), "ls -ld"))
}

fn wrong(path: &Path, what: &str, command: &str) -> Error {
    let place = path.display().to_string();
    Error::Unsafe { reason: format!("{what}: `{command} {place}`"), place }
}

fn cannot(path: &Path, error: &std::io::Error) -> Error {
    let place = path.display().to_string();
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return wrong(path, "a link, which is not followed", "ls -l");
    }
    Error::Unavailable { reason: format!("{error}: look at its folder, `ls -la`"), place }
}
