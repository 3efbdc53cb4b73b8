//! Sharing: packed, tried, and put where the person wants it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ringfence_bundle::{Objects, Snapshot};
use ringfence_identity::Signer;
use rustix::fs::{CWD, RenameFlags};

use super::{Packed, Scan, pack, unpack};
use crate::{Error, private, quarantine};

/// Packs a bundle into a file: the one named, or `<name>-<version>.ringfence.tar.zst` here. Before
/// the file gets its name the archive is taken in as any receiver would: what leaves is what can
/// arrive. Nothing is replaced.
///
/// # Errors
/// As [`pack`]; [`Error::Archive`] when a receiver would refuse it (a program that only a link leads
/// to), [`Error::Refused`] when the file is there already, [`Error::Write`].
pub fn share(
    snapshot: &Snapshot,
    objects: &Objects,
    signer: &Signer,
    scan: Scan<'_>,
    out: Option<&Path>,
) -> Result<(PathBuf, Packed), Error> {
    let packed = pack(snapshot, objects, signer, scan)?;
    let file = out.map_or_else(|| PathBuf::from(&packed.file_name), Path::to_owned);
    let write = |source| Error::Write { path: file.clone(), source };
    let absolute = std::path::absolute(&file).map_err(write)?;
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let folder = folder.canonicalize().map_err(write)?;
    let trial = private::aside(&folder, ".ringfence-share-").map_err(write)?;
    let refuse = |fault| Error::Archive { path: file.clone(), fault };
    let contents = trial.path().join("contents");
    fs::create_dir(&contents).map_err(write)?;
    let unpacked = unpack(&packed.bytes[..], &contents).map_err(refuse)?;
    quarantine::check::bundle(&contents, &unpacked.about).map_err(refuse)?;
    let new = trial.path().join("archive");
    let put = || -> io::Result<()> {
        let mut out = OpenOptions::new().write(true).create_new(true).open(&new)?;
        out.write_all(&packed.bytes)?;
        out.sync_all()?;
        rustix::fs::renameat_with(CWD, &new, CWD, &absolute, RenameFlags::NOREPLACE)?;
        File::open(&folder)?.sync_all()
    };
    match put() {
        Ok(()) => Ok((file, packed)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let reason = "is there already; remove it, or name another with -o".to_owned();
            Err(Error::Refused { path: file, reason })
        }
        Err(error) => Err(write(error)),
    }
}
