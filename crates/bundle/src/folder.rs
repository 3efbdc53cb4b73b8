//! A folder that is no bundle, read as one is: the person's library.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;

use crate::files::{self, ReadError};
use crate::{Blob, Content, Digest, Error, Kind};

/// What lies at a path below a folder, read once, under the same rules and limits as what is pinned:
/// nothing but regular files and folders, no link on the way. `None` where nothing is. The folder
/// itself is opened as the path says.
///
/// # Errors
/// [`Error::Object`]: a symlink or a device, a name that does not show, too large; [`Error::Io`].
pub fn read_content(folder: &Path, path: &str) -> Result<Option<Content>, Error> {
    let full = folder.join(path);
    let io = |source| Error::Io { path: folder.to_owned(), source };
    let root = files::open_root(folder).map_err(io)?;
    match files::content(root.as_fd(), path) {
        Ok(Content::Tree(blobs)) if blobs.is_empty() => {
            Err(Error::Object { path: full, reason: "the folder holds no file".to_owned() })
        }
        Ok(content) => Ok(Some(content)),
        Err(ReadError::Absent) => Ok(None),
        Err(ReadError::Io(source)) => Err(Error::Io { path: full, source }),
        Err(error) => Err(Error::Object { path: full, reason: error.to_string() }),
    }
}

/// The digest of a folder's files as a thing of a kind, as [`Content::digest`] gives it, without a
/// copy of them.
#[must_use]
pub fn tree_digest(kind: Kind, blobs: &BTreeMap<String, Blob>) -> Digest {
    files::tree_digest(kind.as_str(), blobs)
}
