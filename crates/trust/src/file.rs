//! The bytes of `trust.json`: strict in, atomic out.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Error, Grant};

/// What this program writes.
const VERSION: u32 = 2;

/// What it reads too: its rows hold no programs, so none of them proves anything before a new yes.
const BEFORE: u32 = 1;

/// Most bytes of a store: some fifty thousand projects.
const MAX_BYTES: u64 = 16 << 20;

pub(crate) const NAME: &str = "trust.json";
const NEW: &str = ".trust.json.new";
const LOCK: &str = "trust.lock";

/// Canonical project path to its grant.
pub(crate) type Grants = BTreeMap<String, Grant>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    #[serde(deserialize_with = "each_once")]
    projects: Grants,
}

/// Reads the store's bytes; `None` when there is no file. The file must be regular, and it and its
/// folder the caller's own and writable by nobody else; both are checked on opened descriptors.
pub(crate) fn read(home: &Path) -> Result<Option<Vec<u8>>, Error> {
    let path = home.join(NAME);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some(folder) = open(CWD, home, flags | OFlags::DIRECTORY, home)? else { return Ok(None) };
    check(home, &folder, FileType::Directory, "chmod 700")?;
    let flags = flags | OFlags::NONBLOCK;
    let Some(file) = open(folder.as_fd(), Path::new(NAME), flags, &path)? else { return Ok(None) };
    check(&path, &file, FileType::RegularFile, "chmod 600")?;
    let fail = |reason: String| Error::Store { path: path.clone(), reason };
    let mut bytes = Vec::new();
    let read = File::from(file).take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| fail(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fail("is larger than 16 MiB".to_owned()));
    }
    Ok(Some(bytes))
}

/// Opens what is there, without following a symlink; `named` is how an error calls it.
fn open(
    at: BorrowedFd<'_>,
    name: &Path,
    flags: OFlags,
    named: &Path,
) -> Result<Option<OwnedFd>, Error> {
    let reason = match fs::openat(at, name, flags, Mode::empty()) {
        Ok(descriptor) => return Ok(Some(descriptor)),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => "is a symlink, which is not followed".to_owned(),
        Err(errno) => errno.to_string(),
    };
    Err(Error::Store { path: named.to_owned(), reason })
}

fn check(path: &Path, descriptor: &OwnedFd, kind: FileType, mend: &str) -> Result<(), Error> {
    let fail = |reason: String| Err(Error::Store { path: path.to_owned(), reason });
    let stat = match fs::fstat(descriptor) {
        Ok(stat) => stat,
        Err(errno) => return fail(errno.to_string()),
    };
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return fail("is not a regular file".to_owned());
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return fail(format!(
            "belongs to user {}, not to you; set RINGFENCE_HOME to a folder of yours",
            stat.st_uid
        ));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return fail(format!(
            "can be written to by other users; look at it, then run `{mend} {}`",
            path.display()
        ));
    }
    Ok(())
}

/// Reads what [`read`] gave.
pub(crate) fn parse(home: &Path, bytes: Option<&[u8]>) -> Result<Grants, Error> {
    let Some(bytes) = bytes else { return Ok(Grants::new()) };
    let fail = |reason: String| Error::Store { path: home.join(NAME), reason };
    let document: Document =
        serde_json::from_slice(bytes).map_err(|error| fail(format!("does not parse: {error}")))?;
    let found = document.version;
    if found != VERSION && found != BEFORE {
        return Err(fail(format!("is of version {found}, and this program reads {VERSION}")));
    }
    if found == BEFORE && document.projects.values().any(|grant| grant.programs.is_some()) {
        return Err(fail(format!("is of version {BEFORE}, and holds what only {VERSION} has")));
    }
    Ok(document.projects)
}

/// The store's bytes.
pub(crate) fn render(grants: Grants) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(&Document { version: VERSION, projects: grants })
        .expect("text and numbers under text keys always have a JSON form");
    bytes.push(b'\n');
    bytes
}

/// Puts the store's bytes in place, whole or not at all, and durable (0600). Only under [`lock`].
pub(crate) fn replace(home: &Path, bytes: &[u8]) -> Result<(), Error> {
    let put = || -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::open(home, flags, Mode::empty())?;
        // A file of this name is what a writer left that was killed; the lock says that none is at
        // work.
        match fs::unlinkat(&folder, NEW, fs::AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&folder, NEW, flags, Mode::RUSR | Mode::WUSR)?);
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(fs::renameat(&folder, NEW, &folder, NAME)?));
        if written.is_err() {
            // What failed is reported; half a store is of no use to anybody.
            let _ = fs::unlinkat(&folder, NEW, fs::AtFlags::empty());
        }
        written?;
        Ok(fs::fsync(&folder)?)
    };
    put().map_err(|source| Error::Write { path: home.join(NAME), source })
}

/// Held while the store changes; released when dropped.
pub(crate) struct Lock {
    _file: File,
}

/// Waits for whoever else changes the store.
pub(crate) fn lock(home: &Path) -> Result<Lock, Error> {
    let path = home.join(LOCK);
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let locked = fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR)
        .and_then(|file| fs::flock(&file, FlockOperation::LockExclusive).map(|()| file));
    let file = locked.map_err(|errno| Error::Write { path, source: errno.into() })?;
    Ok(Lock { _file: File::from(file) })
}

/// A map in which no key stands twice: which of the two would count?
fn each_once<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Grants, D::Error> {
    struct Each;
    impl<'de> Visitor<'de> for Each {
        type Value = Grants;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("projects, each once")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Grants, A::Error> {
            let mut grants = Grants::new();
            while let Some((project, grant)) = map.next_entry::<String, Grant>()? {
                if grants.contains_key(&project) {
                    return Err(A::Error::custom(format!("{project:?} stands twice")));
                }
                grants.insert(project, grant);
            }
            Ok(grants)
        }
    }
    deserializer.deserialize_map(Each)
}
