//! Git repositories that came into being during a run. Nobody can be kept from making one in a folder
//! that may be written, and git does what its configuration says: so it is told.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_sandbox::{Mount, Rule};

/// Entries looked at before the search ends.
const MAX_ENTRIES: usize = 2_000_000;
/// Repositories named; the rest are counted.
const MAX_NAMED: usize = 5;

/// What to say about repositories that no mount has protected, if there are any: they were not there
/// when the run was planned.
pub(crate) fn repositories(project: &Path, mounts: &[Mount]) -> Option<String> {
    let found = search(project, mounts);
    let names: Vec<String> = found
        .iter()
        .take(MAX_NAMED)
        .map(|path| match path.to_string_lossy().escape_debug().to_string() {
            empty if empty.is_empty() => ".".to_owned(),
            name => name,
        })
        .collect();
    let more = if found.len() > MAX_NAMED { ", \u{2026}" } else { "" };
    (!found.is_empty()).then(|| {
        format!(
            "new git repositories ({}): {}{more}; look at their configuration and hooks before git \
             runs there",
            found.len(),
            names.join(", ")
        )
    })
}

fn search(project: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let held = |path: &Path| mounts.iter().any(|mount| mount.path == path);
    let open = mounts.iter().filter(|mount| mount.rule == Rule::Writable);
    let mut queue: Vec<PathBuf> = open.map(|mount| mount.path.clone()).collect();
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    while let Some(folder) = queue.pop() {
        let entries = fs::read_dir(project.join(&folder)).into_iter().flatten().flatten();
        let entries: Vec<_> = entries.take(left).collect();
        left -= entries.len();
        let has = |name: &str| entries.iter().any(|entry| entry.file_name() == name);
        let complete = has("objects") && has("refs") || has("commondir");
        if has("HEAD") && complete && !held(&folder.join("config")) {
            found.push(folder.clone());
        }
        for entry in entries {
            let path = folder.join(entry.file_name());
            if path.file_name() == Some(".git".as_ref()) {
                if !held(&path) {
                    found.push(path);
                }
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                queue.push(path);
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ringfence_sandbox::{Missing, Mount, Rule};

    use super::repositories;

    #[test]
    fn repositories_that_no_mount_held_are_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let mount =
            |path: &str, rule| Mount { path: PathBuf::from(path), rule, missing: Missing::Present };
        let mounts = [mount("w", Rule::Writable), mount("w/old/.git", Rule::Pinned)];
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
        make("w/old/.git");
        make("other/.git");
        assert_eq!(repositories(dir.path(), &mounts), None, "control: held, or not writable");
        make("w/new/.git");
        make("w/bare/objects");
        make("w/bare/refs");
        assert!(repositories(dir.path(), &mounts).unwrap().contains("(1): w/new/.git;"));
        std::fs::write(dir.path().join("w/bare/HEAD"), "").unwrap();
        let said = repositories(dir.path(), &mounts).unwrap();
        assert!(said.contains("(2): w/bare, w/new/.git;"), "{said}");
        std::fs::write(dir.path().join("w/\u{1b}[2J.git"), "").unwrap();
        make("w/\u{1b}x/.git");
        let said = repositories(dir.path(), &mounts).unwrap();
        assert!(said.contains("(3)") && !said.contains('\u{1b}'), "{said}");
    }
}
