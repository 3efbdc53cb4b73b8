//! The bytes of what lies beside the manifest, and the bundle as it is without the person's overlay.

use std::os::fd::AsFd;

use crate::files::{self, ReadError};
use crate::manifest::Source;
use crate::objects::Content;
use crate::snapshot::{FOLDER, MANIFEST};
use crate::source;
use crate::{Error, Kind, Snapshot, parse, pins, programs, text};

#[cfg(test)]
mod tests;

/// Something pinned whose bytes lie in the project, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    /// What it is.
    pub kind: Kind,
    /// Its name, as in the lock.
    pub name: String,
    /// Where it lies, relative to the project, without `./`.
    pub path: String,
    /// What lies there.
    pub content: Content,
}

impl Snapshot {
    /// Reads everything that is declared and lies in the project: skills, instructions, extensions
    /// and workflows by path, and the files that servers run. Under the same rules and limits as it
    /// is pinned; whether the bytes are the pinned ones is the caller's to compare.
    ///
    /// # Errors
    /// [`Error::Invalid`], each finding at its place: it is not there, holds a symlink or a device,
    /// or is too large.
    pub fn beside(&self) -> Result<Vec<Beside>, Error> {
        let io = |source| Error::Io { path: self.project.clone(), source };
        let root = files::open_root(&self.project).map_err(io)?;
        let declared =
            pins::sources(&self.manifest).filter_map(|(kind, id, source)| match source {
                Source::Path { path } => Some((kind, id.to_string(), within(path))),
                _ => None,
            });
        let programs = programs::of_project(&self.manifest, &self.project);
        let programs = programs.into_keys().map(|path| (Kind::Program, path.clone(), path));
        let (mut all, mut findings) = (Vec::new(), Vec::new());
        for (kind, name, path) in declared.chain(programs) {
            match files::content(root.as_fd(), &path) {
                Ok(content) => all.push(Beside { kind, name, path, content }),
                Err(ReadError::Io(source)) => {
                    return Err(Error::Io { path: self.project.join(path), source });
                }
                Err(error) => {
                    let message = format!("`{}`: {error}", text::shown(&path));
                    findings.push(pins::finding(self, kind, &name, "unpinnable", message));
                }
            }
        }
        if findings.is_empty() { Ok(all) } else { Err(Error::Invalid(findings)) }
    }

    /// The paths of [`Snapshot::beside`] that are declared, and nothing read: kind and path,
    /// relative to the project.
    pub fn declared_paths(&self) -> impl Iterator<Item = (Kind, String)> {
        pins::sources(&self.manifest).filter_map(|(kind, _, source)| match source {
            Source::Path { path } => Some((kind, within(path))),
            _ => None,
        })
    }

    /// The same bytes without the overlay: what somebody else has who is given manifest and lock.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the manifest does not stand without the overlay.
    pub fn without_overlay(&self) -> Result<Self, Error> {
        let file = std::path::Path::new(FOLDER).join(MANIFEST);
        let source = source::Source::from_bytes(&file, &self.manifest_bytes)
            .map_err(|finding| Error::Invalid(vec![*finding]))?;
        let (manifest, warnings) = parse::decode_sources(vec![source]).map_err(Error::Invalid)?;
        Ok(Self { manifest, warnings, local_bytes: None, ..self.clone() })
    }
}

/// A path beside the manifest, from the project's folder.
fn within(path: &str) -> String {
    format!("{FOLDER}/{}", path.strip_prefix("./").unwrap_or(path))
}
