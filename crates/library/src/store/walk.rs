//! Every object of the store, and whether its bytes are those of its address.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringfence_bundle::{Digest, Kind};

use super::{Store, approved};
use crate::Error;

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// What it is; `None` for the three files of a bundle under their consent digest.
    pub kind: Option<Kind>,
    /// Its address.
    pub digest: Digest,
    /// Its folder.
    pub place: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// When it was last asked to be kept.
    pub since: SystemTime,
}

/// What an object was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Its bytes are those of its address.
    Whole,
    /// They are not, or cannot be read: why.
    Damaged(String),
}

impl Object {
    /// The name of its family.
    #[must_use]
    pub fn family(&self) -> &'static str {
        self.kind.map_or(approved::FAMILY, Kind::as_str)
    }
}

impl Store {
    /// All objects, sorted, without reading what they hold.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn list(&self) -> Result<Vec<Object>, Error> {
        let mut all = Vec::new();
        let kinds = Kind::ALL.into_iter().map(|kind| (Some(kind), kind.as_str()));
        for (kind, family) in kinds.chain([(None, approved::FAMILY)]) {
            for first in entries(&self.objects.root().join(family))? {
                for place in entries(&first)? {
                    let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
                    let hex = name(&first).zip(name(&place)).map(|(a, b)| format!("sha256:{a}{b}"));
                    let Some(digest) = hex.and_then(|hex| hex.parse().ok()) else { continue };
                    let fail = |source| Error::Read { path: place.clone(), source };
                    let meta = match place.symlink_metadata() {
                        // Taken away meanwhile.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        other => other.map_err(fail)?,
                    };
                    let since = meta.modified().map_err(fail)?;
                    let bytes = size(&place);
                    all.push(Object { kind, digest, place, bytes, since });
                }
            }
        }
        all.sort();
        Ok(all)
    }

    /// Reads an object and proves it.
    #[must_use]
    pub fn prove(&self, object: &Object) -> State {
        let result = match object.kind {
            None => self.approved(&object.digest).map(|three| three.map(|_| object.digest)),
            Some(kind) => self.objects.proved(kind, &object.digest).map_err(Error::from),
        };
        match result {
            Ok(Some(found)) if found == object.digest => State::Whole,
            Ok(Some(found)) => State::Damaged(format!("its bytes have the digest {found}")),
            Ok(None) => State::Damaged("it holds nothing".to_owned()),
            Err(error) => State::Damaged(error.to_string()),
        }
    }
}

/// What a folder holds; nothing where it is not there.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = |source| Error::Read { path: folder.to_owned(), source };
    match fs::read_dir(folder) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(fail(error)),
        Ok(list) => list.map(|entry| entry.map(|it| it.path()).map_err(fail)).collect(),
    }
}

/// Bytes of the files below, following no link.
pub(super) fn size(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => {
            let below = fs::read_dir(path).into_iter().flatten().flatten();
            below.map(|entry| size(&entry.path())).sum()
        }
        Ok(meta) => meta.len(),
        Err(_) => 0,
    }
}
