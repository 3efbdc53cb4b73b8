//! Files of this folder's owner alone: mode 0600, written whole or not at all, one writer at a time, and
//! never through a link.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A list that is kept as JSON in one such file, with a lock beside it.
pub(crate) struct List {
    /// The file's name.
    pub(crate) name: &'static str,
    /// The lock's.
    pub(crate) lock: &'static str,
    /// Bytes that are read of it.
    pub(crate) most: u64,
}

impl List {
    /// What is kept there. `None` when there is no such file.
    ///
    /// # Errors
    /// In words, with the file: what cannot be read is not nothing.
    pub(crate) fn read<T: DeserializeOwned>(&self, home: &Path) -> Result<Option<T>, String> {
        let path = home.join(self.name);
        let bad = |why: String| format!("{}: {why}", path.display());
        let mut options = OpenOptions::new();
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = match options.read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(bad(error.to_string())),
        };
        let mut text = String::new();
        file.take(self.most).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
        serde_json::from_str(&text).map(Some).map_err(|error| bad(error.to_string()))
    }

    /// Changes what is kept there, with nobody else beside. `change` makes what is to be there of what
    /// is, or `None` where nothing is to be written.
    ///
    /// # Errors
    /// In words, with the file.
    pub(crate) fn change<T, U>(
        &self,
        home: &Path,
        change: impl FnOnce(Option<T>) -> Result<Option<U>, String>,
    ) -> Result<bool, String>
    where
        T: DeserializeOwned,
        U: Serialize,
    {
        let io = |error: std::io::Error| format!("{}: {error}", home.join(self.name).display());
        let _lock = locked(&home.join(self.lock)).map_err(io)?;
        let Some(new) = change(self.read(home)?)? else { return Ok(false) };
        let text = serde_json::to_vec(&new).map_err(|error| error.to_string())?;
        write(home, self.name, &text).map_err(io)?;
        Ok(true)
    }
}

/// Refuses a list of another version than 1.
pub(crate) fn of_version_1(name: &str, version: u32) -> Result<(), String> {
    match version {
        1 => Ok(()),
        other => Err(format!("{name}: version {other} is not known here")),
    }
}

/// Waits until nobody else has this lock. It is held until what comes back is dropped.
pub(crate) fn locked(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    let lock = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// Writes a file, whole or not at all. The caller holds its lock.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = folder.join(format!("{name}.new"));
    // What a crash left is ours to replace: nobody else writes under the lock.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, folder.join(name))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::{List, write};

    const LIST: List = List { name: "list.json", lock: "list.lock", most: 1 << 20 };

    #[test]
    fn it_is_changed_whole_and_by_nobody_through_a_link() {
        let home = tempfile::tempdir().unwrap();
        let add = |number: u32| {
            LIST.change(home.path(), |all: Option<Vec<u32>>| {
                let mut all = all.unwrap_or_default();
                let new = !all.contains(&number);
                all.push(number);
                Ok(new.then_some(all))
            })
        };
        assert_eq!(LIST.read::<Vec<u32>>(home.path()), Ok(None));
        assert_eq!((add(1), add(2), add(2)), (Ok(true), Ok(true), Ok(false)));
        assert_eq!(LIST.read::<Vec<u32>>(home.path()), Ok(Some(vec![1, 2])));
        let mode =
            |name| std::fs::metadata(home.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("list.json"), mode("list.lock")), (0o600, 0o600));
        // What a crash left is replaced, and not written through.
        let elsewhere = home.path().join("elsewhere");
        std::fs::write(&elsewhere, "theirs").unwrap();
        symlink(&elsewhere, home.path().join("list.json.new")).unwrap();
        write(home.path(), "list.json", b"[3]").unwrap();
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "theirs");
        assert_eq!(LIST.read::<Vec<u32>>(home.path()), Ok(Some(vec![3])));
        // A link in its place is not read, and what is no list is not none.
        std::fs::rename(home.path().join("list.json"), home.path().join("moved")).unwrap();
        symlink("moved", home.path().join("list.json")).unwrap();
        assert!(LIST.read::<Vec<u32>>(home.path()).is_err() && add(4).is_err());
        std::fs::remove_file(home.path().join("list.json")).unwrap();
        std::fs::write(home.path().join("list.json"), "{").unwrap();
        assert!(add(5).is_err());
    }

    #[test]
    fn many_at_once_lose_nothing() {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8_u32 {
                let home = home.path();
                scope.spawn(move || {
                    LIST.change(home, |all: Option<Vec<u32>>| {
                        Ok(Some([all.unwrap_or_default(), vec![number]].concat()))
                    })
                });
            }
        });
        assert_eq!(LIST.read::<Vec<u32>>(home.path()).unwrap().unwrap().len(), 8);
    }
}
