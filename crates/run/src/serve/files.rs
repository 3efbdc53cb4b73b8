//! Whether the files that a session stands on are the ones that it was opened with: a cheap look before
//! each request. What they say is read only when one of them is another.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, statat};

/// Relative to the project.
const BUNDLE: [&str; 3] =
    [".ringfence/ringfence.toml", ".ringfence/ringfence.local.toml", ".ringfence/ringfence.lock"];
/// Relative to the machine's folder.
const MACHINE: [&str; 2] = ["trust.json", "machine.toml"];
/// A file that changed so shortly before it was looked at may change again at the same time, as the
/// kernel counts it.
const YOUNG: Duration = Duration::from_millis(50);

/// The files, as far as a look at them tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Print {
    files: [Option<File>; 5],
    young: bool,
}

/// Everything that another file would have otherwise: who writes to it cannot set when it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct File {
    inode: (u64, u64),
    size: i64,
    changed: (i64, i64),
}

impl Print {
    /// Looks at the files. To be called before they are read.
    pub(super) fn of(project: &Path, home: &Path) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut young = false;
        let mut look = |path: &Path| {
            let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let changed = (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0));
            let at = Duration::new(
                u64::try_from(changed.0).unwrap_or(0),
                u32::try_from(changed.1).unwrap_or(0),
            );
            young |= at + YOUNG > now;
            Some(File { inode: (stat.st_dev, stat.st_ino), size: stat.st_size, changed })
        };
        let [manifest, overlay, lock] = BUNDLE.map(|name| look(&project.join(name)));
        let [trust, machine] = MACHINE.map(|name| look(&home.join(name)));
        Self { files: [manifest, overlay, lock, trust, machine], young }
    }

    /// Whether they are the same files now.
    pub(super) fn holds(&self, project: &Path, home: &Path) -> bool {
        !self.young && Self::of(project, home).files == self.files
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BUNDLE, MACHINE, Print};

    fn settled(project: &Path, home: &Path) -> Print {
        loop {
            let print = Print::of(project, home);
            if !print.young {
                return print;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn every_file_counts_and_one_that_just_changed_is_never_believed() {
        let (project, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (project, home) = (project.path(), home.path());
        std::fs::create_dir(project.join(".ringfence")).unwrap();
        let all = BUNDLE.map(|name| project.join(name));
        let all = all.into_iter().chain(MACHINE.map(|name| home.join(name)));
        for file in all {
            let before = settled(project, home);
            assert!(before.holds(project, home), "control");
            std::fs::write(&file, "a").unwrap();
            assert!(!before.holds(project, home), "{} is there now", file.display());
            assert!(!Print::of(project, home).holds(project, home), "it is young");
            let before = settled(project, home);
            std::fs::write(&file, "b").unwrap();
            assert!(!before.holds(project, home), "{} has other bytes", file.display());
        }
    }
}
