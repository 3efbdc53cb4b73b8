//! What each declared thing is pinned to.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use serde::Serialize;

use crate::files::{self, ReadError};
use crate::lock::Origin;
use crate::manifest::Source;
use crate::{
    Diagnostic, Digest, Error, Form, Id, Kind, Lock, Manifest, Objects, Severity, Snapshot,
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
    for (kind, id, source) in sources(manifest) {
        let name = (kind, id.to_string());
        let Source::Path { path } = source else {
            found.elsewhere.insert(name, source.clone());
            continue;
        };
        match digest_path(root.as_fd(), kind, path) {
            Ok(digest) => {
                found.here.insert(name, digest);
            }
            Err(message) => {
                findings.push(finding(snapshot, kind, id.as_str(), "unpinnable", message));
            }
        }
    }
    let project = &snapshot.project;
    let io = |source| Error::Io { path: project.clone(), source };
    let root = files::open_root(project).map_err(io)?;
    for (path, keys) in programs::of_project(manifest, project) {
        match files::digest_file(root.as_fd(), &path, Kind::Program.as_str()) {
            Ok(digest) => {
                found.here.insert((Kind::Program, path), Some(digest));
            }
            Err(ReadError::Absent) => {}
            Err(error) => findings.push(Diagnostic {
                severity: Severity::Error,
                rule: "unpinnable",
                message: format!("`{}`: {error}", text::shown(&path)),
                at: manifest.places.find(&keys),
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

fn digest_path(root: BorrowedFd<'_>, kind: Kind, path: &str) -> Result<Option<Digest>, String> {
    let read = match kind.form() {
        Form::Tree => files::digest_tree,
        Form::Either => files::digest_either,
        Form::File | Form::Definition => files::digest_file,
    };
    match read(root, path, kind.as_str()) {
        Ok(digest) => Ok(Some(digest)),
        Err(ReadError::Absent) => Ok(None),
        Err(error) => Err(format!("`{}`: {error}", text::shown(path))),
    }
}
