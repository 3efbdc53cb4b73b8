//! Which names were put into the keychain: names alone, in `<home>/keychain.json`.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ringfence_bundle::SecretName;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

const NAME: &str = "keychain.json";
const MAX_BYTES: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    names: BTreeSet<String>,
}

/// The names that were put there.
pub(super) fn names(home: &Path) -> Result<BTreeSet<String>, String> {
    let path = home.join(NAME);
    let bad = |why: String| format!("{}: {why}", path.display());
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match options.read(true).custom_flags(flags).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(bad(error.to_string())),
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    let stored: Stored = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    if stored.version != 1 {
        return Err(bad(format!("version {} is not known here", stored.version)));
    }
    Ok(stored.names)
}

/// Writes a name down, or strikes it. False when nothing changed.
pub(super) fn change(home: &Path, name: &SecretName, there: bool) -> Result<bool, String> {
    let io = |error: std::io::Error| format!("{}: {error}", home.join(NAME).display());
    let lock = open(&home.join("keychain.lock")).map_err(io)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| io(error.into()))?;
    let mut names = names(home)?;
    let changed = if there { names.insert(name.to_string()) } else { names.remove(name.as_str()) };
    if !changed {
        return Ok(false);
    }
    let text = serde_json::to_string(&Stored { version: 1, names }).map_err(|e| e.to_string())?;
    let temporary = home.join("keychain.json.new");
    let write = || {
        // What a crash left is ours to replace: nobody else writes under the lock.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, home.join(NAME))
    };
    write().map_err(io)?;
    Ok(true)
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
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
