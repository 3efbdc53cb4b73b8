//! What each declared thing is pinned to.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;

use serde::Serialize;

use crate::files::{self, Ask, Finding, ReadError};
use crate::hidden::Hidden;
use crate::lock::Origin;
use crate::manifest::Source;
use crate::snapshot::FOLDER;
use crate::{
    Diagnostic, Digest, Error, Id, Kind, Lock, Manifest, Objects, Place, Severity, Snapshot,
    programs, text,
};

/// Kind and name.
pub(crate) type Name = (Kind, String);

/// What is there now, as far as it lies beside the manifest.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Its digest; `None` where nothing is.
    pub(crate) here: BTreeMap<Name, Option<Digest>>,
    /// What comes from a repository or from the library.
    pub(crate) elsewhere: BTreeMap<Name, Source>,
}

/// Digests everything that is declared and lies beside the manifest.
pub(crate) fn found(snapshot: &Snapshot) -> Result<Found, Error> {
    let manifest = &snapshot.manifest;
    let mut found = Found { here: definitions(manifest), elsewhere: BTreeMap::new() };
    let mut findings = Vec::new();
    let folder = snapshot.folder();
    let root = files::open_root(&folder).map_err(|source| Error::Io { path: folder, source })?;
    let mut names = Vec::new();
    let mut asks = Vec::new();
    for (kind, id, source) in sources(manifest) {
        if let Source::Path { path } = source {
            names.push((kind, id));
            asks.push(Ask { root: root.as_fd(), path, kind });
        } else {
            found.elsewhere.insert((kind, id.to_string()), source.clone());
        }
    }
    let project = &snapshot.project;
    let io = |source| Error::Io { path: project.clone(), source };
    let root = files::open_root(project).map_err(io)?;
    let programs = programs::of_project(manifest, project);
    for path in programs.keys() {
        asks.push(Ask { root: root.as_fd(), path, kind: Kind::Program });
    }
    let mut digests = files::digests(&asks).into_iter().zip(&asks);
    for ((kind, id), (digest, ask)) in names.into_iter().zip(&mut digests) {
        let digest = match digest {
            Ok(digest) => Some(digest),
            Err(ReadError::Absent) => None,
            Err(ReadError::Hidden(finding)) => {
                let path = ask.path.trim_start_matches("./");
                findings.push(hidden(&Path::new(FOLDER).join(path), &finding));
                continue;
            }
            Err(error) => {
                let message = format!("`{}`: {error}", text::shown(ask.path));
                findings.push(finding(snapshot, kind, id.as_str(), "unpinnable", message));
                continue;
            }
        };
        found.here.insert((kind, id.to_string()), digest);
    }
    for ((path, keys), (digest, _)) in programs.iter().zip(digests) {
        match digest {
            Ok(digest) => {
                found.here.insert((Kind::Program, path.clone()), Some(digest));
            }
            Err(ReadError::Absent) => {}
            Err(error) => findings.push(Diagnostic {
                severity: Severity::Error,
                rule: "unpinnable",
                message: format!("`{}`: {error}", text::shown(path)),
                at: manifest.places.find(keys),
                help: Some("a server's program is a regular file, not a link".to_owned()),
                next: Some("ringfence lock".to_owned()),
            }),
        }
    }
    if findings.is_empty() { Ok(found) } else { Err(Error::Invalid(findings)) }
}

/// Everything that has a source, with its kind.
pub(crate) fn sources(manifest: &Manifest) -> impl Iterator<Item = (Kind, &Id, &Source)> {
    let skills = manifest.skills.iter().map(|(id, source)| (Kind::Skill, id, source));
    let rules = manifest.instructions.iter().map(|(id, it)| (Kind::Instruction, id, it));
    let code = manifest.extensions.iter().map(|(id, it)| (Kind::Extension, id, &it.source));
    let flows = manifest.workflows.iter().map(|(id, source)| (Kind::Workflow, id, source));
    skills.chain(rules).chain(code).chain(flows)
}

/// A finding about something declared.
pub(crate) fn finding(
    snapshot: &Snapshot,
    kind: Kind,
    name: &str,
    rule: &'static str,
    message: String,
) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        rule,
        message,
        at: snapshot.manifest.places.find(&match rule {
            "missing-file" => format!("{kind}s.{name}.path"),
            _ => format!("{kind}s.{name}"),
        }),
        help: None,
        next: Some("ringfence lock".to_owned()),
    }
}

/// What is said of text that a person does not see, in this file or in one below this folder.
pub(crate) fn hidden(file: &Path, finding: &Finding) -> Diagnostic {
    let file = if finding.path.is_empty() { file.to_owned() } else { file.join(&finding.path) };
    let help = match finding.hidden {
        Hidden::NotText => "save it as UTF-8: what a model is told to read must be readable",
        Hidden::Character(_) => {
            "delete it, or write it as an escape: what is reviewed must be what a model reads"
        }
    };
    Diagnostic {
        severity: Severity::Error,
        rule: "hidden-text",
        message: finding.to_string(),
        at: Some(Place {
            file,
            line: finding.line,
            column: finding.column,
            text: finding.text.clone(),
            width: 1,
        }),
        help: Some(help.to_owned()),
        next: Some("ringfence lock".to_owned()),
    }
}

/// What a source from elsewhere is pinned to, if the lock's row is for this very source and its
/// bytes lie in the store.
pub(crate) fn from_store(
    objects: &Objects,
    lock: Option<&Lock>,
    name: &Name,
    source: &Source,
) -> Result<Elsewhere, Error> {
    let Some(pin) = lock.and_then(|lock| lock.pin(name.0, &name.1)) else {
        return Ok(Elsewhere::Unpinned);
    };
    if !pin.origin.as_ref().is_some_and(|origin| origin.is_of(source)) {
        return Ok(Elsewhere::Redeclared);
    }
    match objects.proved(name.0, &pin.digest)? {
        None => Ok(Elsewhere::NotHere),
        Some(digest) => Ok(Elsewhere::Here(digest, pin.origin.clone())),
    }
}

/// Where bytes from elsewhere stand.
pub(crate) enum Elsewhere {
    /// The lock has no row.
    Unpinned,
    /// The row is for another source.
    Redeclared,
    /// The store does not have them.
    NotHere,
    /// The store has these.
    Here(Digest, Option<Origin>),
}

/// Things that are pinned by how they are declared, references unresolved.
fn definitions(manifest: &Manifest) -> BTreeMap<Name, Option<Digest>> {
    let bytes = definition_bytes(manifest).into_iter();
    let digest = |kind: Kind, bytes: &[u8]| Digest::framed(kind.as_str(), &[bytes]);
    bytes.map(|(name, bytes)| (name.clone(), Some(digest(name.0, &bytes)))).collect()
}

/// The canonical JSON (RFC 8785) of everything that is pinned by how it is declared.
pub(crate) fn definition_bytes(manifest: &Manifest) -> BTreeMap<Name, Vec<u8>> {
    let mut found = BTreeMap::new();
    for (id, server) in &manifest.servers {
        found.insert((Kind::Server, id.to_string()), canonical(server));
    }
    for (id, hook) in &manifest.hooks {
        found.insert((Kind::Hook, id.to_string()), canonical(hook));
    }
    for (target, settings) in &manifest.settings {
        for (key, value) in settings {
            let bytes = canonical(&(target.as_str(), key, value));
            found.insert((Kind::Setting, format!("{target}.{key}")), bytes);
        }
    }
    found
}

fn canonical(value: &impl Serialize) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value)
        .expect("manifest values have string keys and finite numbers, so they serialise")
}
