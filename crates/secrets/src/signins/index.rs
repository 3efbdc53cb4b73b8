//! `<home>/signins.json`: which sign-ins there are, without their values.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use super::{SignIn, Stamp};

const NAME: &str = "signins.json";
const MAX_BYTES: u64 = 4 << 20;
/// Sign-ins on one machine, at most.
const MAX: usize = 1000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    signins: Vec<SignIn>,
}

pub(super) fn read(home: &Path) -> Result<Vec<SignIn>, String> {
    let path = home.join(NAME);
    let bad = |why: String| format!("{}: {why}", path.display());
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match options.read(true).custom_flags(flags).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(bad(error.to_string())),
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    let stored: Stored = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    if stored.version != 1 {
        return Err(bad(format!("version {} is not known here", stored.version)));
    }
    Ok(stored.signins)
}

/// Inode, size and time: another one when the file was written anew.
pub(super) fn stamp(home: &Path) -> Stamp {
    let found = std::fs::symlink_metadata(home.join(NAME)).ok()?;
    Some((found.ino(), found.size().cast_signed(), found.mtime(), found.mtime_nsec()))
}

/// Puts one in the place of what was there for the same server, or takes it away.
pub(super) fn change(home: &Path, server: &str, new: Option<&SignIn>) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: {error}", home.join(NAME).display());
    let lock = open(&home.join("signins.lock")).map_err(io)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| io(error.into()))?;
    let mut signins = read(home)?;
    signins.retain(|it| it.server != server);
    signins.extend(new.cloned());
    if signins.len() > MAX {
        return Err(format!("there are {MAX} sign-ins; `ringfence logout` takes some away"));
    }
    signins.sort_by(|a, b| a.server.cmp(&b.server));
    let stored = Stored { version: 1, signins };
    let text = serde_json::to_vec(&stored).map_err(|error| error.to_string())?;
    write(home, NAME, &text).map_err(io)
}

/// Writes a file of mode 0600, whole or not at all. The caller holds its lock.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = folder.join(format!("{name}.new"));
    // What a crash left is ours to replace: nobody else writes under the lock.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, folder.join(name))?;
    File::open(folder)?.sync_all()
}

pub(super) fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}
