//! Files read beneath a directory handle: no symlink followed, nothing but regular files opened,
//! every read bounded.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use sha2::{Digest as _, Sha256};

use crate::digest::{Digest, Framer};
use crate::objects::{Blob, Content};
use crate::text;

#[cfg(test)]
mod tests;

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
    /// The system gave an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens a folder by an ordinary path: the root of what is read.
pub(crate) fn open_root(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Reads a regular file of at most `max` bytes. One byte more is read where there is more, so that
/// the caller sees that it is too long.
pub(crate) fn read_file(root: BorrowedFd<'_>, path: &str, max: u64) -> Result<Vec<u8>, ReadError> {
    let (fd, _) = open_checked(root, path, FileType::RegularFile)?;
    read_bounded(fd, max)
}

/// The digest of a regular file: its bytes and whether it is executable.
pub(crate) fn digest_file(
    root: BorrowedFd<'_>,
    path: &str,
    kind: &str,
) -> Result<Digest, ReadError> {
    let mut framer = Framer::new(kind);
    framer.part(b"file");
    add_file(&mut framer, root, path, &mut 0)?;
    Ok(framer.finish())
}

/// The digest of a folder: the sorted relative paths of its files, each with its bytes and whether
/// it is executable. Anything that is neither a regular file nor a folder refuses the whole.
pub(crate) fn digest_tree(
    root: BorrowedFd<'_>,
    path: &str,
    kind: &str,
) -> Result<Digest, ReadError> {
    let (top, _) = open_checked(root, path, FileType::Directory)?;
    let mut files = Vec::new();
    list(top.as_fd(), "", 0, &mut 0, &mut files)?;
    if files.is_empty() {
        return Err(ReadError::Refused("the folder holds no file".to_owned()));
    }
    files.sort();
    let mut framer = Framer::new(kind);
    framer.part(b"tree");
    let mut total = 0;
    for file in files {
        framer.part(file.as_bytes());
        add_file(&mut framer, top.as_fd(), &file, &mut total)
            .map_err(|error| within(&file, error))?;
    }
    Ok(framer.finish())
}

/// The digest of whichever of the two it is.
pub(crate) fn digest_either(
    root: BorrowedFd<'_>,
    path: &str,
    kind: &str,
) -> Result<Digest, ReadError> {
    match FileType::from_raw_mode(look(root, path)?.st_mode) {
        FileType::Directory => digest_tree(root, path, kind),
        _ => digest_file(root, path, kind),
    }
}

fn add_file(
    framer: &mut Framer,
    root: BorrowedFd<'_>,
    path: &str,
    total: &mut u64,
) -> Result<(), ReadError> {
    let blob = read_blob(root, path, total)?;
    part(framer, &blob);
    Ok(())
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
    let mut files = Vec::new();
    list(top.as_fd(), "", 0, &mut 0, &mut files)?;
    let mut blobs = BTreeMap::new();
    for file in files {
        let blob =
            read_blob(top.as_fd(), &file, &mut total).map_err(|error| within(&file, error))?;
        blobs.insert(file, blob);
    }
    Ok(Content::Tree(blobs))
}

fn read_blob(root: BorrowedFd<'_>, path: &str, total: &mut u64) -> Result<Blob, ReadError> {
    let (fd, stat) = open_checked(root, path, FileType::RegularFile)?;
    let bytes = read_bounded(fd, MAX_FILE)?;
    let length = bytes.len() as u64;
    *total += length;
    if length > MAX_FILE || *total > MAX_TREE {
        return Err(ReadError::Refused(
            "too large to pin: a file holds at most 64 MiB, a folder 1 GiB".to_owned(),
        ));
    }
    Ok(Blob { bytes, executable: stat.st_mode & 0o111 != 0 })
}

fn list(
    dir: BorrowedFd<'_>,
    prefix: &str,
    depth: usize,
    count: &mut usize,
    files: &mut Vec<String>,
) -> Result<(), ReadError> {
    let refuse = |reason: &str| Err(ReadError::Refused(reason.to_owned()));
    if depth > MAX_DEPTH {
        return refuse("folders nested more than 32 deep");
    }
    let mut reader = rustix::fs::Dir::read_from(dir).map_err(io::Error::from)?;
    while let Some(entry) = reader.read() {
        let entry = entry.map_err(io::Error::from)?;
        let Ok(name) = entry.file_name().to_str() else {
            return refuse("it holds a file whose name is not UTF-8");
        };
        if name == "." || name == ".." {
            continue;
        }
        *count += 1;
        if *count > MAX_ENTRIES {
            return refuse("it holds more than 100,000 files and folders");
        }
        let path = format!("{prefix}{name}");
        if name.chars().any(text::is_invisible) {
            let shown = text::shown(&path);
            return Err(ReadError::Refused(format!(
                "`{shown}`: the name holds a character that does not show"
            )));
        }
        let stat = look(dir, name).map_err(|error| within(&path, error))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => files.push(path),
            FileType::Directory => {
                let (below, _) = open_checked(dir, name, FileType::Directory)
                    .map_err(|error| within(&path, error))?;
                list(below.as_fd(), &format!("{path}/"), depth + 1, count, files)?;
            }
            other => {
                return Err(within(&path, ReadError::Refused(describe(other).to_owned())));
            }
        }
    }
    Ok(())
}

/// Says which entry an error is about.
fn within(path: &str, error: ReadError) -> ReadError {
    let shown = text::shown(path);
    match error {
        ReadError::Refused(reason) => ReadError::Refused(format!("`{shown}`: {reason}")),
        ReadError::Absent => ReadError::Refused(format!("`{shown}` vanished while it was read")),
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
    let check = |stat: &Stat| match FileType::from_raw_mode(stat.st_mode) {
        found if found == kind => Ok(()),
        found => Err(ReadError::Refused(describe(found).to_owned())),
    };
    check(&look(root, path)?)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = open_beneath(root, path, flags)?;
    let stat = fstat(&fd).map_err(io::Error::from)?;
    check(&stat)?;
    Ok((fd, stat))
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

fn read_bounded(fd: OwnedFd, max: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    std::fs::File::from(fd).take(max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
