//! Values in files of mode 0600, in a folder of mode 0700.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::{MAX_BYTES, private};

const FOLDER: &str = "signins";

fn folder(home: &Path) -> PathBuf {
    home.join(FOLDER)
}

/// Makes the folder, and refuses one that others can look into.
pub(super) fn prepare(home: &Path) -> Result<(), String> {
    let path = folder(home);
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(format!("{}: {error}", path.display()));
        }
        _ => {}
    }
    let found =
        std::fs::symlink_metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let private = found.is_dir() && own(&found) && found.mode() & 0o077 == 0;
    if !private {
        return Err(format!("{}: it is not a folder of yours alone (mode 0700)", path.display()));
    }
    Ok(())
}

pub(super) fn write(home: &Path, key: &str, bytes: &[u8]) -> Result<(), String> {
    prepare(home)?;
    let path = folder(home);
    private::write(&path, key, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn read(home: &Path, key: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    prepare(home)?;
    let path = folder(home).join(key);
    let bad = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&path)
        .map_err(|error| bad(&error))?;
    let found = file.metadata().map_err(|error| bad(&error))?;
    if !(found.is_file() && own(&found) && found.mode() & 0o077 == 0) {
        return Err(bad(&"others can read or change it (mode 0600 is expected)"));
    }
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 2));
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| bad(&error))?;
    Ok(bytes)
}

pub(super) fn remove(home: &Path, key: &str) -> Result<(), String> {
    let path = folder(home).join(key);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn own(found: &std::fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}
