//! The rules for paths in the project, as mounts.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::root::{Root, attach, open_at, read_only};
use crate::Rule;
use crate::error::{Result, Step};
use crate::ground::tree::clone_tree;
use crate::inside::wire::Blueprint;
use crate::sys::{Attributes, mount_setattr};

/// Applies the rules in order. Returns the mounts that may be written.
///
/// # Errors
/// [`crate::Error::Step`]: a path is gone, a symlink is on the way, or the host has it mounted
/// read-only although it should be written.
pub(super) fn apply(root: &Root, blueprint: &Blueprint) -> Result<Vec<OwnedFd>> {
    let project = Path::new(&blueprint.project.path);
    let rules: Vec<(PathBuf, Rule)> =
        blueprint.rules.iter().map(|(path, rule)| (normal(Path::new(path)), *rule)).collect();
    let mut points: BTreeSet<PathBuf> = rules.iter().map(|(path, _)| path.clone()).collect();
    let mut writable = Vec::new();
    for (path, rule) in &rules {
        if matches!(rule, Rule::ReadOnly | Rule::Pinned | Rule::Masked) {
            for parent in parents(path) {
                // A parent that could be renamed away could be made anew without the rule.
                if points.insert(parent.clone()) {
                    place(root, project, &parent, None)?;
                }
            }
        }
        writable.extend(place(root, project, path, Some(*rule))?);
    }
    Ok(writable)
}

/// Without `.`: the project itself is the empty path.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|c| matches!(c, Component::Normal(_))).collect()
}

/// The folders between the project and a path, outermost first, both excluded.
fn parents(path: &Path) -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = path
        .ancestors()
        .skip(1)
        .filter(|parent| !parent.as_os_str().is_empty())
        .map(Path::to_path_buf)
        .collect();
    list.reverse();
    list
}

/// Mounts one path over itself. Without a rule it stays as it is, but cannot be renamed.
fn place(root: &Root, project: &Path, path: &Path, rule: Option<Rule>) -> Result<Option<OwnedFd>> {
    let step = || format!("mount {} in the project", path.display());
    // Opened anew each time: an earlier rule may have been mounted over it.
    let folder = root.open(project).step(step())?;
    let target = open_at(&folder, path).step(step())?;
    if rule == Some(Rule::Masked) {
        let stat = rustix::fs::fstat(&target).step(step())?;
        root.mask(&target, FileType::from_raw_mode(stat.st_mode).is_dir())?;
        return Ok(None);
    }
    let tree = clone_tree(target.as_fd()).step(step())?;
    match rule {
        Some(Rule::ReadOnly) => read_only(&tree).step(step())?,
        Some(Rule::Writable | Rule::Pinned) => {
            // Only this mount: what the host has mounted beneath it stays read-only.
            let attributes = Attributes {
                clear: libc::MOUNT_ATTR_RDONLY,
                private: true,
                ..Attributes::default()
            };
            mount_setattr(&tree, attributes).step_hint(step(), |error| {
                (error.raw_os_error() == Some(libc::EPERM))
                    .then(|| "the host has it mounted read-only".into())
            })?;
        }
        Some(Rule::Masked) | None => {}
    }
    attach(&tree, &target).step(step())?;
    Ok(matches!(rule, Some(Rule::Writable | Rule::Pinned)).then_some(tree))
}
