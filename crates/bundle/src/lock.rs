//! `ringfence.lock`: what is declared, pinned to digests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::pins::Elsewhere;
use crate::source::Source;
use crate::{Diagnostic, Digest, Error, Kind, Objects, Severity, Snapshot, pins, text};

#[cfg(test)]
mod tests;

mod origin;
mod tools;

pub use origin::{Origin, Resolved};
pub use tools::{ToolPin, ToolPins, json_digest, tool_digest};

/// A parsed lock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Format, 1.
    pub version: u32,
    /// One row a declared thing, sorted by kind and name.
    #[serde(default, rename = "pin")]
    pub pins: Vec<Pin>,
    /// What servers offered when they were last asked, sorted by server. A server without a row is
    /// unpinned.
    #[serde(default)]
    pub tools: Vec<ToolPins>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "origin::Row", into = "origin::Row")]
pub struct Pin {
    /// What it is.
    pub kind: Kind,
    /// Its name; for a setting, the agent CLI and the key: `claude-code.model`; for a program, its
    /// path in the project.
    pub name: String,
    /// Digest of its definition or bytes.
    pub digest: Digest,
    /// Where its bytes come from, when they do not lie beside the manifest.
    pub origin: Option<Origin>,
}

impl Lock {
    /// Pins everything that the manifest declares to the bytes that are there now. What comes from a
    /// repository or the library is pinned to what `resolved` says; what it does not say stays as the
    /// snapshot's lock has it, if that row is for the same source and the store holds its bytes. Tool
    /// definitions stay as they are for servers whose declaration did not change.
    ///
    /// # Errors
    /// [`Error::Invalid`], each finding at its place in the manifest: a file or folder that is
    /// missing, that holds a symlink or device or is too large, or a source that was not fetched.
    /// [`Error::Object`].
    pub fn compute(
        snapshot: &Snapshot,
        objects: &Objects,
        resolved: &BTreeMap<(Kind, String), Resolved>,
    ) -> Result<Self, Error> {
        let found = pins::found(snapshot)?;
        let mut missing = Vec::new();
        let mut list = Vec::new();
        for ((kind, name), digest) in found.here {
            match digest {
                Some(digest) => list.push(Pin { kind, name, digest, origin: None }),
                None => {
                    let at = snapshot.place_of(kind, &name).file;
                    let at = text::shown(&at.to_string_lossy());
                    let message = format!("{kind} `{}`: there is no {at}", text::shown(&name));
                    missing.push(pins::finding(snapshot, kind, &name, "missing-file", message));
                }
            }
        }
        let (fresh, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            found.elsewhere.into_iter().partition(|(key, _)| resolved.contains_key(key));
        // What was just fetched is proved too: it may hold what must not be pinned.
        let asks: Vec<_> = fresh.keys().map(|key| (key.0, resolved[key].digest)).collect();
        let proved = objects.all_proved(&asks).into_iter();
        let before = snapshot.lock.as_ref();
        let mut stands = pins::from_store(objects, before, &kept)?;
        for ((kind, name), stands) in &stands {
            let pinned = before.and_then(|lock| lock.digest(*kind, name));
            if let (Elsewhere::Here(found, _), Some(pinned)) = (stands, pinned)
                && *found != pinned
            {
                // Bytes that nobody pinned are not pinned because they lie at a pinned address.
                return Err(objects.damaged(*kind, &pinned, found));
            }
        }
        for (key, proved) in fresh.into_keys().zip(proved) {
            let Resolved { digest, origin } = resolved[&key].clone();
            let whole = proved? == Some(digest);
            let found = Elsewhere::Here(digest, Some(origin));
            stands.insert(key, if whole { found } else { Elsewhere::NotHere });
        }
        for (key, stands) in stands {
            match stands {
                Elsewhere::Here(digest, origin) => {
                    list.push(Pin { kind: key.0, name: key.1, digest, origin });
                }
                _ => missing.push(Diagnostic {
                    next: Some("ringfence lock --fetch".to_owned()),
                    ..pins::finding(
                        snapshot,
                        key.0,
                        &key.1,
                        "not-fetched",
                        format!("{} `{}` was not fetched yet", key.0, text::shown(&key.1)),
                    )
                }),
            }
        }
        if !missing.is_empty() {
            return Err(Error::Invalid(missing));
        }
        list.sort();
        let mut lock = Self { version: 1, pins: list, tools: Vec::new() };
        if let Some(before) = &snapshot.lock {
            let same = |pins: &&ToolPins| {
                let digest = |lock: &Self| lock.digest(Kind::Server, pins.server.as_str());
                digest(before).is_some() && digest(before) == digest(&lock)
            };
            lock.tools = before.tools.iter().filter(same).cloned().collect();
        }
        Ok(lock)
    }

    /// Parses the bytes of a lock strictly. The path is only shown.
    ///
    /// # Errors
    /// The findings: not text, an unsettled merge, a syntax error, an unknown key, another version,
    /// an unknown kind, a row that is there twice.
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self, Vec<Diagnostic>> {
        let source = Source::of_lock(file, bytes).map_err(|finding| vec![again(*finding)])?;
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
        let mut rows: BTreeMap<(Kind, &str), ()> = BTreeMap::new();
        for pin in &lock.pins {
            let shown = format!("{} `{}`", pin.kind, text::shown(&pin.name));
            if rows.insert((pin.kind, &pin.name), ()).is_some() {
                return Err(vec![fault("bad-lock", format!("{shown} has two rows"), 0..0)]);
            }
        }
        let mut servers = BTreeSet::new();
        for pins in &lock.tools {
            if !servers.insert(&pins.server) {
                let message = format!("the tools of `{}` have two rows", pins.server);
                return Err(vec![fault("bad-lock", message, 0..0)]);
            }
            if let Some(flaw) = pins.flaw() {
                return Err(vec![fault("bad-lock", flaw, 0..0)]);
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
                "\n[[pin]]\nkind = \"{}\"\nname = {}\ndigest = \"{}\"\n",
                pin.kind,
                quoted(&pin.name),
                pin.digest
            );
            for (key, value) in pin.origin.iter().flat_map(Origin::fields) {
                let _ = writeln!(out, "{key} = {}", quoted(value));
            }
        }
        let mut tools: Vec<&ToolPins> = self.tools.iter().collect();
        tools.sort_by(|a, b| a.server.cmp(&b.server));
        tools.into_iter().for_each(|pins| pins.render(&mut out));
        out
    }

    /// One row, if there is one.
    #[must_use]
    pub fn pin(&self, kind: Kind, name: &str) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.kind == kind && pin.name == name)
    }

    /// Every row by kind and name, for whoever asks for many: a hostile lock may have a hundred
    /// thousand.
    #[must_use]
    pub fn rows(&self) -> BTreeMap<(Kind, &str), &Pin> {
        self.pins.iter().map(|pin| ((pin.kind, pin.name.as_str()), pin)).collect()
    }

    /// The digest of one row, if there is one.
    #[must_use]
    pub fn digest(&self, kind: Kind, name: &str) -> Option<Digest> {
        self.pin(kind, name).map(|pin| pin.digest)
    }

    /// What a server offered when it was last asked; `None` where it is unpinned.
    #[must_use]
    pub fn tools_of(&self, server: &str) -> Option<&ToolPins> {
        self.tools.iter().find(|pins| pins.server.as_str() == server)
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

/// A TOML basic string (TOML 1.0, strings); what does not show is escaped.
pub(crate) fn quoted(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if text::is_invisible(c) => {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
