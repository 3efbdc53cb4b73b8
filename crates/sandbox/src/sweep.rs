//! Taking away what a run left, by the files in its folder.

use std::path::Path;

use rustix::mount::UnmountFlags;

use crate::docker;
use crate::error::Result;
use crate::ground::journal::Journal;
use crate::ground::placeholder::{self, Ground};
use crate::native::cgroup;

/// Puts back what a run left: containers and networks, mounts, placeholders, cgroups. The caller says which
/// run folders are dead. What another live run stands on stays, and stays written down; so does what is in
/// an engine that does not answer.
///
/// # Errors
/// [`crate::Error::Step`]: the folder cannot be read.
pub fn sweep(run_dir: &Path) -> Result<()> {
    for mut journal in Journal::left_in(run_dir)? {
        clean(&mut journal, None, After::End);
    }
    Ok(())
}

/// The same after a crash: what the run had asked an engine for may still be made by it, and is waited
/// for.
///
/// # Errors
/// As [`sweep`].
pub fn sweep_after_crash(dead_run_dir: &Path) -> Result<()> {
    for mut journal in Journal::left_in(dead_run_dir)? {
        clean(&mut journal, None, After::Crash);
    }
    Ok(())
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
pub(crate) fn clean(journal: &mut Journal, ground: Option<&Ground>, after: After) {
    if let Some(left) = &journal.entries.engine {
        if docker::remove(left, after).is_err() {
            // The rest is what its containers stand on.
            journal.settle();
            return;
        }
        journal.entries.engine = None;
    }
    journal.entries.mounts.retain(|place| {
        // One that is no mount any more is gone.
        let done = rustix::mount::unmount(Path::new(place), UnmountFlags::DETACH);
        !matches!(done, Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT))
    });
    if journal.entries.mounts.is_empty() {
        docker::remove_folder(journal.folder());
    }
    placeholder::remove(ground, journal);
    journal.entries.groups = cgroup::remove(std::mem::take(&mut journal.entries.groups));
    journal.settle();
}
