//! Moving a received bundle into a folder of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ringfence_bundle::Content;
use rustix::fs::{CWD, RenameFlags};

use super::{Received, files};
use crate::archive::BUNDLE;
use crate::{Error, Store, private};

impl Received {
    /// Where it would be moved to from this home: the path made absolute, its parent's links followed.
    ///
    /// # Errors
    /// [`Error::Refused`]: something is there already, or the folder it is to lie in is not; it would
    /// lie where its files had another meaning: in this machine's own folder, a bundle's, or git's.
    pub fn target(home: &Path, into: &Path) -> Result<PathBuf, Error> {
        let refuse =
            |reason: &str| Err(Error::Refused { path: into.to_owned(), reason: reason.to_owned() });
        let fail = |source| Error::Read { path: into.to_owned(), source };
        let absolute = std::path::absolute(into).map_err(fail)?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return refuse("is not the path of a new folder");
        };
        let Ok(parent) = parent.canonicalize() else {
            return refuse("the folder in which it is to lie is not there");
        };
        let target = parent.join(name);
        let folded = |part: &std::ffi::OsStr| part.to_string_lossy().to_lowercase();
        if target.iter().any(|part| matches!(&*folded(part), ".git" | ".ringfence"))
            || home.canonicalize().is_ok_and(|home| target.starts_with(home))
        {
            return refuse("lies in a folder of git, of a bundle, or of ringfence itself");
        }
        match target.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(target),
            Err(error) => Err(fail(error)),
            Ok(_) => refuse("is there already, and nothing is ever written over"),
        }
    }

    /// Writes the bundle into a new folder, every byte proved once more, and what came from
    /// repositories and libraries into the content store. The folder appears whole, in one step, and
    /// nothing that is there is replaced. It is not trusted by that.
    ///
    /// # Errors
    /// [`Error::Refused`] as [`Received::target`], [`Error::Quarantine`] when bytes have changed,
    /// [`Error::Write`].
    pub fn release(&self, into: &Path, store: &Store) -> Result<PathBuf, Error> {
        let target = Self::target(self.home(), into)?;
        self.deposit(store)?;
        let write = |source| Error::Write { path: target.clone(), source };
        let parent = target.parent().unwrap_or(Path::new("/"));
        let new = private::aside(parent, ".ringfence-received-").map_err(write)?;
        for row in &self.about.members {
            let Some(path) = row.path.strip_prefix(BUNDLE) else { continue };
            let bytes = files::proved(&self.folder, row)
                .map_err(|reason| Error::Quarantine { id: self.id.clone(), reason })?;
            put(&new.path().join(path), row.executable, &bytes).map_err(write)?;
        }
        finish(new.path()).map_err(write)?;
        match rustix::fs::renameat_with(CWD, new.path(), CWD, &target, RenameFlags::NOREPLACE) {
            Ok(()) => {
                // It has another name now; there is nothing to remove under the old one.
                new.keep();
            }
            Err(rustix::io::Errno::EXIST) => {
                let reason = "is there already, and nothing is ever written over".to_owned();
                return Err(Error::Refused { path: target, reason });
            }
            Err(error) => return Err(write(error.into())),
        }
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(write)?;
        Ok(target)
    }

    /// The home in whose quarantine it is.
    fn home(&self) -> &Path {
        self.folder.ancestors().nth(2).unwrap_or(&self.folder)
    }

    /// Puts what came from repositories and libraries into the content store, where a lock looks for
    /// it. [`Received::release`] does so too.
    ///
    /// # Errors
    /// [`Error::Quarantine`], [`Error::Write`].
    pub fn deposit(&self, store: &Store) -> Result<(), Error> {
        let objects = self.objects();
        let lock = self.snapshot.lock.iter().flat_map(|lock| &lock.pins);
        for pin in lock.filter(|pin| pin.origin.is_some()) {
            match objects.read(pin.kind, &pin.digest)? {
                Some(Content::File(blob)) => store.deposit_file(pin.kind, &blob)?,
                Some(Content::Tree(blobs)) => store.deposit_tree(pin.kind, &blobs)?,
                None => {
                    let reason = format!("{} {} is gone", pin.kind, pin.name);
                    return Err(Error::Quarantine { id: self.id.clone(), reason });
                }
            };
        }
        Ok(())
    }
}

/// A file and its folders, as the person's own would be made.
fn put(path: &Path, executable: bool, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
    let mode = if executable { 0o777 } else { 0o666 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The overlay is kept out of git, as `init` does; folders are synced; the outermost gets the mode
/// that any new folder of this person's has.
fn finish(folder: &Path) -> io::Result<()> {
    let ignore = folder.join(".ringfence/.gitignore");
    if !ignore.try_exists()? {
        put(&ignore, false, b"ringfence.local.toml\n")?;
    }
    sync(folder)?;
    let mode = fs::metadata(folder.join(".ringfence"))?.permissions();
    fs::set_permissions(folder, mode)
}

fn sync(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}
