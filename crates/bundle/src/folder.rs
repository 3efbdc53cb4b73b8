//! A folder that is no bundle, read as one is: the person's library.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;

use crate::files::{self, ReadError};
use crate::hidden::{Hidden, Reading, Scanner};
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

/// The first text that a person does not see in something that was read: the path of the file in it
/// (empty for a file by itself) and, in words, where and what. Such bytes are never pinned.
#[must_use]
pub fn first_hidden(kind: Kind, content: &Content) -> Option<(String, String)> {
    match content {
        Content::File(blob) => {
            let reading = if kind == Kind::Instruction { Reading::Prose } else { Reading::Any };
            hidden(reading, &blob.bytes).map(|what| (String::new(), what))
        }
        Content::Tree(blobs) => blobs.iter().find_map(|(path, blob)| {
            hidden(Reading::of(path), &blob.bytes).map(|what| (path.clone(), what))
        }),
    }
}

fn hidden(reading: Reading, bytes: &[u8]) -> Option<String> {
    let mut scanner = Scanner::new(reading);
    let left = scanner.piece(bytes);
    let (at, what) = scanner.finish(left)?;
    let upto = &bytes[..usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len())];
    let line = upto.iter().filter(|byte| **byte == b'\n').count() + 1;
    Some(match what {
        Hidden::Character(c) => format!(
            "line {line}: U+{:04X} does not show or changes how the text around it shows",
            u32::from(c)
        ),
        Hidden::NotText => format!("line {line}: the file is not UTF-8 text"),
    })
}
