//! Putting an archive into a registry.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;

use super::{Registries, Release};
use crate::archive::unpack;
use crate::quarantine::{check, open};
use crate::{Error, Git, Remote, Store, private};

/// Most bytes of an archive.
const MAX_ARCHIVE: u64 = 2 << 30;

/// The bytes of an archive that a person named.
///
/// # Errors
/// [`Error::Read`].
pub fn read_archive(file: &Path) -> Result<Vec<u8>, Error> {
    let fail = |source| Error::Read { path: file.to_owned(), source };
    let mut bytes = Vec::new();
    open(file).map_err(fail)?.take(MAX_ARCHIVE).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

impl Registries {
    /// Puts an archive and its entry into a registry: brings the clone up to date, adds the two
    /// files, commits, pushes. A version that is there is never replaced.
    ///
    /// # Errors
    /// [`Error::Archive`]: a receiver would refuse it. [`Error::Registry`]: the version is there.
    /// [`Error::Git`]: the push was refused, …; the clone is as it was then.
    pub fn publish(&self, git: &Git, registry: &str, archive: &[u8]) -> Result<Release, Error> {
        let _held = private::lock(&self.home, "registries")?;
        let list = self.some(Some(registry))?;
        let address = &list[registry];
        let entry = self.entry_of(archive)?;
        let owned = self.current(git, registry, &Remote::typed(address)?)?;
        let folder = self.folder(registry);
        let paths = [entry.path(), entry.archive()];
        let taken = |path: &String| folder.join(path).symlink_metadata().is_ok();
        if paths.iter().any(taken) {
            let message = format!(
                "{} is in `{registry}` already, and a version is never replaced",
                entry.label()
            );
            return Err(Error::Registry { message, next: Some("ringfence registry search") });
        }
        let done = || {
            put(&folder.join(&paths[0]), &entry.bytes())?;
            put(&folder.join(&paths[1]), archive)?;
            let message = format!("{} {}", entry.name, entry.agent_version);
            owned.commit(&[&paths[0], &paths[1]], &message)?;
            owned.push()
        };
        if let Err(error) = done() {
            // What did not get there must not stay here either: the clone is made anew.
            self.clear(registry)?;
            return Err(error);
        }
        self.look(registry, address)?;
        Ok(entry)
    }

    /// The entry of an archive that any receiver would take in.
    fn entry_of(&self, archive: &[u8]) -> Result<Release, Error> {
        let trial = Store::of(&self.home).scratch()?;
        let refuse = |fault| Error::Archive { path: "the archive".into(), fault };
        let unpacked = unpack(archive, trial.path()).map_err(refuse)?;
        let snapshot = check::bundle(trial.path(), &unpacked.about).map_err(refuse)?;
        Ok(Release::of(&unpacked, &snapshot))
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let write = || {
        fs::create_dir_all(path.parent().ok_or(std::io::ErrorKind::InvalidInput)?)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|source| Error::Write { path: path.to_owned(), source })
}
