//! Registries: plain git repositories of signed archives, `archives/<name>-<version>.ringfence.tar.zst`
//! with `index/<name>/<version>.json`. Nothing to host.
//!
//! Whoever owns a registry can be hostile. Its index is a table of contents and proves nothing: what
//! counts is the archive's own attestation, its signer's key on the person's list, and that a
//! version's bytes never change once this machine has seen them.

mod index;
mod install;
mod publish;
mod seen;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_bundle::first_invisible;
use rustix::fs::Mode;
use serde::Deserialize;

use crate::publishers::check_name;
use crate::{Error, Git, Owned, Remote, private};

pub use index::Release;
pub use install::Wanted;
pub use publish::read_archive;

const NAME: &str = "registries.toml";
/// Clones that are being made begin with this.
const NEW: &str = ".new-";

/// Most registries of one machine.
const MOST: usize = 100;

/// The registries of this machine: `<home>/registries.toml`, a clone of each in
/// `<home>/registries/<name>`, and what was seen of them in `<home>/registries.seen`.
#[derive(Debug, Clone)]
pub struct Registries {
    home: PathBuf,
}

/// What a registry has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refreshed {
    /// This machine's name for it.
    pub registry: String,
    /// How many versions it lists.
    pub versions: usize,
    /// Versions whose bytes are others than this machine saw before: `name@version`. They are not
    /// installed.
    pub changed: Vec<String>,
    /// Files of its index that say nothing, with why.
    pub damaged: Vec<String>,
}

/// One version that a registry lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// This machine's name for the registry.
    pub registry: String,
    /// What its index says.
    pub entry: Release,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    #[serde(default)]
    registries: BTreeMap<String, String>,
}

impl Registries {
    /// The registries of this home. Touches nothing yet.
    #[must_use]
    pub fn of(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// Name and address of each.
    ///
    /// # Errors
    /// [`Error::Refused`]: the list is not one, or others can write to it.
    pub fn list(&self) -> Result<BTreeMap<String, String>, Error> {
        let Some(bytes) = private::read(&self.home, NAME)? else { return Ok(BTreeMap::new()) };
        let refuse = |reason: String| Error::Refused { path: self.home.join(NAME), reason };
        let text = String::from_utf8(bytes).map_err(|_| refuse("is not UTF-8".to_owned()))?;
        let document: Document =
            toml::from_str(&text).map_err(|error| refuse(error.message().to_owned()))?;
        if document.version != 1 {
            return Err(refuse(format!("version {} is not 1", document.version)));
        }
        for (name, address) in &document.registries {
            check_name(name).map_err(refuse)?;
            Remote::typed(address)?;
        }
        Ok(document.registries)
    }

    /// Clones a registry and lists it.
    ///
    /// # Errors
    /// [`Error::Registry`]: the name is taken or none. [`Error::Git`], [`Error::Foreign`].
    pub fn add(&self, git: &Git, name: &str, address: &str) -> Result<Refreshed, Error> {
        check_name(name).map_err(|message| Error::Registry { message, next: None })?;
        let remote = Remote::typed(address)?;
        let _held = private::lock(&self.home, "registries")?;
        let mut list = self.list()?;
        if list.contains_key(name) || list.len() >= MOST {
            let message = format!("`{name}` is there already, or there are {MOST}");
            return Err(Error::Registry { message, next: Some("ringfence registry list") });
        }
        self.clear(name)?;
        self.clone_of(git, name, &remote)?;
        list.insert(name.to_owned(), remote.as_str().to_owned());
        self.write(&list)?;
        self.look(name, remote.as_str())
    }

    /// Takes a registry off the list and its clone away; false when there was none. What was seen of
    /// it is kept: should it come back, its versions must be the same.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Write`].
    pub fn remove(&self, name: &str) -> Result<bool, Error> {
        let _held = private::lock(&self.home, "registries")?;
        let mut list = self.list()?;
        if list.remove(name).is_none() {
            return Ok(false);
        }
        self.write(&list)?;
        self.clear(name)?;
        Ok(true)
    }

    /// Brings one registry, or all, up to date, and remembers what they list.
    ///
    /// # Errors
    /// [`Error::Registry`]: there is no such registry. [`Error::Git`], [`Error::Foreign`].
    pub fn sync(&self, git: &Git, name: Option<&str>) -> Result<Vec<Refreshed>, Error> {
        let _held = private::lock(&self.home, "registries")?;
        let mut all = Vec::new();
        for (registry, address) in self.some(name)? {
            self.current(git, &registry, &Remote::typed(&address)?)?;
            all.push(self.look(&registry, &address)?);
        }
        Ok(all)
    }

    /// Every listed version in which each word stands: in the name, the version, the registry, or
    /// what it contains. Contacts nobody. Sorted by name.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn search(&self, words: &[String]) -> Result<Vec<Listed>, Error> {
        let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
        let mut found = Vec::new();
        for registry in self.list()?.into_keys() {
            let (entries, _) = index::read(&self.folder(&registry));
            for entry in entries {
                let text = format!("{registry} {}", entry.text());
                if words.iter().all(|word| text.contains(word)) {
                    found.push(Listed { registry: registry.clone(), entry });
                }
            }
        }
        found.sort_by(|a, b| {
            let key = |it: &Listed| (it.entry.name.clone(), it.entry.agent_version.clone());
            key(a).cmp(&key(b))
        });
        Ok(found)
    }

