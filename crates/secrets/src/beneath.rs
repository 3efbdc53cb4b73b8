//! Files of the project folder, read beneath a handle: nothing followed, nothing but regular files,
//! nothing that others may write, bounded.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// A file of values is at most this long, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// A project folder has at most this many files of values.
const MAX_FILES: usize = 64;

/// Opens a project folder.
pub(crate) fn folder(path: &Path) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|error| format!("the project folder cannot be opened: {error}"))
}

/// Names in the folder that begin with `.env`, in order.
pub(crate) fn names(folder: &OwnedFd) -> Result<Vec<String>, String> {
    let io = |error: Errno| format!("the project folder cannot be read: {error}");
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name().to_string_lossy();
        if name.starts_with(".env") {
            if found.len() == MAX_FILES {
                return Err(format!("the project holds more than {MAX_FILES} files `.env*`"));
            }
            found.push(name.into_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// The bytes of one file, `None` when there is none.
pub(crate) fn read(folder: &OwnedFd, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let fd = match open(folder, name, OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(format!("`{name}` cannot be read: {error}")),
    };
    // It is looked at before it is opened, since opening a pipe or a device has effects, and again
    // afterwards, since it may have been exchanged.
    check(&fd, name)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = open(folder, name, flags).map_err(|e| format!("`{name}` cannot be read: {e}"))?;
    let length = check(&fd, name)?;
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let room = usize::try_from(length.min(MAX_BYTES)).unwrap_or(0) + 2;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    let read = File::from(fd).take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("`{name}` cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("`{name}` is larger than 1 MiB"));
    }
    Ok(Some(bytes))
}

fn open(folder: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Refuses what is no file of the person's own; gives its length.
fn check(fd: &impl AsFd, name: &str) -> Result<u64, String> {
    let stat = fstat(fd).map_err(|error| format!("`{name}` cannot be read: {error}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(format!("`{name}` is not a regular file"));
    }
    if stat.st_mode & 0o002 != 0 {
        return Err(format!("`{name}` may be written by everybody (`chmod o-w {name}`)"));
    }
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me && stat.st_uid != 0 {
        return Err(format!("`{name}` belongs to user {}, who can change it", stat.st_uid));
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}
