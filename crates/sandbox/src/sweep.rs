//! Taking away what a run left, by the files in its folder.

use std::ffi::OsString;
use std::ops::AddAssign;
use std::path::Path;

use rustix::mount::UnmountFlags;

use crate::docker;
use crate::error::Result;
use crate::ground::journal::Journal;
use crate::ground::placeholder::{self, Ground};
use crate::native::cgroup;

/// How much was taken away, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Swept {
    /// Containers in an engine.
    pub containers: usize,
    /// Networks in an engine.
    pub networks: usize,
    /// Mounts on this machine.
    pub mounts: usize,
    /// Cgroups.
    pub cgroups: usize,
    /// Files and folders in a project that stood there for the run alone.
    pub placeholders: usize,
    /// Folders that were there for a run's containers.
    pub folders: usize,
}

impl AddAssign for Swept {
    fn add_assign(&mut self, other: Self) {
        self.containers += other.containers;
        self.networks += other.networks;
        self.mounts += other.mounts;
        self.cgroups += other.cgroups;
        self.placeholders += other.placeholders;
        self.folders += other.folders;
    }
}

/// Puts back what a run left: containers and networks, mounts, placeholders, cgroups. The caller says which
/// run folders are dead. What another live run stands on stays, and stays written down; so does what is in
/// an engine that does not answer.
///
/// # Errors
/// [`crate::Error::Step`]: the folder cannot be read.
pub fn sweep(run_dir: &Path) -> Result<Swept> {
    all(run_dir, After::End)
}

/// The same after a crash: what the run had asked an engine for may still be made by it, and is waited
/// for.
///
/// # Errors
/// As [`sweep`].
pub fn sweep_after_crash(dead_run_dir: &Path) -> Result<Swept> {
    all(dead_run_dir, After::Crash)
}

fn all(run_dir: &Path, after: After) -> Result<Swept> {
    let mut swept = Swept::default();
    for mut journal in Journal::left_in(run_dir)? {
        swept += clean(&mut journal, None, after);
    }
    Ok(swept)
}

/// After what a run is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It has ended, and asks for nothing any more.
    End,
    /// It died in the middle.
    Crash,
}

/// Whether something in a run's folder still waits to be put back.
#[must_use]
pub fn has_left(run_dir: &Path) -> bool {
    // A folder that cannot be read may hold anything.
    Journal::left_in(run_dir).map_or(true, |left| !left.is_empty())
}

/// In this order: what stands on something goes before it.
pub(crate) fn clean(journal: &mut Journal, ground: Option<&Ground>, after: After) -> Swept {
    let mut swept = Swept::default();
    if let Some(left) = &journal.entries.engine {
        let Ok((containers, networks)) = docker::remove(left, after) else {
            // The rest is what its containers stand on.
            journal.settle();
            return swept;
        };
        (swept.containers, swept.networks) = (containers, networks);
        journal.entries.engine = None;
    }
    journal.entries.mounts.retain(|place| {
        // One that is no mount any more is gone.
        let done = rustix::mount::unmount(Path::new(place), UnmountFlags::DETACH);
        swept.mounts += usize::from(done.is_ok());
        !matches!(done, Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT))
    });
    if journal.entries.mounts.is_empty() {
        let folder = journal.folder().join(docker::FOLDER);
        let there = folder.exists();
        docker::remove_folder(journal.folder());
        swept.folders = usize::from(there && !folder.exists());
    }
    let project = Path::new(&journal.entries.project);
    let made = journal.entries.placeholders.iter().filter(|entry| entry.made.is_some());
    let made = there(made.map(|entry| project.join(&entry.path).into_os_string()));
    placeholder::remove(ground, journal);
    swept.placeholders = gone(&made);
    let groups = there(journal.entries.groups.iter().cloned());
    journal.entries.groups = cgroup::remove(std::mem::take(&mut journal.entries.groups));
    swept.cgroups = gone(&groups);
    journal.settle();
    swept
}

/// Those of these paths where something is.
fn there(paths: impl Iterator<Item = OsString>) -> Vec<OsString> {
    paths.filter(|path| Path::new(path).symlink_metadata().is_ok()).collect()
}

/// How many of these are gone now.
fn gone(paths: &[OsString]) -> usize {
    paths.iter().filter(|path| Path::new(path).symlink_metadata().is_err()).count()
}
