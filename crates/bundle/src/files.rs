//! Files read beneath a directory handle: no symlink followed, nothing but regular files opened,
//! every read bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use sha2::{Digest as _, Sha256};

use crate::digest::{Digest, Framer};
use crate::hidden::Hidden;
use crate::objects::{Blob, Content};
use crate::text;

mod hash;
mod list;
#[cfg(test)]
mod tests;

pub(crate) use hash::{Ask, digest, digests};

const CHANGED: &str = "it changed while it was read";
const TOO_LARGE: &str = "too large to pin: a file holds at most 64 MiB, a folder 1 GiB";

/// A pinned file is at most this long, in bytes.
pub(crate) const MAX_FILE: u64 = 64 * 1024 * 1024;
/// A pinned tree is at most this long, in bytes.
const MAX_TREE: u64 = 1024 * 1024 * 1024;
/// A pinned tree holds at most this many files and folders.
const MAX_ENTRIES: usize = 100_000;
/// A pinned tree is at most this deep.
const MAX_DEPTH: usize = 32;

/// Why something beneath the handle was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// It is not there.
    #[error("there is no such file")]
    Absent,
    /// It is there, and may not be used.
    #[error("{0}")]
    Refused(String),
    /// Somebody wrote to it, or changed its mode, while it was read.
    #[error("{CHANGED}")]
    Changed,
    /// It holds text that a person does not see.
    #[error("{0}")]
    Hidden(Box<Finding>),
    /// The system gave an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Text that a person does not see, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file in its folder; empty where that is the file itself.
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    /// From 1, in characters.
    pub(crate) column: usize,
    /// The line, for display.
    pub(crate) text: String,
    /// What stands around it, escaped.
    pub(crate) around: String,
    /// What it is.
    pub(crate) hidden: Hidden,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hidden {
            Hidden::Character(c) => write!(
                f,
                "U+{:04X} does not show or changes how the text around it shows: `{}`",
                u32::from(c),
                self.around
            ),
            Hidden::NotText => f.write_str("the file is not UTF-8 text"),
        }
    }
}

/// Opens a folder by an ordinary path: the root of what is read.
pub(crate) fn open_root(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Reads a regular file of at most `max` bytes. One byte more is read where there is more, so that
/// the caller sees that it is too long.
pub(crate) fn read_file(root: BorrowedFd<'_>, path: &str, max: u64) -> Result<Vec<u8>, ReadError> {
    let (fd, stat) = open_checked(root, path, FileType::RegularFile)?;
    read_bounded(fd, &stat, max)
}

/// What of a file goes into a digest: whether it is executable, and the SHA-256 of its bytes, which
/// can be taken for many files at once.
fn part(framer: &mut Framer, blob: &Blob) {
    framer.part(if blob.executable { b"x" } else { b"-" });
    framer.part(&Sha256::digest(&blob.bytes));
}

/// The digest of a file that was read.
pub(crate) fn file_digest(kind: &str, blob: &Blob) -> Digest {
    let mut framer = Framer::new(kind);
    framer.part(b"file");
    part(&mut framer, blob);
    framer.finish()
}

/// The digest of a folder that was read.
pub(crate) fn tree_digest(kind: &str, blobs: &BTreeMap<String, Blob>) -> Digest {
    let mut framer = Framer::new(kind);
    framer.part(b"tree");
    for (path, blob) in blobs {
        framer.part(path.as_bytes());
        part(&mut framer, blob);
    }
    framer.finish()
}

/// Reads a file or a folder whole, under the same rules and limits as its digest is taken.
pub(crate) fn content(root: BorrowedFd<'_>, path: &str) -> Result<Content, ReadError> {
    let mut total = 0;
    if FileType::from_raw_mode(look(root, path)?.st_mode) != FileType::Directory {
        return read_blob(root, path, &mut total).map(Content::File);
    }
    let (top, _) = open_checked(root, path, FileType::Directory)?;
    let mut blobs = BTreeMap::new();
    for file in list::list(top.as_fd())? {
        let blob =
            read_blob(top.as_fd(), &file, &mut total).map_err(|error| within(&file, error))?;
        blobs.insert(file, blob);
    }
    Ok(Content::Tree(blobs))
}

fn read_blob(root: BorrowedFd<'_>, path: &str, total: &mut u64) -> Result<Blob, ReadError> {
    let (fd, stat) = open_checked(root, path, FileType::RegularFile)?;
    // Looked at before anything is read: a bundle may be hostile.
    *total += u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_FILE || *total > MAX_TREE {
        return Err(ReadError::Refused(TOO_LARGE.to_owned()));
    }
    let bytes = read_bounded(fd, &stat, MAX_FILE)?;
    Ok(Blob { bytes, executable: stat.st_mode & 0o111 != 0 })
}

/// Says which entry an error is about.
fn within(path: &str, error: ReadError) -> ReadError {
    let shown = text::shown(path);
    match error {
        ReadError::Refused(reason) => ReadError::Refused(format!("`{shown}`: {reason}")),
        ReadError::Absent => ReadError::Refused(format!("`{shown}` vanished while it was read")),
        ReadError::Changed => ReadError::Refused(format!("`{shown}`: {CHANGED}")),
        ReadError::Hidden(mut finding) => {
            path.clone_into(&mut finding.path);
            ReadError::Hidden(finding)
        }
        ReadError::Io(error) => {
            ReadError::Io(io::Error::new(error.kind(), format!("`{shown}`: {error}")))
        }
    }
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "it is a symbolic link, and those are never followed here",
        FileType::Directory => "it is a folder, and a file is expected",
        FileType::RegularFile => "it is a file, and a folder is expected",
        FileType::Fifo => "it is a named pipe",
        FileType::Socket => "it is a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "it is a device",
        FileType::Unknown => "it is neither a file nor a folder",
    }
}

