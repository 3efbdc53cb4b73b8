//! Whether the names that a sandbox's mounts stand on still lead to what was mounted there.
//!
//! The kernel takes a mount away, in every other mount namespace, when the name that it is on is removed or
//! replaced by renaming: whoever does that outside, as `git config` does, uncovers what was masked, and
//! makes writable what was not. It cannot be kept from happening; it is seen, and ends the sandbox.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::placeholder;
use super::tree::Held;
use crate::error::{Result, Step as _};
use crate::{Rule, sys};

/// Watches the names on which the mounts of one sandbox stand.
#[derive(Debug)]
pub struct Guard {
    project: Held,
    held: Vec<(PathBuf, u64, u64)>,
    /// Readable when a name in one of the folders changed. Without it (a limit of this machine) somebody
    /// must look again and again.
    changes: Option<OwnedFd>,
}

impl Guard {
    /// Takes down what is there now: before it is mounted.
    ///
    /// # Errors
    /// [`crate::Error::Step`]: a path of a rule is gone already.
    pub(crate) fn new(project: &Held, rules: &[(PathBuf, Rule)]) -> Result<Self> {
        let project = Held {
            fd: project.fd.try_clone().step("hold the project")?,
            dev: project.dev,
            ino: project.ino,
            uid: project.uid,
            gid: project.gid,
            folder: project.folder,
        };
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        // Before the names are looked at, so that no change is missed.
        let mut changes = inotify::init(flags).ok();
        let paths: Vec<&Path> = rules
            .iter()
            .map(|(path, _)| path.as_path())
            .filter(|path| matters(rules, path))
            .collect();
        let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        for folder in folders {
            let watched = changes.as_ref().is_some_and(|changes| watch(changes, &project, folder));
            changes = changes.filter(|_| watched);
        }
        let mut held = Vec::new();
        for path in paths {
            let (dev, ino) =
                identity(&project, path).step(format!("look at {}", path.display()))?;
            held.push((path.to_owned(), dev, ino));
        }
        Ok(Self { project, held, changes })
    }

    /// A path of the project, relative to it, that does not lead any more to what was mounted on it: what was
    /// kept from the agent there is not.
    #[must_use]
    pub fn displaced(&self) -> Option<&Path> {
        let there = |path: &Path, dev, ino| identity(&self.project, path) == Ok((dev, ino));
        let gone = self.held.iter().find(|(path, dev, ino)| !there(path, *dev, *ino));
        gone.map(|(path, ..)| path.as_path())
    }

    /// Waits until a name changed beside one of them; for ever, where that cannot be heard.
    pub async fn disturbed(&self) {
        let Some(changes) = &self.changes else { return std::future::pending().await };
        let heard = changes.try_clone().and_then(sys::watch_readable);
        let Ok(heard) = heard else { return std::future::pending().await };
        if let Ok(mut ready) = heard.readable().await {
            ready.clear_ready();
        }
        // Whatever they are: the names are looked at.
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(changes, &mut buffer);
        while reader.next().is_ok() {}
    }
}

/// Whether a mount on this path is all that keeps something from the agent.
fn matters(rules: &[(PathBuf, Rule)], path: &Path) -> bool {
    if path.as_os_str().is_empty() {
        return false;
    }
    let of = |path: &Path| rules.iter().rev().find(|(place, _)| path.starts_with(place));
    let writable = |path: &Path| {
        of(path).is_some_and(|(_, rule)| matches!(rule, Rule::Writable | Rule::Pinned))
    };
    match of(path) {
        Some((_, Rule::Masked)) => true,
        Some((_, Rule::ReadOnly | Rule::Pinned)) => path.parent().is_some_and(writable),
        _ => false,
    }
}

fn identity(project: &Held, path: &Path) -> rustix::io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(placeholder::open(project, path)?)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn watch(changes: &OwnedFd, project: &Held, folder: &Path) -> bool {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(open) = placeholder::open(project, folder) else { return false };
    let flags = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    let path = format!("/proc/self/fd/{}", open.as_raw_fd());
    inotify::add_watch(changes, path, flags).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::Guard;
    use crate::Rule;
    use crate::ground::tree;

    fn rules(pairs: &[(&str, Rule)]) -> Vec<(PathBuf, Rule)> {
        pairs.iter().map(|(path, rule)| (PathBuf::from(path), *rule)).collect()
    }

    #[test]
    fn what_is_replaced_or_gone_is_seen_and_what_is_written_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        for file in ["a/config", "secret", "free"] {
            fs::write(at(file), "x").unwrap();
        }
        let project = tree::hold(&real).unwrap();
        let rules = rules(&[
            ("", Rule::Writable),
            ("a/config", Rule::ReadOnly),
            ("a/b", Rule::Pinned),
            ("secret", Rule::Masked),
        ]);
        let fresh = || Guard::new(&project, &rules).unwrap();
        let guard = fresh();
        fs::write(at("a/config"), "written in place").unwrap();
        fs::write(at("new"), "x").unwrap();
        fs::rename(at("new"), at("free")).unwrap();
        fs::write(at("a/b/c"), "x").unwrap();
        assert_eq!(guard.displaced(), None, "the control");
        for name in ["a/config", "secret"] {
            let guard = fresh();
            fs::write(at("new"), "x").unwrap();
            fs::rename(at("new"), at(name)).unwrap();
            assert_eq!(guard.displaced(), Some(name.as_ref()));
        }
        let guard = fresh();
        fs::remove_file(at("secret")).unwrap();
        assert_eq!(guard.displaced(), Some("secret".as_ref()));
        fs::write(at("secret"), "x").unwrap();
        // With its folder.
        let guard = fresh();
        fs::rename(at("a"), at("old")).unwrap();
        assert!(guard.displaced().is_some());
    }

    #[test]
    fn where_nothing_is_uncovered_nothing_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::write(real.join("file"), "x").unwrap();
        let project = tree::hold(&real).unwrap();
        let rules = rules(&[("", Rule::ReadOnly), ("file", Rule::ReadOnly)]);
        let guard = Guard::new(&project, &rules).unwrap();
        fs::remove_file(real.join("file")).unwrap();
        // Beneath it is a project that may not be written.
        assert_eq!(guard.displaced(), None);
    }

    #[tokio::test]
    async fn a_change_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::write(real.join("secret"), "x").unwrap();
        let project = tree::hold(&real).unwrap();
        let guard = Guard::new(&project, &rules(&[("secret", Rule::Masked)])).unwrap();
        fs::write(real.join("new"), "x").unwrap();
        fs::rename(real.join("new"), real.join("secret")).unwrap();
        guard.disturbed().await;
        assert!(guard.displaced().is_some());
    }
}