    /// What a clone lists, remembered. Only under the lock.
    fn look(&self, registry: &str, address: &str) -> Result<Refreshed, Error> {
        let (entries, damaged) = index::read(&self.folder(registry));
        let changed = seen::note(&self.home, address, &entries)?;
        let registry = registry.to_owned();
        Ok(Refreshed { registry, versions: entries.len(), changed, damaged })
    }

    /// The clone, with what the remote has now and nothing else: what a killed process left in it is
    /// gone, and a clone of another address is made anew.
    fn current<'g>(&self, git: &'g Git, name: &str, remote: &Remote) -> Result<Owned<'g>, Error> {
        let folder = self.folder(name);
        if folder.symlink_metadata().is_ok() {
            let owned = git.owned(&folder)?;
            if owned.remote()?.as_ref() == Some(remote) && owned.mirror()? {
                return Ok(owned);
            }
            self.clear(name)?;
        }
        self.clone_of(git, name, remote)
    }

    /// A new clone. It gets its place when it is whole. Only under the lock.
    fn clone_of<'g>(&self, git: &'g Git, name: &str, remote: &Remote) -> Result<Owned<'g>, Error> {
        let folders = self.home.join("registries");
        ringfence_identity::open_private(&folders, Mode::WGRP | Mode::WOTH)?;
        let make = || {
            for entry in fs::read_dir(&folders)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with(NEW) {
                    fs::remove_dir_all(entry.path())?;
                }
            }
            tempfile::Builder::new().prefix(NEW).tempdir_in(&folders)
        };
        let write = |source| Error::Write { path: folders.clone(), source };
        let new = make().map_err(write)?;
        let beside = new.path().join("clone");
        git.clone_owned(remote, &beside)?;
        fs::rename(&beside, folders.join(name)).map_err(write)?;
        git.owned(&folders.join(name))
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.home.join("registries").join(name)
    }

    /// Removes a clone. It is made anew when it is needed.
    fn clear(&self, name: &str) -> Result<(), Error> {
        let folder = self.folder(name);
        match fs::remove_dir_all(&folder) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Write { path: folder, source })
            }
            _ => Ok(()),
        }
    }

    /// The one asked for, or all.
    fn some(&self, name: Option<&str>) -> Result<BTreeMap<String, String>, Error> {
        let mut list = self.list()?;
        if let Some(name) = name {
            list.retain(|listed, _| listed == name);
        }
        if list.is_empty() {
            let message = match name {
                Some(name) => format!("there is no registry `{}`", name.escape_debug()),
                None => "no registry is listed".to_owned(),
            };
            let next = Some("ringfence registry add <name> <git address>");
            return Err(Error::Registry { message, next });
        }
        Ok(list)
    }

    fn write(&self, list: &BTreeMap<String, String>) -> Result<(), Error> {
        let mut text = String::from(
            "# where bundles are looked for; made by ringfence registry\nversion = 1\n\n\
             [registries]\n",
        );
        for (name, address) in list {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} = {}", quoted(address));
        }
        private::replace(&self.home, NAME, text.as_bytes())
    }
}

/// A TOML string of text that has no control characters.
fn quoted(text: &str) -> String {
    debug_assert!(first_invisible(text).is_none());
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
