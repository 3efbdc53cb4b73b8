//! Digests of files and folders: many files at once, each in pieces, none whole in memory.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{FileType, Stat, fstat};
use sha2::{Digest as _, Sha256};

use super::{
    Finding, MAX_FILE, MAX_TREE, ReadError, TOO_LARGE, list, look, open_checked, open_regular,
    same, within,
};
use crate::digest::{Digest, Framer};
use crate::hidden::{Hidden, Reading, Scanner};
use crate::{Form, Kind, text};

/// Bytes that are read at once.
const PIECE: usize = 128 * 1024;

/// More than this reads no faster from any disk.
const MAX_WORKERS: usize = 16;

/// Something whose digest is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// What it lies beneath.
    pub(crate) root: BorrowedFd<'a>,
    /// Where.
    pub(crate) path: &'a str,
    /// What it is.
    pub(crate) kind: Kind,
}

/// The digests of all that is asked for, in the same order. The work is shared between the cores,
/// file by file, whatever it belongs to.
pub(crate) fn digests(asks: &[Ask<'_>]) -> Vec<Result<Digest, ReadError>> {
    within_size(asks, MAX_TREE)
}

/// As [`digests`], with another limit on the bytes of a folder.
pub(super) fn within_size(asks: &[Ask<'_>], most: u64) -> Vec<Result<Digest, ReadError>> {
    let opened: Vec<Result<Opened, ReadError>> = asks.iter().map(open).collect();
    let trees: Vec<Tree<'_>> = opened
        .iter()
        .zip(asks)
        .filter_map(|(opened, ask)| Some(Tree::new(opened.as_ref().ok()?, ask, most)))
        .collect();
    let jobs: Vec<(usize, usize)> = trees
        .iter()
        .enumerate()
        .flat_map(|(tree, it)| (0..it.files.len()).map(move |file| (tree, file)))
        .collect();
    let mut leaves: Vec<Vec<Option<Result<Leaf, ReadError>>>> =
        trees.iter().map(|tree| tree.files.iter().map(|_| None).collect()).collect();
    for ((tree, file), leaf) in work(&trees, &jobs) {
        leaves[tree][file] = Some(leaf);
    }
    let made: Vec<_> = trees.iter().zip(leaves).map(|(tree, leaves)| tree.digest(leaves)).collect();
    let mut made = made.into_iter();
    drop(trees);
    let mut next = |_| made.next().expect("each that was opened has one");
    opened.into_iter().map(|opened| opened.and_then(&mut next)).collect()
}

/// The digest of one thing.
pub(crate) fn digest(root: BorrowedFd<'_>, path: &str, kind: Kind) -> Result<Digest, ReadError> {
    digests(&[Ask { root, path, kind }]).pop().expect("one was asked for")
}

/// A folder with its files, or what holds one file.
enum Opened {
    Tree(OwnedFd, Vec<String>),
    File,
}

fn open(ask: &Ask<'_>) -> Result<Opened, ReadError> {
    let tree = match ask.kind.form() {
        Form::Tree => true,
        Form::File | Form::Definition => false,
        Form::Either => {
            FileType::from_raw_mode(look(ask.root, ask.path)?.st_mode) == FileType::Directory
        }
    };
    if !tree {
        return Ok(Opened::File);
    }
    let (top, _) = open_checked(ask.root, ask.path, FileType::Directory)?;
    let files = list::list(top.as_fd())?;
    if files.is_empty() {
        return Err(ReadError::Refused("the folder holds no file".to_owned()));
    }
    Ok(Opened::Tree(top, files))
}

/// Files that make one digest.
struct Tree<'a> {
    root: BorrowedFd<'a>,
    files: Vec<&'a str>,
    kind: Kind,
    /// Whether it is one file, and no folder.
    single: bool,
    /// Bytes that it may hold.
    most: u64,
    /// Bytes so far.
    total: AtomicU64,
    /// The first file that was refused: those after it matter no more.
    refused: AtomicUsize,
}

/// What of a file goes into a digest.
struct Leaf {
    executable: bool,
    hash: [u8; 32],
}

impl<'a> Tree<'a> {
    fn new(opened: &'a Opened, ask: &Ask<'a>, most: u64) -> Self {
        let (root, files, single) = match opened {
            Opened::Tree(top, files) => {
                (top.as_fd(), files.iter().map(String::as_str).collect(), false)
            }
            Opened::File => (ask.root, vec![ask.path], true),
        };
        let (total, refused) = (AtomicU64::new(0), AtomicUsize::new(usize::MAX));
        Self { root, files, kind: ask.kind, single, most, total, refused }
    }

    fn leaf(&self, file: usize, buffer: &mut [u8]) -> Result<Leaf, ReadError> {
        let path = self.files[file];
        let mut read = || {
            // A folder's listing has said that it is a regular file.
            let (fd, stat) = if self.single {
                open_checked(self.root, path, FileType::RegularFile)?
            } else {
                open_regular(self.root, path)?
            };
            let length = length(&stat);
            let total = self.total.fetch_add(length, Ordering::Relaxed) + length;
            if length > MAX_FILE || total > self.most {
                return Err(ReadError::Refused(TOO_LARGE.to_owned()));
            }
            let reading = match self.kind {
                Kind::Skill | Kind::Extension | Kind::Workflow => Some(Reading::of(path)),
                Kind::Instruction => Some(Reading::Prose),
                _ => None,
            };
            hash(File::from(fd), &stat, reading, buffer, |_| {})
        };
        read().map_err(|error| {
            self.refused.fetch_min(file, Ordering::Relaxed);
            if self.single { error } else { within(path, error) }
        })
    }

    fn digest(&self, leaves: Vec<Option<Result<Leaf, ReadError>>>) -> Result<Digest, ReadError> {
        let mut framer = Framer::new(self.kind.as_str());
        framer.part(if self.single { b"file" } else { b"tree" });
        for (path, leaf) in self.files.iter().zip(leaves) {
            // Only files after one that was refused were left out.
            let leaf = leaf.expect("every file before the first refused one was read")?;
            if !self.single {
                framer.part(path.as_bytes());
            }
            framer.part(if leaf.executable { b"x" } else { b"-" });
            framer.part(&leaf.hash);
        }
        Ok(framer.finish())
    }
}

type Done = ((usize, usize), Result<Leaf, ReadError>);

/// Reads all files, with as many threads as there are cores.
fn work(trees: &[Tree<'_>], jobs: &[(usize, usize)]) -> Vec<Done> {
    let next = AtomicUsize::new(0);
    let one = || {
        let mut buffer = vec![0; PIECE + 4];
        let mut done = Vec::new();
        while let Some(&(tree, file)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if file <= trees[tree].refused.load(Ordering::Relaxed) {
                done.push(((tree, file), trees[tree].leaf(file, &mut buffer)));
            }
        }
        done
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // A few files are read sooner than a thread is there.
    let workers = cores.min(MAX_WORKERS).min(jobs.len().div_ceil(4));
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers)
            // Where there is no room for another thread, those that are there do the work.
            .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, one).ok())
            .collect();
        let mut done = one();
        for other in others {
            done.extend(other.join().expect("reading files does not panic"));
        }
        done
    })
}

