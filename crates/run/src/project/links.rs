//! Files that must not be written, under another name that may be.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringfence_sandbox::{Mount, Rule};

use super::Rules;
use crate::Error;

/// Refuses a project in which a read-only file has a hard link that the agent could write through.
/// A mount protects a name, not the file.
///
/// # Errors
/// [`Error::Project`] with both names.
pub(super) fn check(rules: &Rules<'_>, mounts: &[Mount]) -> Result<(), Error> {
    let mut held = HashMap::new();
    for mount in mounts.iter().filter(|mount| mount.rule == Rule::ReadOnly) {
        files(rules.project, &mount.path, false, &mut |path, key| {
            held.entry(key).or_insert(path);
            Ok(())
        })?;
    }
    if held.is_empty() {
        return Ok(());
    }
    files(rules.project, Path::new(""), true, &mut |path, key| match held.get(&key) {
        Some(read_only) if may_be_written(mounts, &path) => Err(Error::Project {
            path: rules.project.join(read_only),
            reason: format!(
                "must not be writable, but the same file is {}, which is; make it a file of its own",
                path.display()
            ),
        }),
        _ => Ok(()),
    })
}

/// The deepest mount that holds a path decides.
fn may_be_written(mounts: &[Mount], path: &Path) -> bool {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.path))
        .max_by_key(|mount| mount.path.components().count())
        .is_some_and(|mount| matches!(mount.rule, Rule::Writable | Rule::Pinned))
}

/// All files below a path that have more than one name. Git's objects may be left out: it names them by
/// what they hold. An agent can call any folder so, and put the other name of a file there.
fn files(
    project: &Path,
    top: &Path,
    objects: bool,
    each: &mut impl FnMut(PathBuf, (u64, u64)) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut queue = vec![top.to_owned()];
    while let Some(path) = queue.pop() {
        let full = project.join(&path);
        // What is gone, or shut to us, the agent cannot write either.
        let Ok(meta) = full.symlink_metadata() else { continue };
        if meta.is_file() && meta.nlink() > 1 {
            each(path, (meta.dev(), meta.ino()))?;
        } else if meta.is_dir() && (objects || !path.ends_with("objects")) {
            let entries = fs::read_dir(&full).into_iter().flatten().flatten();
            queue.extend(entries.map(|entry| path.join(entry.file_name())));
        }
    }
    Ok(())
}
