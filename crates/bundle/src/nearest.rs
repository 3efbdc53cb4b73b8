//! The project that a person means who stands in one of its folders.

use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::snapshot::{FOLDER, MANIFEST};

#[cfg(test)]
mod tests;

/// What was found from a folder upwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nearest {
    /// A bundle in the folder itself, or none at all.
    Here,
    /// The nearest bundle is in this folder.
    Above(PathBuf),
    /// The nearest bundle is in this folder, and it is not this user's: somebody else may have put it
    /// there, so it is not taken.
    Foreign(PathBuf),
}

/// Looks for a bundle from a folder (absolute, without links) upwards. The search ends at the root of
/// a git repository, at the border of a file system, and below the home folder, whose `.ringfence` is
/// the machine's. Above the folder itself a bundle counts only when the project folder, `.ringfence`
/// and the manifest all belong to the user who asks.
#[must_use]
pub fn nearest(start: &Path, home: Option<&Path>) -> Nearest {
    search(start, home, rustix::process::geteuid().as_raw())
}

fn search(start: &Path, home: Option<&Path>, user: u32) -> Nearest {
    let there = |path: &Path| symlink_metadata(path).ok();
    let manifest = |folder: &Path| folder.join(FOLDER).join(MANIFEST);
    if there(&manifest(start)).is_some() {
        return Nearest::Here;
    }
    let Some(device) = there(start).map(|start| start.dev()) else { return Nearest::Here };
    let mut below = start;
    for folder in start.ancestors().skip(1) {
        let border = there(&below.join(".git")).is_some()
            || Some(below) == home
            || Some(folder) == home
            || there(folder).is_none_or(|it| it.dev() != device);
        if border {
            return Nearest::Here;
        }
        if there(&manifest(folder)).is_some() {
            let parts = [folder.to_owned(), folder.join(FOLDER), manifest(folder)];
            let own = parts.iter().all(|part| there(part).is_some_and(|it| it.uid() == user));
            let folder = folder.to_owned();
            return if own { Nearest::Above(folder) } else { Nearest::Foreign(folder) };
        }
        below = folder;
    }
    Nearest::Here
}
