//! The bytes of one declared thing, and the name by which a person finds them.

use std::os::fd::AsFd;

use crate::files::{self, ReadError};
use crate::manifest::Source;
use crate::snapshot::{FOLDER, MANIFEST};
use crate::{
    Blob, Content, Drift, Error, Form, Kind, Objects, Place, Snapshot, check_relative, pins,
    programs,
};

impl Snapshot {
    /// The bytes of a declared thing as they are now: beside the manifest, in the project, or, for
    /// what comes from elsewhere, in the store. `None` where nothing is, or nothing is declared.
    ///
    /// # Errors
    /// [`Error::Object`]; [`Error::Io`] where a file may not be read: a link, a device, too large.
    pub fn content(
        &self,
        kind: Kind,
        name: &str,
        objects: &Objects,
    ) -> Result<Option<Content>, Error> {
        if kind.form() == Form::Definition {
            let bytes = pins::definition_bytes(&self.manifest).remove(&(kind, name.to_owned()));
            return Ok(bytes.map(|bytes| Content::File(Blob { bytes, executable: false })));
        }
        let (folder, path) = match self.source(kind, name) {
            Some(Source::Path { path }) => (self.folder(), path.clone()),
            Some(_) => {
                let digest = self.lock.as_ref().and_then(|lock| lock.digest(kind, name));
                return digest.map_or(Ok(None), |digest| objects.read(kind, &digest));
            }
            // A lock that was written by hand may name anything.
            None if kind == Kind::Program && check_relative(&format!("./{name}")).is_ok() => {
                (self.project.clone(), name.to_owned())
            }
            None => return Ok(None),
        };
        let read = || files::content(files::open_root(&folder)?.as_fd(), &path);
        match read() {
            Ok(content) => Ok(Some(content)),
            Err(ReadError::Absent) => Ok(None),
            Err(error) => {
                let source = std::io::Error::other(error.to_string());
                Err(Error::Io { path: folder.join(path), source })
            }
        }
    }

    /// Where a person finds a declared thing: the path of its file or folder in the project, or the
    /// place in the manifest where it is declared.
    #[must_use]
    pub fn place_of(&self, kind: Kind, name: &str) -> Place {
        let at = |file: String| Place {
            file: file.into(),
            line: 1,
            column: 1,
            text: String::new(),
            width: 1,
        };
        match self.source(kind, name) {
            Some(Source::Path { path }) => {
                let path = path.strip_prefix("./").unwrap_or(path).trim_end_matches('/');
                return at(format!("{FOLDER}/{path}"));
            }
            None if kind == Kind::Program => return at(name.to_owned()),
            _ => {}
        }
        let declared = self.manifest.places.find(&format!("{kind}s.{name}"));
        declared.unwrap_or_else(|| at(format!("{FOLDER}/{MANIFEST}")))
    }

    /// Compares the pins of the project's programs, and those alone, with the files that are there
    /// now: what is asked again right before one of them starts.
    ///
    /// # Errors
    /// [`Error::Program`] where one is there and may not be read.
    pub fn program_drift(&self) -> Result<Vec<Drift>, Error> {
        let mut drift = Vec::new();
        let io = |source| Error::Io { path: self.project.clone(), source };
        let root = files::open_root(&self.project).map_err(io)?;
        for path in programs::of_project(&self.manifest, &self.project).into_keys() {
            let pinned = self.lock.as_ref().and_then(|lock| lock.digest(Kind::Program, &path));
            let found = match files::digest(root.as_fd(), &path, Kind::Program) {
                Ok(found) => Some(found),
                Err(ReadError::Absent) => None,
                Err(error) => {
                    let reason = error.to_string();
                    return Err(Error::Program { path: self.project.join(path), reason });
                }
            };
            if pinned.is_none() || pinned != found {
                let reason = match (pinned, found) {
                    (None, _) => crate::Reason::Unpinned,
                    (_, None) => crate::Reason::Missing,
                    _ => crate::Reason::Changed,
                };
                drift.push(Drift { kind: Kind::Program, name: path, reason, pinned, found });
            }
        }
        let here = |name: &str| self.project.join(name).is_file();
        for pin in self.lock.iter().flat_map(|lock| &lock.pins) {
            if pin.kind == Kind::Program && !here(&pin.name) {
                drift.push(Drift {
                    kind: Kind::Program,
                    name: pin.name.clone(),
                    reason: crate::Reason::Missing,
                    pinned: Some(pin.digest),
                    found: None,
                });
            }
        }
        Ok(drift)
    }

    fn source(&self, kind: Kind, name: &str) -> Option<&Source> {
        let mut all = pins::sources(&self.manifest);
        all.find(|(its, id, _)| *its == kind && id.as_str() == name).map(|(_, _, source)| source)
    }
}
