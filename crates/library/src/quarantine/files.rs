//! The files of an archive in quarantine, read beneath its folder without following a link.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::archive::{ATTESTATION, Row};
use crate::sign::sha256;

/// Reads one regular file of at most `most` bytes.
pub(crate) fn read(folder: &Path, path: &str, most: u64) -> io::Result<Vec<u8>> {
    let (bytes, _) = read_with_mode(folder, path, most)?;
    Ok(bytes)
}

fn read_with_mode(folder: &Path, path: &str, most: u64) -> io::Result<(Vec<u8>, bool)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(folder, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(&root, path, flags, Mode::empty(), resolve)?);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other("it is longer than it may be"));
    }
    Ok((bytes, meta.permissions().mode() & 0o111 != 0))
}

/// Reads one member and proves it.
pub(super) fn proved(folder: &Path, row: &Row) -> Result<Vec<u8>, String> {
    let (bytes, executable) = read_with_mode(folder, &row.path, row.size)
        .map_err(|error| format!("`{}` has changed since it was received: {error}", row.path))?;
    if executable != row.executable || sha256(&bytes) != row.sha256 {
        return Err(format!("`{}` has changed since it was received", row.path));
    }
    Ok(bytes)
}

/// Compares a folder with the list of its members: these files with these bytes, and no other.
pub(super) fn compare(folder: &Path, members: &[Row]) -> Result<(), String> {
    let mut wanted: BTreeSet<&str> = members.iter().map(|row| row.path.as_str()).collect();
    wanted.insert(ATTESTATION);
    let mut found = Vec::new();
    list(folder, "", &mut found).map_err(|error| error.to_string())?;
    if let Some(other) = found.iter().find(|path| !wanted.contains(path.as_str())) {
        return Err(format!("`{other}` was not received"));
    }
    members.iter().try_for_each(|row| proved(folder, row).map(drop))
}

fn list(folder: &Path, prefix: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // What is neither file nor folder is listed, and so is not wanted or not readable.
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{path}/"), found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}
