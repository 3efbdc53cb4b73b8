//! The machine's chain: run openings, seals and trust changes, written by many processes in turn.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ringfence_identity::Signer;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use sha2::{Digest as _, Sha256};

use crate::line::{self, Chain, Line, MAX_LINE};
use crate::{Error, Event, Receipt, paths};

/// The log's name in its folder.
const NAME: &str = "machine.jsonl";

/// A copy of the last commit line, written after every append: a log whose end is cut away does not
/// reach it.
pub(crate) const HEAD: &str = "machine.head";

/// The copy while it is made.
const NEW_HEAD: &str = ".machine.head.new";

/// Lines that a first append makes at most, with the mark of a torn one before it. Its writer may be
/// killed before there is a copy.
const FIRST_GROUP: u64 = 3;

/// What ends a torn line. The space keeps a line that lacked only its end from becoming a whole one.
const CLOSE: &[u8] = b" \n";

/// How far back a commit line is looked for. More than this behind the last one is no torn write.
const MAX_TAIL: u64 = 16 << 20;

/// The machine chain, `<home>/log/machine.jsonl`: run openings, run seals and trust changes. One
/// writer at a time, by a file lock; every append is signed and durable when it returns.
#[derive(Debug)]
pub struct MachineLog {
    folder: OwnedFd,
    path: PathBuf,
    signer: Signer,
}

impl MachineLog {
    /// Opens or makes the log's folder; signs with the machine's key.
    ///
    /// # Errors
    /// [`Error::Folder`] when the machine's folder or the log's can be written to by others.
    pub fn open(home: &Path, signer: Signer) -> Result<Self, Error> {
        paths::folder(home)?;
        let path = paths::machine_file(home);
        let folder = paths::folder(&home.join("log"))?;
        Ok(Self { folder, path, signer })
    }

    /// [`MachineLog::open`] with the machine's own key, made on first use.
    ///
    /// # Errors
    /// [`Error::Folder`] when the key or a folder is not safe or cannot be made.
    pub fn of_machine(home: &Path) -> Result<Self, Error> {
        Self::open(home, Signer::machine(home)?)
    }

    /// Appends an event, signed and durable. Waits for other processes that append. What a killed
    /// writer left behind is marked by [`Event::TornLine`] and never written onto.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Read`], [`Error::Damaged`] when the end of the log is no torn
    /// write or the copy of the last signed line shows that lines are gone: an append would hide
    /// that, [`Error::TooLarge`].
    pub fn append(&self, event: Event) -> Result<Receipt, Error> {
        let event = line::encode(&event)?;
        let fail = |source| Error::Write { path: self.path.clone(), source };
        // Opened anew each time: a lock belongs to an open file, so threads exclude each other too.
        let (mut file, length) = self.lock().map_err(fail)?;
        let tail = self.tail(&file, length)?;
        if !self.check_end(&tail.chain)?
            && let Some(line) = &tail.commit
        {
            // Its writer was killed before there was a copy. Without one, the lines to come would be
            // too many to have none.
            self.save_head(line).map_err(fail)?;
        }

        let mut lines = Vec::new();
        let mut chain = tail.chain;
        if tail.torn.bytes > 0 {
            if !tail.torn.closed {
                lines.extend_from_slice(CLOSE);
            }
            let torn = Event::TornLine { bytes: tail.torn.bytes, digest: tail.torn.digest };
            chain.append(&mut lines, &line::now(), &line::encode(&torn)?);
        }
        let seq = chain.append(&mut lines, &line::now(), &event);
        let start = lines.len();
        chain.commit(&mut lines, &line::now(), &self.signer);

        let written = file.write_all(&lines).and_then(|()| file.sync_data()).and_then(|()| {
            // The first append also makes the name durable.
            if length == 0 { fs::fsync(&self.folder).map_err(io::Error::from) } else { Ok(()) }
        });
        if let Err(error) = written {
            // Nobody was told that these bytes are evidence. Where they cannot be taken back, the
            // next writer marks them.
            drop(file.set_len(length));
            return Err(fail(error));
        }
        // Best effort: an older copy still proves that the log once reached that far.
        drop(self.save_head(&lines[start..]));
        Ok(Receipt { seq })
    }

