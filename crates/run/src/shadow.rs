//! Configurations in the project by which an agent program would find MCP servers that are not the gate's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fs, io};

use ringfence_sandbox::{Mount, Rule};

use crate::Error;

/// Folders that are looked into before a project is refused as too large to check.
const MAX_FOLDERS: usize = 1_000_000;

/// The first of `names` in any folder of the project that a program in the sandbox could see: programs look
/// from where they are started upwards. No symlink is followed: what it leads to in the project is looked at
/// by itself; one on the way to a name that leads elsewhere, or nowhere here, counts as one, since it may lead
/// to something inside. Git's own folder is left out.
///
/// # Errors
/// [`Error::Io`]: a folder cannot be looked into, so that nobody knows; [`Error::Project`]: there are more
/// than a million.
pub(crate) fn search(
    project: &Path,
    mounts: &[Mount],
    names: &[&str],
) -> Result<Option<PathBuf>, Error> {
    let mut by_first: BTreeMap<&OsStr, Vec<&Path>> = BTreeMap::new();
    for name in names.iter().map(Path::new) {
        if let Some(first) = name.iter().next() {
            by_first.entry(first).or_default().push(name);
        }
    }
    let mut folders = vec![PathBuf::new()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        seen += 1;
        if seen > MAX_FOLDERS {
            return Err(Error::Project {
                path: project.to_owned(),
                reason: "has too many folders to look for MCP configurations in".into(),
            });
        }
        let here = project.join(&folder);
        let failed = |source: io::Error| Error::Io { path: here.clone(), source };
        let entries = match fs::read_dir(&here) {
            Err(error) if is_gone(&error) => continue,
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            for file in by_first.get(name.as_os_str()).into_iter().flatten() {
                let path = folder.join(file);
                if is_there(project, &path)? && !is_masked(mounts, &path) {
                    return Ok(Some(path));
                }
            }
            let path = folder.join(&name);
            let is_folder = entry.file_type().map_err(failed)?.is_dir();
            // A masked folder is empty inside, but for what a later rule shows again.
            if is_folder && name != ".git" && !is_shut(mounts, &path) {
                folders.push(path);
            }
        }
    }
    Ok(None)
}

/// Gone meanwhile, or never there.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn is_there(project: &Path, path: &Path) -> Result<bool, Error> {
    let mut here = project.to_owned();
    for part in path {
        here.push(part);
        let failed = |source| Error::Io { path: here.clone(), source };
        match here.symlink_metadata() {
            Err(error) if is_gone(&error) => return Ok(false),
            Err(source) => return Err(failed(source)),
            Ok(found) if found.is_symlink() => match here.canonicalize() {
                Ok(real) if real.starts_with(project) => {}
                Ok(_) => return Ok(true),
                Err(error) if is_gone(&error) => return Ok(true),
                Err(source) => return Err(failed(source)),
            },
            Ok(_) => {}
        }
    }
    Ok(true)
}

/// Whether the last rule that says something of a path hides it: a later mount covers an earlier one.
fn is_masked(mounts: &[Mount], path: &Path) -> bool {
    let last = mounts.iter().rev().find(|mount| path.starts_with(&mount.path));
    last.is_some_and(|mount| mount.rule == Rule::Masked)
}

/// Whether nothing below a folder can be seen.
fn is_shut(mounts: &[Mount], folder: &Path) -> bool {
    is_masked(mounts, folder)
        && !mounts.iter().any(|mount| mount.path.starts_with(folder) && mount.rule != Rule::Masked)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use ringfence_sandbox::{Missing, Mount, Rule};

    use super::search;
    use crate::Error;

    const NAMES: [&str; 2] = [".mcp.json", ".tool/mcp.json"];

    fn mount(path: &str, rule: Rule) -> Mount {
        Mount { path: path.into(), rule, missing: Missing::Present }
    }

    fn found(project: &Path, mounts: &[Mount]) -> Option<PathBuf> {
        search(project, mounts, &NAMES).unwrap()
    }

    #[test]
    fn it_is_found_in_every_folder_and_where_it_can_be_seen() {
        let project = tempfile::tempdir().unwrap();
        let at = |path: &str| project.path().join(path);
        fs::create_dir_all(at("a/b/.tool")).unwrap();
        fs::create_dir_all(at(".git/x")).unwrap();
        fs::write(at(".git/x/.mcp.json"), "").unwrap();
        fs::write(at("mcp.json"), "").unwrap();
        assert_eq!(found(project.path(), &[]), None);
        let deep = Path::new("a/b/.tool/mcp.json");
        fs::write(project.path().join(deep), "").unwrap();
        assert_eq!(found(project.path(), &[]).as_deref(), Some(deep));
        for masked in ["a", "a/b/.tool", "a/b/.tool/mcp.json"] {
            let rules = [mount("", Rule::ReadOnly), mount(masked, Rule::Masked)];
            assert_eq!(found(project.path(), &rules), None, "{masked}");
            // What comes later holds.
            let rules = [rules[1].clone(), mount("a/b", Rule::ReadOnly)];
            let shown = found(project.path(), &rules);
            assert_eq!(shown.as_deref(), Some(deep), "{masked}");
        }
        // A link that leads nowhere may lead somewhere inside.
        symlink("nowhere", at(".mcp.json")).unwrap();
        assert_eq!(found(project.path(), &[]).as_deref(), Some(Path::new(".mcp.json")));
    }

    #[test]
    fn a_link_that_leads_out_or_nowhere_counts_as_one() {
        let (project, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let project = project.path().canonicalize().unwrap();
        let link = project.join(".tool");
        fs::create_dir(project.join("empty")).unwrap();
        symlink("empty", &link).unwrap();
        assert_eq!(found(&project, &[]), None, "the control: an empty folder of the project");
        for to in [Path::new("/opt/nowhere/at/all"), other.path()] {
            fs::remove_file(&link).unwrap();
            symlink(to, &link).unwrap();
            assert_eq!(
                found(&project, &[]).as_deref(),
                Some(Path::new(".tool/mcp.json")),
                "{to:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_missing() {
        let project = tempfile::tempdir().unwrap();
        assert_eq!(found(project.path(), &[]), None, "the control");
        // A link in a circle: whether anything is behind it cannot be told, for root neither.
        symlink(".tool", project.path().join(".tool")).unwrap();
        assert!(matches!(search(project.path(), &[], &NAMES), Err(Error::Io { .. })));
    }
}
