//! The consent digest over the three files, for whoever holds or re-reads their bytes alone.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::files::{self, ReadError};
use crate::{Digest, snapshot};

/// Bytes of manifest, overlay and lock.
pub type Three = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

/// The consent digest: domain-separated, length-framed SHA-256 over the bytes of manifest, overlay
/// (absent and empty differ) and lock.
#[must_use]
pub fn consent_of(manifest: &[u8], local: Option<&[u8]>, lock: Option<&[u8]>) -> Digest {
    let mark = |bytes: Option<&[u8]>| if bytes.is_some() { b"present" } else { b"absent " };
    Digest::framed(
        "consent",
        &[manifest, mark(local), local.unwrap_or_default(), mark(lock), lock.unwrap_or_default()],
    )
}

/// Reads the three files of a project's bundle as [`crate::Snapshot::read`] does, without parsing
/// them: no symlink is followed, and the sizes are bounded alike.
///
/// # Errors
/// When the manifest is missing, or one of them is no regular file, too large or unreadable.
pub fn read_three(project: &Path) -> io::Result<Three> {
    let root = files::open_root(project)?;
    let read = |name: &str| {
        let path = format!("{}/{name}", snapshot::FOLDER);
        match files::read_file(root.as_fd(), &path, snapshot::most(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ReadError::Absent) => Ok(None),
            Err(ReadError::Io(error)) => Err(error),
            Err(refused) => Err(io::Error::other(format!("{path}: {refused}"))),
        }
    };
    let manifest = read(snapshot::MANIFEST)?.ok_or(io::ErrorKind::NotFound)?;
    Ok((manifest, read(snapshot::OVERLAY)?, read(snapshot::LOCK)?))
}

/// Where a project's manifest, overlay and lock are.
#[must_use]
pub fn three_paths(project: &Path) -> [PathBuf; 3] {
    let folder = project.join(snapshot::FOLDER);
    [snapshot::MANIFEST, snapshot::OVERLAY, snapshot::LOCK].map(|name| folder.join(name))
}
