//! Whose signatures does this machine's person know? `<home>/publishers.toml`.
//!
//! A listed key gives a name to a signature. It makes nothing trusted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ringfence_identity::Did;
use serde::Deserialize;

use crate::{Error, private};

#[cfg(test)]
mod tests;

const NAME: &str = "publishers.toml";

/// Most publishers of one machine.
const MOST: usize = 10_000;

/// The publishers that a person listed on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Publishers {
    by_name: BTreeMap<String, Did>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    #[serde(default)]
    publishers: BTreeMap<String, Did>,
}

impl Publishers {
    /// Reads the list. No file is an empty list.
    ///
    /// # Errors
    /// [`Error::Refused`]: others can write to it, it does not parse, a name or a key stands twice.
    pub fn read(home: &Path) -> Result<Self, Error> {
        let Some(bytes) = private::read(home, NAME)? else { return Ok(Self::default()) };
        Self::parse(&bytes).map_err(|reason| Error::Refused { path: home.join(NAME), reason })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
        let document: Document = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        if document.version != 1 {
            return Err(format!("version {} is not 1", document.version));
        }
        let mut list = Self::default();
        for (name, did) in document.publishers {
            list.put(&name, did)?;
        }
        Ok(list)
    }

    fn put(&mut self, name: &str, did: Did) -> Result<(), String> {
        check_name(name)?;
        if self.by_name.contains_key(name) {
            return Err(format!("`{name}` is listed already"));
        }
        if let Some(other) = self.name_of(&did) {
            return Err(format!("this key is listed already, as `{other}`"));
        }
        if self.by_name.len() >= MOST {
            return Err(format!("more than {MOST} publishers are not kept"));
        }
        self.by_name.insert(name.to_owned(), did);
        Ok(())
    }

    /// The name under which a key is listed.
    #[must_use]
    pub fn name_of(&self, did: &Did) -> Option<&str> {
        self.by_name.iter().find(|(_, listed)| *listed == did).map(|(name, _)| name.as_str())
    }

    /// Everyone, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Did)> {
        self.by_name.iter().map(|(name, did)| (name.as_str(), did))
    }

    /// Lists a publisher. Nobody is replaced: a name that changes its key is a decision of its own.
    ///
    /// # Errors
    /// [`Error::Refused`]: the name or the key is listed already, or no name. [`Error::Identity`]
    /// when it is no Ed25519 did:key. [`Error::Write`].
    pub fn add(home: &Path, name: &str, did: &str) -> Result<(), Error> {
        let did = Did::parse(did)?;
        let _held = private::lock(home, "publishers")?;
        let mut list = Self::read(home)?;
        list.put(name, did)
            .map_err(|reason| Error::Refused { path: PathBuf::from(NAME), reason })?;
        private::replace(home, NAME, list.render().as_bytes())
    }

    /// Takes a publisher off the list; false when it was not on it.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Write`].
    pub fn remove(home: &Path, name: &str) -> Result<bool, Error> {
        let _held = private::lock(home, "publishers")?;
        let mut list = Self::read(home)?;
        if list.by_name.remove(name).is_none() {
            return Ok(false);
        }
        private::replace(home, NAME, list.render().as_bytes())?;
        Ok(true)
    }

    fn render(&self) -> String {
        let mut text = String::from(
            "# whose signatures are known on this machine; made by ringfence publisher\n\
             version = 1\n\n[publishers]\n",
        );
        for (name, did) in &self.by_name {
            // Writing to a string cannot fail. Names are bare keys, DIDs need no escape.
            let _ = writeln!(text, "{name} = \"{did}\"");
        }
        text
    }
}

/// A name of this machine's own for somebody or something: `a-z`, `0-9` and `-`, at most 63.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
    if (1..=63).contains(&name.len())
        && name.bytes().all(plain)
        && name.as_bytes()[0].is_ascii_alphanumeric()
    {
        return Ok(());
    }
    Err("a name has 1 to 63 of a-z, 0-9 and `-`, and begins with a letter or digit".to_owned())
}
