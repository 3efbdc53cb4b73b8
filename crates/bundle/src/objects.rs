//! The machine's content store, read side: verbatim copies of pinned bytes, each at the address
//! that its digest gives, proved again whenever it is read.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::files::{self, ReadError};
use crate::{Digest, Error, Form, Kind, pins};

#[cfg(test)]
mod tests;

/// In an object's folder, the copy itself: a file or a folder.
pub(crate) const CONTENT: &str = "content";

/// One file of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether it is executable.
    pub executable: bool,
}

/// What an object holds. Its digest was proved when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// One file, or the canonical JSON of a definition.
    File(Blob),
    /// The files of a folder, by relative path.
    Tree(BTreeMap<String, Blob>),
}

/// `<home>/store`: where objects lie. Reads only; `library` writes.
///
/// An object lies at `<store>/<kind>/<first two hex digits>/<other 62>/content`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects {
    root: PathBuf,
}

impl Objects {
    /// The store of this home. Reads nothing yet.
    #[must_use]
    pub fn of(home: &Path) -> Self {
        Self { root: home.join("store") }
    }

    /// The store's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of one object, whether it is there or not. Its copy is `content` in it.
    #[must_use]
    pub fn place(&self, kind: Kind, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        self.root.join(kind.as_str()).join(&hex[..2]).join(&hex[2..])
    }

    /// The digest of the bytes that lie at an address now; `None` when nothing does. Where it
    /// differs from the address, the object is damaged.
    ///
    /// # Errors
    /// [`Error::Object`]: it holds a symlink or a device, is too large, or cannot be read.
    pub fn proved(&self, kind: Kind, digest: &Digest) -> Result<Option<Digest>, Error> {
        let place = self.place(kind, digest);
        let fail = |reason: String| Error::Object { path: place.clone(), reason };
        let root = match files::open_root(&place) {
            Ok(root) => root,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error.to_string())),
        };
        let found = match kind.form() {
            Form::Definition => files::read_file(root.as_fd(), CONTENT, files::MAX_FILE)
                .map(|bytes| Digest::framed(kind.as_str(), &[&bytes])),
            _ => files::digest(root.as_fd(), CONTENT, kind),
        };
        match found {
            Ok(found) => Ok(Some(found)),
            Err(ReadError::Absent) => Ok(None),
            Err(ReadError::Hidden(finding)) => {
                Err(Error::Invalid(vec![pins::hidden(&place.join(CONTENT), &finding)]))
            }
            Err(error) => Err(fail(error.to_string())),
        }
    }

    /// An object's bytes; `None` when it is not there. What is given back was read once and has the
    /// digest asked for.
    ///
    /// # Errors
    /// [`Error::Object`]: its bytes are not those of its address, or cannot be read.
    pub fn read(&self, kind: Kind, digest: &Digest) -> Result<Option<Content>, Error> {
        let place = self.place(kind, digest);
        let fail = |reason: String| Error::Object { path: place.clone(), reason };
        let root = match files::open_root(&place) {
            Ok(root) => root,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error.to_string())),
        };
        let content = match files::content(root.as_fd(), CONTENT) {
            Ok(content) => content,
            Err(ReadError::Absent) => return Ok(None),
            Err(error) => return Err(fail(error.to_string())),
        };
        let found = content.digest(kind);
        if found == *digest {
            return Ok(Some(content));
        }
        Err(fail(format!("its bytes have the digest {found}; remove it and get it again")))
    }
}

impl Content {
    /// The digest of this content as a thing of a kind.
    #[must_use]
    pub fn digest(&self, kind: Kind) -> Digest {
        match (self, kind.form()) {
            (Self::File(blob), Form::Definition) => Digest::framed(kind.as_str(), &[&blob.bytes]),
            (Self::File(blob), _) => files::file_digest(kind.as_str(), blob),
            (Self::Tree(blobs), _) => files::tree_digest(kind.as_str(), blobs),
        }
    }
}
