//! The machine's content store, read side: verbatim copies of pinned bytes, each at the address
//! that its digest gives, proved again whenever it is read.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::files::{self, ReadError};
use crate::{Digest, Error, Form, Kind, Origin, pins};

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

    /// The file in an object's folder that says that this machine brought these bytes from there itself.
    #[must_use]
    pub fn origin_note(&self, kind: Kind, digest: &Digest, origin: &Origin) -> PathBuf {
        self.place(kind, digest).join("origins").join(origin.digest().hex())
    }

    /// Whether this machine brought these bytes from there itself. Where it did not, a lock's word is
    /// all there is for where they come from: the bytes may be here for another's sake.
    #[must_use]
    pub fn came_from(&self, kind: Kind, digest: &Digest, origin: &Origin) -> bool {
        let note = self.origin_note(kind, digest, origin).symlink_metadata();
        note.is_ok_and(|meta| meta.is_file())
    }

    /// The digest of the bytes that lie at an address now; `None` when nothing does. Where it
    /// differs from the address, the object is damaged.
    ///
    /// # Errors
    /// [`Error::Object`]: it holds a symlink or a device, is too large, or cannot be read.
    /// [`Error::Invalid`]: it holds text that a person does not see (`hidden-text`).
    pub fn proved(&self, kind: Kind, digest: &Digest) -> Result<Option<Digest>, Error> {
        self.all_proved(&[(kind, *digest)]).pop().expect("one was asked for")
    }

    /// As [`Objects::proved`], of many at once, in the same order: the work is shared between the
    /// cores.
    pub(crate) fn all_proved(&self, asks: &[(Kind, Digest)]) -> Vec<Result<Option<Digest>, Error>> {
        let places: Vec<PathBuf> =
            asks.iter().map(|(kind, digest)| self.place(*kind, digest)).collect();
        let roots: Vec<io::Result<OwnedFd>> =
            places.iter().map(|place| files::open_root(place)).collect();
        let trees: Vec<files::Ask<'_>> = roots
            .iter()
            .zip(asks)
            .filter(|(_, (kind, _))| kind.form() != Form::Definition)
            .filter_map(|(root, (kind, _))| {
                let root = root.as_ref().ok()?.as_fd();
                Some(files::Ask { root, path: CONTENT, kind: *kind })
            })
            .collect();
        let mut digests = files::digests(&trees).into_iter();
        let one = |((root, place), (kind, digest)): (
            (&io::Result<OwnedFd>, &PathBuf),
            &(Kind, Digest),
        )| {
            let fail = |reason: String| Error::Object { path: place.clone(), reason };
            let found = match root {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(fail(error.to_string())),
                Ok(root) if kind.form() == Form::Definition => {
                    files::read_file(root.as_fd(), CONTENT, files::MAX_FILE)
                        .map(|bytes| Digest::framed(kind.as_str(), &[&bytes]))
                }
                Ok(_) => digests.next().expect("each that was opened has one"),
            };
            match found {
                Ok(found) if found == *digest => Ok(Some(found)),
                _ if root.as_ref().is_ok_and(|root| taken_away(place, root)) => Ok(None),
                Ok(found) => Ok(Some(found)),
                Err(ReadError::Absent) => Ok(None),
                Err(ReadError::Hidden(finding)) => {
                    Err(Error::Invalid(vec![pins::hidden(&place.join(CONTENT), &finding)]))
                }
                Err(error) => Err(fail(error.to_string())),
            }
        };
        roots.iter().zip(&places).zip(asks).map(one).collect()
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
        let found = match files::content(root.as_fd(), CONTENT) {
            Ok(content) => {
                let found = content.digest(kind);
                if found == *digest {
                    return Ok(Some(content));
                }
                self.damaged(kind, digest, &found)
            }
            Err(ReadError::Absent) => return Ok(None),
            Err(error) => fail(error.to_string()),
        };
        if taken_away(&place, &root) { Ok(None) } else { Err(found) }
    }

    /// Says that other bytes lie at an address.
    pub(crate) fn damaged(&self, kind: Kind, digest: &Digest, found: &Digest) -> Error {
        let reason = format!("its bytes have the digest {found}; remove it and get it again");
        Error::Object { path: self.place(kind, digest), reason }
    }
}

/// Whether an object's folder was moved out of its place since it was opened: then what was read of it
/// may be half, and it is simply not there any more.
fn taken_away(place: &Path, opened: &OwnedFd) -> bool {
    let same = |now: OwnedFd| {
        let (now, then) = (rustix::fs::fstat(&now)?, rustix::fs::fstat(opened)?);
        io::Result::Ok((now.st_dev, now.st_ino) == (then.st_dev, then.st_ino))
    };
    match files::open_root(place).and_then(same) {
        Ok(same) => !same,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
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
