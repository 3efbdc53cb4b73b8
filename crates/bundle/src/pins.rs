//! What each declared thing is pinned to.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use serde::Serialize;

use crate::files::{self, ReadError};
use crate::manifest::Source;
use crate::{Diagnostic, Digest, Error, Id, Manifest, Severity, Snapshot, text};

/// The kinds of pin.
pub(crate) const KINDS: [&str; 7] =
    ["server", "skill", "instruction", "setting", "hook", "extension", "workflow"];

/// Kind and name to what is there now; `None` where nothing is.
pub(crate) type Found = BTreeMap<(&'static str, String), Option<Digest>>;

type Reader = fn(BorrowedFd<'_>, &str, &str) -> Result<Digest, ReadError>;

/// Digests everything that is declared.
pub(crate) fn found(snapshot: &Snapshot) -> Result<Found, Error> {
    let manifest = &snapshot.manifest;
    let mut found = definitions(manifest);
    let mut findings = Vec::new();
    let extensions = manifest.extensions.iter().map(|(id, extension)| (id, &extension.source));
    let extensions: BTreeMap<_, _> = extensions.collect();
    let folder = snapshot.folder();
    let root = files::open_root(&folder).map_err(|source| Error::Io { path: folder, source })?;
    let mut pin = |kind: &'static str, table: &str, id: &Id, source: &Source, read: Reader| {
        let keys = format!("{table}.{id}");
        match digest_source(root.as_fd(), kind, source, read) {
            Ok(digest) => {
                found.insert((kind, id.to_string()), digest);
            }
            Err((rule, message)) => findings.push(finding(snapshot, &keys, rule, message)),
        }
    };
    for (id, source) in &manifest.skills {
        pin("skill", "skills", id, source, files::digest_tree);
    }
    for (id, source) in &manifest.instructions {
        pin("instruction", "instructions", id, source, files::digest_file);
    }
    for (id, source) in extensions {
        pin("extension", "extensions", id, source, files::digest_either);
    }
    for (id, source) in &manifest.workflows {
        pin("workflow", "workflows", id, source, files::digest_file);
    }
    if findings.is_empty() { Ok(found) } else { Err(Error::Invalid(findings)) }
}

/// The finding for something declared that is not there.
pub(crate) fn missing(snapshot: &Snapshot, kind: &str, name: &str) -> Diagnostic {
    let keys = format!("{kind}s.{name}.path");
    let message = format!("{kind} `{}`: there is no such file", text::shown(name));
    finding(snapshot, &keys, "missing-file", message)
}

fn finding(snapshot: &Snapshot, keys: &str, rule: &'static str, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        rule,
        message,
        at: snapshot.manifest.places.find(keys),
        help: None,
        next: Some("ringfence lock".to_owned()),
    }
}

/// Things that are pinned by how they are declared, references unresolved.
fn definitions(manifest: &Manifest) -> Found {
    let mut found = Found::new();
    for (id, server) in &manifest.servers {
        found.insert(("server", id.to_string()), Some(canonical("server", server)));
    }
    for (id, hook) in &manifest.hooks {
        found.insert(("hook", id.to_string()), Some(canonical("hook", hook)));
    }
    for (target, settings) in &manifest.settings {
        for (key, value) in settings {
            let digest = canonical("setting", &(target.as_str(), key, value));
            found.insert(("setting", format!("{target}.{key}")), Some(digest));
        }
    }
    found
}

/// The digest of a value's canonical JSON (RFC 8785).
fn canonical(kind: &str, value: &impl Serialize) -> Digest {
    let bytes = serde_json_canonicalizer::to_vec(value)
        .expect("manifest values have string keys and finite numbers, so they serialise");
    Digest::framed(kind, &[&bytes])
}

fn digest_source(
    root: BorrowedFd<'_>,
    kind: &'static str,
    source: &Source,
    read: Reader,
) -> Result<Option<Digest>, (&'static str, String)> {
    let path = match source {
        Source::Path { path } => path,
        Source::Git { .. } => return Err(unsupported("git")),
        Source::Library { .. } => return Err(unsupported("library")),
    };
    match read(root, path, kind) {
        Ok(digest) => Ok(Some(digest)),
        Err(ReadError::Absent) => Ok(None),
        Err(error) => Err(("unpinnable", format!("`{}`: {error}", text::shown(path)))),
    }
}

fn unsupported(kind: &str) -> (&'static str, String) {
    let message = format!("unsupported source: `{kind}` sources cannot be locked yet; use `path`");
    ("unsupported-source", message)
}
