//! Which bytes a version had when this machine first saw it: `<home>/registries.seen.toml`.
//!
//! By the registry's address, so that taking a registry off the list and back on forgets nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::{Release, quoted};
use crate::{Error, private};

const NAME: &str = "registries.seen.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    /// `<address> <name>@<version>` to the archive's SHA-256.
    #[serde(default)]
    seen: BTreeMap<String, String>,
}

/// Remembers what is listed for the first time. Gives the versions that are other bytes now than
/// when they were first seen; of them the old digest stays. Only under the registries' lock.
pub(super) fn note(home: &Path, address: &str, entries: &[Release]) -> Result<Vec<String>, Error> {
    let before = read(home)?;
    let mut seen = before.clone();
    let mut changed = Vec::new();
    for entry in entries {
        let known = seen.entry(key(address, entry)).or_insert_with(|| entry.sha256.clone());
        if *known != entry.sha256 {
            changed.push(entry.label());
        }
    }
    if seen != before {
        let mut text = String::from(
            "# what registries had when this machine first saw it; made by ringfence registry\n\
             version = 1\n\n[seen]\n",
        );
        for (key, digest) in &seen {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} = \"{digest}\"", quoted(key));
        }
        private::replace(home, NAME, text.as_bytes())?;
    }
    Ok(changed)
}

fn key(address: &str, entry: &Release) -> String {
    format!("{address} {}", entry.label())
}

fn read(home: &Path) -> Result<BTreeMap<String, String>, Error> {
    let Some(bytes) = private::read(home, NAME)? else { return Ok(BTreeMap::new()) };
    let refuse = |reason: String| Error::Refused { path: home.join(NAME), reason };
    let text = String::from_utf8(bytes).map_err(|_| refuse("is not UTF-8".to_owned()))?;
    let document: Document =
        toml::from_str(&text).map_err(|error| refuse(error.message().to_owned()))?;
    if document.version != 1 {
        return Err(refuse(format!("version {} is not 1", document.version)));
    }
    Ok(document.seen)
}