/// Reads a file in pieces. It must be the same before and after: `stat` is of before. `after` is
/// called with the bytes read so far, for tests to change the file.
fn hash(
    mut file: File,
    stat: &Stat,
    reading: Option<Reading>,
    buffer: &mut [u8],
    mut after: impl FnMut(u64),
) -> Result<Leaf, ReadError> {
    let mut sha = Sha256::new();
    let mut scanner = reading.map(Scanner::new);
    let (length, mut read, mut kept) = (length(stat), 0, 0);
    while read < length {
        let count = match file.read(&mut buffer[kept..kept + PIECE]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        read += count as u64;
        sha.update(&buffer[kept..kept + count]);
        if let Some(scanner) = &mut scanner {
            let end = kept + count;
            let left = scanner.piece(&buffer[..end]);
            buffer.copy_within(end - left..end, 0);
            kept = left;
        }
        after(read);
    }
    let found = scanner.and_then(|scanner| scanner.finish(kept));
    let found = found.map(|(at, hidden)| place(&mut file, at, hidden)).transpose()?;
    if read != length || !same(stat, &fstat(&file).map_err(io::Error::from)?) {
        return Err(ReadError::Changed);
    }
    match found {
        Some(finding) => Err(ReadError::Hidden(Box::new(finding))),
        None => Ok(Leaf { executable: stat.st_mode & 0o111 != 0, hash: sha.finalize().into() }),
    }
}

/// Line and column of a byte: the file is read again up to there, as this is seldom asked.
fn place(file: &mut File, at: u64, hidden: Hidden) -> io::Result<Finding> {
    const MOST: usize = 2000;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(at + MOST as u64).read_to_end(&mut bytes)?;
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let end =
        bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| at + end);
    let before = String::from_utf8_lossy(&bytes[start..at]).chars().count();
    Ok(Finding {
        path: String::new(),
        line: bytes[..start].iter().filter(|byte| **byte == b'\n').count() + 1,
        column: before + 1,
        text: text::display_line(&String::from_utf8_lossy(&bytes[start..end])),
        around: around(&String::from_utf8_lossy(&bytes[start..end]), before),
        hidden,
    })
}

/// The text around a character, with what does not show as `<U+…>`.
fn around(line: &str, at: usize) -> String {
    let mut shown = String::new();
    for c in line.chars().skip(at.saturating_sub(12)).take(36) {
        if text::is_invisible(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "<U+{:04X}>", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(super) fn hash_with(
    root: BorrowedFd<'_>,
    path: &str,
    after: impl FnMut(u64),
) -> Result<[u8; 32], ReadError> {
    let (fd, stat) = open_regular(root, path)?;
    let mut buffer = vec![0; PIECE + 4];
    hash(File::from(fd), &stat, Some(Reading::Any), &mut buffer, after).map(|leaf| leaf.hash)
}