    /// Where the log is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> io::Result<(File, u64)> {
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NONBLOCK;
        let file = File::from(fs::openat(&self.folder, NAME, flags, Mode::RUSR | Mode::WUSR)?);
        fs::flock(&file, FlockOperation::LockExclusive)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok((file, metadata.len()))
    }

    /// Written in place where the length stays: a line is shorter than a disk's sector, one call
    /// writes it, a reader holds the lock, and a new file under the old name would cost a journal
    /// commit. Its length changes when it is made and then at powers of ten: then it is replaced, as
    /// a writer that is killed half way would leave no signed line, and stop the next append.
    fn save_head(&self, line: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if let Ok(file) = fs::openat(&self.folder, HEAD, flags, Mode::empty()) {
            let file = File::from(file);
            let before = file.metadata()?;
            if before.is_file() && before.len() == line.len() as u64 {
                return file.write_all_at(line, 0);
            }
        }
        // A file of this name is what a writer left that was killed; the lock says that none is at
        // work.
        let _ = fs::unlinkat(&self.folder, NEW_HEAD, AtFlags::empty());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.folder, NEW_HEAD, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(line)?;
        file.sync_all()?;
        fs::renameat(&self.folder, NEW_HEAD, &self.folder, HEAD)?;
        Ok(fs::fsync(&self.folder)?)
    }

    /// Refuses to go on from an end that is not the one the copy knows of: the next copy would be
    /// of the new end, and nothing would show any more that lines are gone. False where there is no
    /// copy yet.
    fn check_end(&self, end: &Chain) -> Result<bool, Error> {
        let head = self.path.with_file_name(HEAD);
        let damaged = |path: &Path, line, reason: String| {
            let reason = format!("{reason}; `ringfence audit verify` shows what is left");
            Err(Error::Damaged { path: path.to_owned(), line, reason })
        };
        let line = match read_head(&head) {
            Head::None if end.seq <= FIRST_GROUP => return Ok(false),
            Head::None => {
                return damaged(&head, 1, "the copy of the last signed line is gone".to_owned());
            }
            Head::Bad => return damaged(&head, 1, "is not a signed line".to_owned()),
            Head::Line(line) => line,
        };
        let own = self.signer.did().as_str();
        if line.commit().is_none_or(|(key, valid)| !valid || key != own) {
            let reason = "is not signed by this machine's key, which may be another than it was";
            return damaged(&head, 1, reason.to_owned());
        }
        let next = line.seq.saturating_add(1);
        if next > end.seq {
            let reason = format!("the log ends before its last signed line, number {}", line.seq);
            return damaged(&self.path, end.seq.saturating_add(1), reason);
        }
        if next == end.seq && line.hash != end.head {
            let reason = format!("line number {} is not the one that was signed", line.seq);
            return damaged(&self.path, end.seq, reason);
        }
        Ok(true)
    }

    /// The chain after the last commit line, and what lies behind that line.
    fn tail(&self, file: &File, length: u64) -> Result<Tail, Error> {
        let fail = |source| Error::Read { path: self.path.clone(), source };
        let mut window = 4096;
        loop {
            let start = length.saturating_sub(window);
            let size = usize::try_from(length - start).expect("the window is bounded by MAX_TAIL");
            let mut bytes = vec![0; size];
            file.read_exact_at(&mut bytes, start).map_err(fail)?;
            if let Some(found) = last_commit(&bytes) {
                let torn = Torn::of(&bytes[found.end..]);
                let commit = Some(bytes[found.start..found.end].to_vec());
                return Ok(Tail { chain: Chain::after(&found.line), commit, torn });
            }
            if start == 0 {
                let chain = Chain::new(paths::MACHINE);
                return Ok(Tail { chain, commit: None, torn: Torn::of(&bytes) });
            }
            window *= 4;
            if window > MAX_TAIL {
                let reason = "no signed line in the last 16 MiB; run `ringfence audit verify`";
                let (path, reason) = (self.path.clone(), reason.to_owned());
                return Err(Error::Damaged { path, line: 0, reason });
            }
        }
    }
}

/// The copy of the last signed line.
pub(crate) enum Head {
    Line(Box<Line>),
    Bad,
    None,
}

/// Reads the copy. Whether its signature holds is not looked at.
pub(crate) fn read_head(path: &Path) -> Head {
    let Ok(file) = paths::open(path) else {
        return if path.symlink_metadata().is_ok() { Head::Bad } else { Head::None };
    };
    let mut bytes = Vec::new();
    if file.take(MAX_LINE as u64 + 1).read_to_end(&mut bytes).is_err() {
        return Head::Bad;
    }
    match bytes.strip_suffix(b"\n").map(Line::parse) {
        Some(Ok(line)) if is_commit(&line) => Head::Line(Box::new(line)),
        _ => Head::Bad,
    }
}

struct Tail {
    chain: Chain,
    /// The last commit line, if there is one.
    commit: Option<Vec<u8>>,
    torn: Torn,
}

struct Torn {
    /// With what closes it.
    bytes: u64,
    digest: String,
    /// Whether it ends in a line end already.
    closed: bool,
}

impl Torn {
    fn of(bytes: &[u8]) -> Self {
        let closed = bytes.is_empty() || bytes.ends_with(b"\n");
        let mut digest = Sha256::new_with_prefix(bytes);
        let close = if closed { &[] } else { CLOSE };
        digest.update(close);
        let length = (bytes.len() + close.len()) as u64;
        Self { bytes: length, digest: line::text(&digest.finalize().into()), closed }
    }
}

struct Found {
    line: Line,
    start: usize,
    /// Just behind its line end.
    end: usize,
}

/// The last whole line that is a commit of the machine log. The first line of a window may be cut in
/// front; then it does not parse, and a larger window is read.
fn last_commit(bytes: &[u8]) -> Option<Found> {
    let mut end = bytes.len();
    while let Some(at) = bytes[..end].iter().rposition(|&byte| byte == b'\n') {
        let start = bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |it| it + 1);
        if at - start <= MAX_LINE
            && let Ok(line) = Line::parse(&bytes[start..at])
            && is_commit(&line)
        {
            return Some(Found { line, start, end: at + 1 });
        }
        end = at;
    }
    None
}

/// What a writer goes on from, and what a verifier takes for the end of a group.
pub(crate) fn is_commit(line: &Line) -> bool {
    line.kind() == "commit" && line.run == paths::MACHINE && line.seq < u64::MAX
}

#[cfg(test)]
mod tests;
