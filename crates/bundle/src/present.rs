//! Whether what the manifest names beside it is there, as `lock` will want it.

use std::os::fd::AsFd;
use std::path::Path;

use crate::files::{self, Ask, ReadError};
use crate::manifest::Source;
use crate::snapshot::FOLDER;
use crate::{Diagnostic, Error, Kind, Severity, Snapshot, pins, text};

#[cfg(test)]
mod tests;

/// What makes a folder a skill.
const SKILL: &str = "SKILL.md";

impl Snapshot {
    /// Looks at every path that the manifest names beside it, and at nothing else. What `lock` would
    /// refuse is an error at the path's place: nothing is there, a folder where a file belongs or the
    /// other way round, a link, text that does not show. A skill without `SKILL.md` is a warning:
    /// agent programs find none there.
    ///
    /// # Errors
    /// [`Error::Io`] when the bundle's folder cannot be opened.
    pub fn check_paths(&self) -> Result<Vec<Diagnostic>, Error> {
        let folder = self.folder();
        let root =
            files::open_root(&folder).map_err(|source| Error::Io { path: folder, source })?;
        let declared: Vec<_> = pins::sources(&self.manifest)
            .filter_map(|(kind, id, source)| match source {
                Source::Path { path } => Some((kind, id, path)),
                _ => None,
            })
            .collect();
        let asks: Vec<_> = declared
            .iter()
            .map(|(kind, _, path)| Ask { root: root.as_fd(), path, kind: *kind })
            .collect();
        let mut findings = Vec::new();
        for ((kind, id, path), digest) in declared.into_iter().zip(files::digests(&asks)) {
            let shown = text::shown(path);
            let below = path.trim_start_matches("./");
            let finding = |severity, rule, message, help: Option<String>| Diagnostic {
                severity,
                rule,
                message,
                at: self.manifest.places.find(&format!("{kind}s.{id}.path")),
                help,
                next: Some("ringfence validate".to_owned()),
            };
            match digest {
                Ok(_) if kind == Kind::Skill => {
                    let file = format!("{path}/{SKILL}");
                    // Whether it is there is all that is asked.
                    if let Err(ReadError::Absent) = files::read_file(root.as_fd(), &file, 0) {
                        findings.push(finding(
                            Severity::Warning,
                            "no-skill-file",
                            format!(
                                "`{shown}` has no `{SKILL}`: agent programs find no skill there"
                            ),
                            Some(format!("write {FOLDER}/{below}/{SKILL}")),
                        ));
                    }
                }
                Ok(_) => {}
                Err(ReadError::Absent) => findings.push(finding(
                    Severity::Error,
                    "missing-file",
                    format!("{kind} `{id}`: nothing is at `{shown}`"),
                    Some(format!("it is looked for at {FOLDER}/{}", text::shown(below))),
                )),
                Err(ReadError::Hidden(hidden)) => findings.push(Diagnostic {
                    next: Some("ringfence validate".to_owned()),
                    ..pins::hidden(&Path::new(FOLDER).join(below), &hidden)
                }),
                Err(error) => findings.push(finding(
                    Severity::Error,
                    "unpinnable",
                    format!("{kind} `{id}`: `{shown}`: {error}"),
                    None,
                )),
            }
        }
        Ok(findings)
    }
}
