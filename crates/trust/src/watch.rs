//! Asks at every call whether a bundle is still trusted, and reads what it must.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, statat};
use rustix::io::Errno;

use crate::file;
use crate::store::{Store, TrustedBundle};

/// The files are read whole at least so often, whatever their times say.
const FRESH: Duration = Duration::from_secs(1);
/// A file that changed so short a time ago may change once more within the same tick of its file
/// system's clock: what was read of it is not remembered.
const SETTLED: Duration = Duration::from_millis(100);

/// A look of so short a time ago is as good as one that is under way.
const NOW: Duration = Duration::from_millis(1);

/// A bundle that was trusted, and the store that can say whether it still is.
///
/// The project's three files and the store are looked at each time. They are read again when one of
/// them is another file, or has another size or time of change, and once a second. The time of change
/// (`ctime`) is the kernel's own: no program sets it.
#[derive(Debug)]
pub struct Watch {
    store: Store,
    bundle: Arc<TrustedBundle>,
    paths: Vec<PathBuf>,
    /// What they are in: which folders, and whose.
    folders: Vec<PathBuf>,
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    stamps: Vec<Option<Stamp>>,
    /// When these stamps were seen last.
    looked: Instant,
}

/// What tells a file apart from its next state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    mode: u32,
    owner: u32,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Other files come and go beside those that are looked at.
    fn of_folder(self) -> Self {
        Self { size: 0, modified: (0, 0), changed: (0, 0), ..self }
    }
}

impl Watch {
    /// Watches a bundle.
    #[must_use]
    pub fn new(store: Store, bundle: Arc<TrustedBundle>) -> Self {
        let project = bundle.snapshot().project.clone();
        let mut paths = ringfence_bundle::three_paths(&project).to_vec();
        paths.push(store.home().join(file::NAME));
        let mut folders: Vec<_> = paths.iter().filter_map(|path| path.parent()).collect();
        folders.dedup();
        let mut folders: Vec<_> = folders.into_iter().map(Path::to_path_buf).collect();
        folders.push(project);
        Self { store, bundle, paths, folders, seen: Mutex::default() }
    }

    /// As [`Watch::holds`], for those who ask without end: a look that found nothing changed is good for a
    /// millisecond, as if all who ask within it had asked at its beginning.
    #[must_use]
    pub fn holds_now(&self) -> bool {
        {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.as_ref().is_some_and(|seen| seen.looked.elapsed() < NOW) {
                return true;
            }
        }
        self.holds()
    }

    /// Whether the bundle is still what a person said yes to, as [`Store::still`] has it.
    #[must_use]
    pub fn holds(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun = Instant::now();
        let folders = self.folders.iter().map(|path| Some(stamp(path)?.map(Stamp::of_folder)));
        let stamps: Option<Vec<_>> = self.paths.iter().map(|p| stamp(p)).chain(folders).collect();
        if let Some(stamps) = &stamps {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let same = |s: &&mut Seen| s.at.elapsed() < FRESH && s.stamps == *stamps;
            if let Some(seen) = seen.as_mut().filter(same) {
                seen.looked = seen.looked.max(begun);
                return true;
            }
        }
        let holds = self.store.still(&self.bundle);
        let settled = |stamps: &Vec<Option<Stamp>>| {
            let quiet = |stamp: &Stamp| {
                let changed = Duration::new(
                    u64::try_from(stamp.changed.0).unwrap_or(u64::MAX),
                    u32::try_from(stamp.changed.1).unwrap_or_default(),
                );
                now.checked_sub(changed).is_some_and(|ago| ago > SETTLED)
            };
            stamps.iter().flatten().all(quiet)
        };
        // As they were before they were read: what changed since shows in the next stamps.
        let seen = stamps.filter(|stamps| holds && settled(stamps));
        let seen = seen.map(|stamps| Seen { at: begun, looked: begun, stamps });
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        holds
    }
}

/// `None` when it cannot be said; inside, `None` when there is no such file.
fn stamp(path: &Path) -> Option<Option<Stamp>> {
    match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(Some(Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            mode: stat.st_mode,
            owner: stat.st_uid,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec.try_into().unwrap_or_default()),
            changed: (stat.st_ctime, stat.st_ctime_nsec.try_into().unwrap_or_default()),
        })),
        Err(Errno::NOENT) => Some(None),
        Err(_) => None,
    }
}
