//! The bytes of `gateway-tokens.json`: strict in, atomic out.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{self, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{MOST, Token};
use crate::Error;

const NAME: &str = "gateway-tokens.json";
const NEW: &str = ".gateway-tokens.json.new";
const LOCK: &str = "gateway-tokens.lock";
const VERSION: u32 = 1;
/// Bytes of the file.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    tokens: Vec<Token>,
}

pub(super) fn path(home: &Path) -> PathBuf {
    home.join(NAME)
}

/// What tells whether the file is another than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: (u64, u64),
    size: i64,
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file that is there now.
    pub(super) fn of(home: &Path) -> Option<Self> {
        let stat = fs::statat(CWD, path(home), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Self {
            inode: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        })
    }

    /// Whether it changed just now: another change may have the same time.
    pub(super) fn is_young(&self) -> bool {
        let changed = Duration::new(
            u64::try_from(self.changed.0).unwrap_or(0),
            u32::try_from(self.changed.1).unwrap_or(0),
        );
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed);
        age.is_ok_and(|age| age < Duration::from_millis(50))
    }
}

/// Reads the tokens; none where there is no file. The file must be regular and the caller's own, and
/// nobody else may read or write it: checked on the opened descriptor.
pub(super) fn read(home: &Path) -> Result<Vec<Token>, Error> {
    let path = path(home);
    let fail = |reason: String| Error::Tokens { path: path.clone(), reason };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match fs::open(&path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(Errno::LOOP) => return Err(fail("is a symlink, which is not followed".into())),
        Err(errno) => return Err(fail(errno.to_string())),
    };
    check(&file).map_err(|reason| fail(format!("{reason}: {}", path.display())))?;
    let mut bytes = Vec::new();
    let read = File::from(file).take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| fail(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fail("is larger than 1 MiB".into()));
    }
    let document: Document =
        serde_json::from_slice(&bytes).map_err(|error| fail(format!("does not parse: {error}")))?;
    if document.version != VERSION {
        let found = document.version;
        return Err(fail(format!("is of version {found}, and this program reads {VERSION}")));
    }
    let mut tokens = document.tokens;
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    if tokens.len() > MOST {
        return Err(fail(format!("holds more than {MOST} tokens")));
    }
    if tokens.windows(2).any(|two| two[0].name == two[1].name) {
        return Err(fail("holds a name twice".into()));
    }
    if let Some(token) = tokens.iter().find(|token| unhex(&token.sha256).is_none()) {
        return Err(fail(format!("the digest of {} is none", token.name)));
    }
    Ok(tokens)
}

fn check(file: &OwnedFd) -> Result<(), &'static str> {
    let stat = fs::fstat(file).map_err(|_| "cannot be looked at")?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("is not a regular file");
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err("belongs to another user");
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        return Err("can be reached by other users; look at it, then chmod 600");
    }
    Ok(())
}

/// Puts the tokens in place, whole or not at all, and durable (0600). Only under [`lock`].
pub(super) fn replace(home: &Path, tokens: &[Token]) -> Result<(), Error> {
    let path = path(home);
    let document = Document { version: VERSION, tokens: tokens.to_vec() };
    let put = || -> io::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(&document)?;
        bytes.push(b'\n');
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::open(home, flags, Mode::empty())?;
        // A file of this name is what a writer left that was killed.
        match fs::unlinkat(&folder, NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&folder, NEW, flags, Mode::RUSR | Mode::WUSR)?);
        let written = file
            .write_all(&bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(fs::renameat(&folder, NEW, &folder, NAME)?));
        if written.is_err() {
            let _ = fs::unlinkat(&folder, NEW, AtFlags::empty());
        }
        written?;
        Ok(fs::fsync(&folder)?)
    };
    put().map_err(|source| Error::Io { path, source })
}

/// Held while the file changes.
pub(super) fn lock(home: &Path) -> Result<OwnedFd, Error> {
    ringfence_record::prepare_home(home).map_err(ringfence_record::Error::from)?;
    let path = home.join(LOCK);
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let locked = fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
        .and_then(|file| fs::flock(&file, FlockOperation::LockExclusive).map(|()| file));
    locked.map_err(|errno| Error::Io { path, source: errno.into() })
}

/// 32 bytes in lower-case hexadecimal.
pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || text.bytes().any(|b| !matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}
