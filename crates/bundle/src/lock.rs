//! `ringfence.lock`: what is declared, pinned to digests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::source::Source;
use crate::{Diagnostic, Digest, Error, Severity, Snapshot, pins, text};

#[cfg(test)]
mod tests;

/// A parsed lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Format, 1.
    pub version: u32,
    /// One row a declared thing, sorted by kind and name.
    #[serde(default, rename = "pin")]
    pub pins: Vec<Pin>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// `server`, `skill`, `instruction`, `setting`, `hook`, `extension`, `workflow`.
    pub kind: String,
    /// Its name; for a setting, the agent CLI and the key: `claude-code.model`.
    pub name: String,
    /// Digest of its definition or bytes.
    pub digest: Digest,
}

impl Lock {
    /// Pins everything that the manifest declares to the bytes that are there now.
    ///
    /// # Errors
    /// [`Error::Invalid`], each finding at its place in the manifest: a file or folder that is
    /// missing, that holds a symlink or device or is too large, or a source that is not supported
    /// yet (git, library).
    pub fn compute(snapshot: &Snapshot) -> Result<Self, Error> {
        let found = pins::found(snapshot)?;
        let mut missing = Vec::new();
        let mut list = Vec::new();
        for ((kind, name), digest) in found {
            match digest {
                Some(digest) => list.push(Pin { kind: kind.to_owned(), name, digest }),
                None => missing.push(pins::missing(snapshot, kind, &name)),
            }
        }
        if !missing.is_empty() {
            return Err(Error::Invalid(missing));
        }
        list.sort();
        Ok(Self { version: 1, pins: list })
    }

    /// Parses the bytes of a lock strictly. The path is only shown.
    ///
    /// # Errors
    /// The findings: not text, an unsettled merge, a syntax error, an unknown key, another version,
    /// an unknown kind, a row that is there twice.
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self, Vec<Diagnostic>> {
        let source = Source::from_bytes(file, bytes).map_err(|finding| vec![again(*finding)])?;
        let fault = |rule, message: String, at: std::ops::Range<usize>| Diagnostic {
            severity: Severity::Error,
            rule,
            message,
            at: Some(source.place(at)),
            help: Some(
                "the lock is made, never edited: make it again and review what changed".to_owned(),
            ),
            next: Some("ringfence lock".to_owned()),
        };
        if let Some(at) = conflict(source.text()) {
            let message = "an unsettled merge left its marks in the lock".to_owned();
            return Err(vec![fault("merge-conflict", message, at..at + 7)]);
        }
        let lock: Self = toml::from_str(source.text()).map_err(|error| {
            let message = format!("the lock does not parse: {}", text::shown(error.message()));
            vec![fault("bad-lock", message, error.span().unwrap_or(0..0))]
        })?;
        if lock.version != 1 {
            let message =
                format!("lock version {} is not 1, which this program reads", lock.version);
            return Err(vec![fault("bad-lock", message, 0..0)]);
        }
        let mut rows: BTreeMap<(&str, &str), ()> = BTreeMap::new();
        for pin in &lock.pins {
            let shown = format!("{} `{}`", text::shown(&pin.kind), text::shown(&pin.name));
            if !pins::KINDS.contains(&pin.kind.as_str()) {
                return Err(vec![fault("bad-lock", format!("{shown}: no such kind"), 0..0)]);
            }
            if rows.insert((&pin.kind, &pin.name), ()).is_some() {
                return Err(vec![fault("bad-lock", format!("{shown} has two rows"), 0..0)]);
            }
        }
        Ok(lock)
    }

    /// The text of the file: stable, sorted, one row a pin.
    #[must_use]
    pub fn render(&self) -> String {
        let mut pins: Vec<&Pin> = self.pins.iter().collect();
        pins.sort();
        let mut out =
            format!("# made by ringfence lock; do not edit\nversion = {}\n", self.version);
        for pin in pins {
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "\n[[pin]]\nkind = {}\nname = {}\ndigest = \"{}\"\n",
                quoted(&pin.kind),
                quoted(&pin.name),
                pin.digest
            );
        }
        out
    }

    /// The digest of one row, if there is one.
    #[must_use]
    pub fn digest(&self, kind: &str, name: &str) -> Option<Digest> {
        self.pins.iter().find(|pin| pin.kind == kind && pin.name == name).map(|pin| pin.digest)
    }
}

fn again(mut finding: Diagnostic) -> Diagnostic {
    finding.next = Some("ringfence lock".to_owned());
    finding
}

/// Where git left a conflict mark.
fn conflict(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if ["<<<<<<<", "=======", ">>>>>>>"].iter().any(|mark| line.starts_with(mark)) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

/// A TOML basic string (TOML 1.0, strings).
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
