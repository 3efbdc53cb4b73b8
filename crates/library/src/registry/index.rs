//! What a registry's index says. It proves nothing.

use std::fs;
use std::path::Path;

use ringfence_bundle::{Snapshot, first_invisible};
use ringfence_identity::Did;
use serde::{Deserialize, Serialize};

use crate::archive::{Unpacked, check_named};
use crate::quarantine::files;
use crate::sign::{Agent, is_hex};

/// Most bytes of an entry.
const MAX_ENTRY: u64 = 256 << 10;
/// Most versions of a registry.
const MAX_VERSIONS: usize = 20_000;
/// Most things that an entry says are in a bundle, and most characters of each.
const MAX_CONTENTS: (usize, usize) = (2_000, 300);

/// One version, as `index/<name>/<version>.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Format, 1.
    pub version: u32,
    /// The agent's name.
    pub name: String,
    /// Its version.
    pub agent_version: String,
    /// Whose signature is on the archive.
    pub did: Did,
    /// SHA-256 of the archive, 64 hex digits.
    pub sha256: String,
    /// What its lock pins, as `kind name`, sorted.
    pub contents: Vec<String>,
}

impl Release {
    /// What an archive's entry must be.
    pub(super) fn of(unpacked: &Unpacked, snapshot: &Snapshot) -> Self {
        let Agent { name, version } = unpacked.about.agent.clone();
        let pins = snapshot.lock.iter().flat_map(|lock| &lock.pins);
        let mut contents: Vec<String> = pins
            .map(|pin| format!("{} {}", pin.kind, pin.name))
            .filter(|text| fits(text))
            .collect();
        contents.truncate(MAX_CONTENTS.0);
        contents.sort();
        Self {
            version: 1,
            name,
            agent_version: version.unwrap_or_default(),
            did: unpacked.by.clone(),
            sha256: unpacked.sha256.clone(),
            contents,
        }
    }

    /// Its file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("text always has a JSON form");
        bytes.push(b'\n');
        bytes
    }

    /// Where its file lies in the registry.
    pub(super) fn path(&self) -> String {
        format!("index/{}/{}.json", self.name, self.agent_version)
    }

    /// Where its archive lies in the registry.
    pub(super) fn archive(&self) -> String {
        format!("archives/{}-{}.ringfence.tar.zst", self.name, self.agent_version)
    }

    /// `name@version`
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}@{}", self.name, self.agent_version)
    }

    /// What a search looks through.
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.label(), self.contents.join(" ")).to_lowercase()
    }

    /// Parses the file of a version strictly.
    fn parse(name: &str, version: &str, bytes: &[u8]) -> Result<Self, String> {
        let entry: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if entry.version != 1 {
            return Err(format!("version {} is not 1", entry.version));
        }
        if entry.name != name || entry.agent_version != version {
            return Err("it is about another name or version than its own".to_owned());
        }
        let agent = Agent { name: entry.name.clone(), version: Some(entry.agent_version.clone()) };
        check_named(&agent).map_err(str::to_owned)?;
        if !is_hex(&entry.sha256) {
            return Err("its digest is not 64 lower-case hex digits".to_owned());
        }
        if entry.contents.len() > MAX_CONTENTS.0 || !entry.contents.iter().all(|text| fits(text)) {
            return Err(
                "its contents are too many, too long, or hold what does not show".to_owned()
            );
        }
        Ok(entry)
    }
}

/// Whether something of a bundle can be named in an entry.
fn fits(text: &str) -> bool {
    text.chars().count() <= MAX_CONTENTS.1
        && first_invisible(text).is_none()
        && !text.contains(['\n', '\r', '\t'])
}

/// Every version that a clone lists, and the files that say nothing. A registry without an index
/// lists none.
pub(super) fn read(folder: &Path) -> (Vec<Release>, Vec<String>) {
    let (mut entries, mut damaged) = (Vec::new(), Vec::new());
    for name in names(&folder.join("index")) {
        for file in names(&folder.join("index").join(&name)) {
            if entries.len() + damaged.len() >= MAX_VERSIONS {
                damaged.push(format!("more than {MAX_VERSIONS} versions are not read"));
                return (entries, damaged);
            }
            let path = format!("index/{name}/{file}");
            let version = file.strip_suffix(".json");
            let entry = match version {
                None => Err("it is no `.json`".to_owned()),
                Some(version) => files::read(folder, &path, MAX_ENTRY)
                    .map_err(|error| error.to_string())
                    .and_then(|bytes| Release::parse(&name, version, &bytes)),
            };
            match entry {
                Ok(entry) => entries.push(entry),
                Err(reason) => damaged.push(format!("{path}: {reason}")),
            }
        }
    }
    (entries, damaged)
}

/// One version of a clone.
pub(super) fn find(folder: &Path, name: &str, version: &str) -> Option<Result<Release, String>> {
    let path = format!("index/{name}/{version}.json");
    match files::read(folder, &path, MAX_ENTRY) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.to_string())),
        Ok(bytes) => Some(Release::parse(name, version, &bytes)),
    }
}

/// Names in a folder, sorted; none when it is not one.
fn names(folder: &Path) -> Vec<String> {
    let is_folder = folder.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let entries = if is_folder { fs::read_dir(folder).ok() } else { None };
    let mut names: Vec<String> = entries
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_VERSIONS)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