/// What stands there, without opening it.
fn look(root: BorrowedFd<'_>, path: &str) -> Result<Stat, ReadError> {
    let fd = open_beneath(root, path, OFlags::PATH | OFlags::NOFOLLOW)?;
    Ok(fstat(fd).map_err(io::Error::from)?)
}

/// Opens what stands there if it is of one kind. It is looked at before it is opened, because
/// opening a device can have effects, and again afterwards, because it may have been exchanged.
fn open_checked(
    root: BorrowedFd<'_>,
    path: &str,
    kind: FileType,
) -> Result<(OwnedFd, Stat), ReadError> {
    of_kind(&look(root, path)?, kind)?;
    open_now(root, path, kind)
}

/// Opens what a folder's listing called a regular file. Who exchanges it for a pipe between the two
/// gains nothing: a pipe is opened without waiting and then refused. Only who may make devices on
/// this file system could have one opened.
fn open_regular(root: BorrowedFd<'_>, path: &str) -> Result<(OwnedFd, Stat), ReadError> {
    open_now(root, path, FileType::RegularFile)
}

fn open_now(
    root: BorrowedFd<'_>,
    path: &str,
    kind: FileType,
) -> Result<(OwnedFd, Stat), ReadError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = open_beneath(root, path, flags)?;
    let stat = fstat(&fd).map_err(io::Error::from)?;
    of_kind(&stat, kind)?;
    Ok((fd, stat))
}

fn of_kind(stat: &Stat, kind: FileType) -> Result<(), ReadError> {
    match FileType::from_raw_mode(stat.st_mode) {
        found if found == kind => Ok(()),
        found => Err(ReadError::Refused(describe(found).to_owned())),
    }
}

/// Whether nobody wrote to a file, or changed its mode, between two looks at it. The times are the
/// kernel's, which nobody sets back: there is no stat that stands for bytes that were not read.
fn same(before: &Stat, after: &Stat) -> bool {
    let of = |stat: &Stat| {
        let times = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
        (stat.st_size, stat.st_mode, times)
    };
    of(before) == of(after)
}

fn open_beneath(root: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, ReadError> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // The kernel gives EAGAIN when a rename raced the lookup.
    for _ in 0..16 {
        match openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(fd) => return Ok(fd),
            Err(Errno::AGAIN) => {}
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(ReadError::Absent),
            Err(Errno::LOOP) => {
                return Err(ReadError::Refused(describe(FileType::Symlink).to_owned()));
            }
            Err(Errno::XDEV) => {
                return Err(ReadError::Refused("it leads out of its folder".to_owned()));
            }
            Err(Errno::NXIO) => {
                return Err(ReadError::Refused(describe(FileType::Socket).to_owned()));
            }
            Err(error) => return Err(ReadError::Io(error.into())),
        }
    }
    Err(ReadError::Refused("it is being moved while it is read".to_owned()))
}

/// Reads a file whole, or `max` bytes of it and one more. It must be the same before and after.
fn read_bounded(fd: OwnedFd, before: &Stat, max: u64) -> Result<Vec<u8>, ReadError> {
    let mut file = std::fs::File::from(fd);
    let mut bytes = Vec::new();
    (&mut file).take(max + 1).read_to_end(&mut bytes)?;
    let after = fstat(&file).map_err(io::Error::from)?;
    let whole = bytes.len() as u64 > max || i64::try_from(bytes.len()) == Ok(after.st_size);
    if whole && same(before, &after) { Ok(bytes) } else { Err(ReadError::Changed) }
}
