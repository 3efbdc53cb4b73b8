//! Which bytes a version had when this machine first saw it: `<home>/registries.seen/`, a file for
//! each address.
//!
//! By the registry's address, so that taking a registry off the list and back on forgets nothing. Each
//! has room of its own, so that one that lists versions without end makes no other forgotten.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::{Release, quoted};
use crate::sign::sha256;
use crate::{Error, private};

/// The folder in the home.
const FOLDER: &str = "registries.seen";
/// Most versions that are remembered of one registry; more than it may list at once. All of them, as
/// long as they can be, are under what is read of a file.
const MOST: usize = 50_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    address: String,
    /// `<name>@<version>` to the archive's SHA-256.
    #[serde(default)]
    seen: BTreeMap<String, String>,
}

/// Remembers what is listed for the first time. Gives the versions that are other bytes now than
/// when they were first seen; of them the old digest stays. Only under the registries' lock.
///
/// # Errors
/// [`Error::Distrusted`]: it lists more versions, over time, than are remembered: those that are new
/// could be changed unseen. [`Error::Refused`], [`Error::Write`].
pub(super) fn note(home: &Path, address: &str, entries: &[Release]) -> Result<Vec<String>, Error> {
    let folder = home.join(FOLDER);
    let name = format!("{}.toml", sha256(address.as_bytes()));
    let before = read(&folder, &name, address)?;
    let mut seen = before.clone();
    let mut changed = Vec::new();
    let mut full = false;
    for entry in entries {
        match seen.get(&entry.label()) {
            Some(known) if *known == entry.sha256 => {}
            Some(_) => changed.push(entry.label()),
            None if seen.len() < MOST => drop(seen.insert(entry.label(), entry.sha256.clone())),
            None => full = true,
        }
    }
    if seen != before {
        ringfence_identity::prepare_home(home)?;
        ringfence_identity::prepare_home(&folder)?;
        private::replace(&folder, &name, render(address, &seen).as_bytes())?;
    }
    if full {
        return Err(Error::Distrusted(format!(
            "{address} has listed more than {MOST} versions since it was first seen; what is new in \
             it cannot be remembered, and is not taken"
        )));
    }
    Ok(changed)
}

fn render(address: &str, seen: &BTreeMap<String, String>) -> String {
    let mut text = format!(
        "# what a registry had when this machine first saw it; made by ringfence registry\n\
         version = 1\naddress = {}\n\n[seen]\n",
        quoted(address)
    );
    for (label, digest) in seen {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} = \"{digest}\"", quoted(label));
    }
    text
}

fn read(folder: &Path, name: &str, address: &str) -> Result<BTreeMap<String, String>, Error> {
    let Some(bytes) = private::read(folder, name)? else { return Ok(BTreeMap::new()) };
    let refuse = |reason: String| Error::Refused { path: folder.join(name), reason };
    let text = String::from_utf8(bytes).map_err(|_| refuse("is not UTF-8".to_owned()))?;
    let document: Document =
        toml::from_str(&text).map_err(|error| refuse(error.message().to_owned()))?;
    if document.version != 1 {
        return Err(refuse(format!("version {} is not 1", document.version)));
    }
    if document.address != address {
        return Err(refuse("is about another registry".to_owned()));
    }
    Ok(document.seen)
}

#[cfg(test)]
mod tests;
