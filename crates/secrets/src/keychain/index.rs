//! Which names were put into the keychain: names alone, in `<home>/keychain.json`.

use std::collections::BTreeSet;
use std::path::Path;

use ringfence_bundle::SecretName;
use serde::{Deserialize, Serialize};

use crate::private::{List, of_version_1};

const LIST: List = List { name: "keychain.json", lock: "keychain.lock", most: 1 << 20 };

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    names: BTreeSet<String>,
}

fn known(stored: Option<Stored>) -> Result<BTreeSet<String>, String> {
    let Some(Stored { version, names }) = stored else { return Ok(BTreeSet::new()) };
    of_version_1(LIST.name, version)?;
    Ok(names)
}

/// The names that were put there.
pub(super) fn names(home: &Path) -> Result<BTreeSet<String>, String> {
    known(LIST.read(home)?)
}

/// Writes a name down, or strikes it. False when nothing changed.
pub(super) fn change(home: &Path, name: &SecretName, there: bool) -> Result<bool, String> {
    LIST.change(home, |stored| {
        let mut names = known(stored)?;
        let changed =
            if there { names.insert(name.to_string()) } else { names.remove(name.as_str()) };
        Ok(changed.then_some(Stored { version: 1, names }))
    })
}

#[cfg(test)]
mod tests {
    use ringfence_bundle::SecretName;

    use super::{change, names};

    #[test]
    fn names_are_written_down_and_struck() {
        let home = tempfile::tempdir().unwrap();
        let name = SecretName::parse("BANK_TOKEN").unwrap();
        assert!(names(home.path()).unwrap().is_empty());
        assert!(change(home.path(), &name, true).unwrap());
        assert!(!change(home.path(), &name, true).unwrap());
        assert!(names(home.path()).unwrap().contains("BANK_TOKEN"));
        assert!(change(home.path(), &name, false).unwrap());
        assert!(names(home.path()).unwrap().is_empty());
        std::fs::write(home.path().join("keychain.json"), "{}").unwrap();
        assert!(names(home.path()).is_err(), "what cannot be read is not nothing");
    }
}
