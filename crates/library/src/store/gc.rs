//! Taking away what nothing needs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringfence_bundle::{Digest, Kind, Lock, read_three};
use rustix::fs::FlockOperation;

use super::{NEW, OLD, Object, Store, set_aside, walk};
use crate::Error;

/// Objects younger than this stay unless the person says otherwise: a lock may have been made for
/// them that nobody has trusted yet.
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// What must stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needed {
    /// Pinned objects.
    pub pins: BTreeSet<(Kind, Digest)>,
    /// Bundles under their consent digests.
    pub consents: BTreeSet<Digest>,
}

impl Needed {
    /// Adds everything that a lock pins.
    pub fn lock(&mut self, lock: &Lock) {
        self.pins.extend(lock.pins.iter().map(|pin| (pin.kind, pin.digest)));
    }

    fn has(&self, object: &Object) -> bool {
        match object.kind {
            Some(kind) => self.pins.contains(&(kind, object.digest)),
            None => self.consents.contains(&object.digest),
        }
    }
}

/// What was taken away, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone {
    /// The objects.
    pub objects: Vec<Object>,
    /// Bytes of them, and of what killed processes left.
    pub bytes: u64,
    /// How many unfinished objects of killed processes.
    pub leftovers: usize,
    /// How many objects stay.
    pub kept: usize,
}

/// What the trusted projects need: the lock that was said yes to, and the one that is there now. A
/// project that is gone needs only the former, until its trust is taken back.
///
/// # Errors
/// [`Error::Bundle`]: a lock that was said yes to, or that is there now, cannot be read, so that what it needs is not known.
pub fn needed(
    store: &Store,
    trusted: impl IntoIterator<Item = (PathBuf, Digest)>,
) -> Result<Needed, Error> {
    let mut needed = Needed::default();
    for (project, consent) in trusted {
        needed.consents.insert(consent);
        if let Some((_, _, Some(lock))) = store.approved(&consent)?
            && let Ok(lock) = Lock::parse(Path::new("ringfence.lock"), &lock)
        {
            needed.lock(&lock);
        }
        let now = match read_three(&project) {
            Ok((_, _, now)) => now,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(ringfence_bundle::Error::Io { path: project, source }.into()),
        };
        if let Some(now) = now {
            let path = project.join(".ringfence/ringfence.lock");
            let lock = Lock::parse(&path, &now).map_err(ringfence_bundle::Error::Invalid)?;
            needed.lock(&lock);
        }
    }
    Ok(needed)
}

impl Store {
    /// Takes away every object that is not needed and not younger than a day (`young` takes those
    /// too), and what killed processes left half written. `dry` only says what would go. Waits for
    /// whoever puts an object in place, and lets nobody do so meanwhile. `progress` hears how many
    /// of how many objects were looked at.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Write`]. Each object is there whole or gone.
    pub fn gc(
        &self,
        needed: &Needed,
        young: bool,
        dry: bool,
        progress: &dyn Fn(usize, usize),
    ) -> Result<Gone, Error> {
        let root = self.objects().root().to_owned();
        if !root.is_dir() {
            return Ok(Gone::default());
        }
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Write { path, source }
        };
        let _held = self.hold(FlockOperation::LockExclusive).map_err(fail(&root))?;
        let mut gone = Gone::default();
        for leftover in self.leftovers()? {
            gone.bytes += walk::size(&leftover);
            gone.leftovers += 1;
            if !dry {
                fs::remove_dir_all(&leftover).map_err(fail(&leftover))?;
            }
        }
        let now = SystemTime::now();
        let all = self.list()?;
        let total = all.len();
        for (at, object) in all.into_iter().enumerate() {
            progress(at, total);
            // A time ahead of the clock is young.
            let age = now.duration_since(object.since).unwrap_or_default();
            if needed.has(&object) || (!young && age < GRACE) {
                gone.kept += 1;
                continue;
            }
            if !dry && !set_aside(&object.place).map_err(fail(&object.place))? {
                continue;
            }
            gone.bytes += object.bytes;
            gone.objects.push(object);
        }
        Ok(gone)
    }

    /// Folders of objects that were never finished, or half taken away. Only under the lock: then
    /// nobody is at work on them.
    fn leftovers(&self) -> Result<Vec<PathBuf>, Error> {
        let mut found = Vec::new();
        let mut look = |folder: &Path| -> Result<Vec<PathBuf>, Error> {
            let (left, rest): (Vec<_>, Vec<_>) =
                walk::entries(folder)?.into_iter().partition(|it| {
                    let name = it.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                    name.starts_with(NEW) || name.starts_with(OLD)
                });
            found.extend(left);
            Ok(rest)
        };
        for family in look(self.objects().root())? {
            for first in look(&family)? {
                look(&first)?;
            }
        }
        Ok(found)
    }
}
