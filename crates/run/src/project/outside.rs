//! What is read outside the project: nothing denied, no socket, no path that is really another.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::Error;

/// Entries looked at before a path is refused as too large to check.
const MAX_ENTRIES: usize = 2_000_000;

/// Checks every path that a run may read outside the project. What lies there cannot be masked one
/// by one, so a denied path or a socket below it refuses the run, and so does one of the folders in
/// `never`, or what lies directly in it, under whatever name it is there: a bind mount, a hard link.
///
/// # Errors
/// [`Error::Project`].
pub(crate) fn check(
    paths: &[PathBuf],
    denied: &dyn Fn(&str, &str) -> bool,
    never: &[PathBuf],
) -> Result<(), Error> {
    let mut left = MAX_ENTRIES;
    let never = if paths.is_empty() { Ids::new() } else { ids(never) };
    for path in paths {
        let real =
            path.canonicalize().map_err(|source| Error::Io { path: path.clone(), source })?;
        if real != *path {
            return refuse(
                path,
                &format!("is really {}; name that in `policy.filesystem.read`", real.display()),
            );
        }
        let mut queue = vec![path.clone()];
        while let Some(path) = queue.pop() {
            left = left.checked_sub(1).ok_or_else(|| Error::Project {
                path: path.clone(),
                reason: "there is too much to read outside the project; name smaller folders"
                    .into(),
            })?;
            look(&path, denied, &never, &mut queue)?;
        }
    }
    Ok(())
}

/// Checks the denied paths outside the project, each with its rule: the folders of the system are
/// seen as they are in every sandbox, and nothing in them can be hidden.
///
/// # Errors
/// [`Error::Project`] for one that is there.
pub(crate) fn check_system(denied: &[(PathBuf, String)]) -> Result<(), Error> {
    for (path, rule) in denied {
        if ringfence_sandbox::native::is_system(path) && path.symlink_metadata().is_ok() {
            return refuse(
                path,
                &format!(
                    "is denied by {rule}, but every sandbox sees the system's folders; move it \
                     elsewhere, or take the rule away"
                ),
            );
        }
    }
    Ok(())
}

/// Device and inode.
type Ids = BTreeSet<(u64, u64)>;

/// The folders that are there, and what lies directly in them.
fn ids(folders: &[PathBuf]) -> Ids {
    let id = |path: &Path| path.symlink_metadata().map(|it| (it.dev(), it.ino())).ok();
    let below = |folder: &PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let all = folders.iter().flat_map(|folder| {
        std::iter::once(folder.clone()).chain(below(folder)).collect::<Vec<_>>()
    });
    all.filter_map(|path| id(&path)).collect()
}

fn look(
    path: &Path,
    denied: &dyn Fn(&str, &str) -> bool,
    never: &Ids,
    queue: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    if denied("", &path.to_string_lossy()) {
        return refuse(
            path,
            "is denied, but lies below a path that may be read; name smaller folders",
        );
    }
    let io = |source| Error::Io { path: path.to_owned(), source };
    let metadata = path.symlink_metadata().map_err(io)?;
    let kind = metadata.file_type();
    if never.contains(&(metadata.dev(), metadata.ino())) {
        return refuse(path, "is Ringfence's own state or a person's keys under another name");
    }
    if kind.is_socket() {
        return refuse(path, "is a socket below a path that may be read; name smaller folders");
    }
    if kind.is_dir() {
        match fs::read_dir(path) {
            Ok(entries) => {
                for entry in entries {
                    queue.push(entry.map_err(io)?.path());
                }
            }
            // The agent has no more rights than we.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(io(e)),
        }
    }
    Ok(())
}

fn refuse(path: &Path, reason: &str) -> Result<(), Error> {
    Err(Error::Project { path: path.to_owned(), reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::{check, check_system};

    #[test]
    fn links_denied_paths_and_sockets_refuse_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let tools = root.join("tools");
        std::fs::create_dir_all(tools.join("bin")).unwrap();
        std::fs::write(tools.join("bin/node"), "").unwrap();
        let paths = [tools.clone()];
        let none = |_: &str, _: &str| false;
        check(&paths, &none, &[]).unwrap();
        assert!(check(&paths, &|_, absolute| absolute.ends_with("/node"), &[]).is_err());
        std::os::unix::fs::symlink(&tools, root.join("link")).unwrap();
        assert!(check(&[root.join("link")], &none, &[]).is_err());
        let _socket = std::os::unix::net::UnixListener::bind(tools.join("s")).unwrap();
        assert!(check(&paths, &none, &[]).is_err());
    }
    #[test]
    fn the_machines_state_is_known_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (state, tools) = (root.join("state"), root.join("tools"));
        std::fs::create_dir_all(state.join("identities")).unwrap();
        std::fs::create_dir_all(tools.join("bin")).unwrap();
        std::fs::write(state.join("trust.json"), "{}").unwrap();
        let none = |_: &str, _: &str| false;
        let never = [state.clone(), root.join("missing")];
        check(std::slice::from_ref(&tools), &none, &never).unwrap();
        std::fs::hard_link(state.join("trust.json"), tools.join("bin/x")).unwrap();
        assert!(check(std::slice::from_ref(&tools), &none, &never).is_err());
        for path in [state.clone(), state.join("identities"), root.clone()] {
            assert!(check(std::slice::from_ref(&path), &none, &never).is_err(), "{path:?}");
        }
    }

    #[test]
    fn what_every_sandbox_sees_cannot_be_denied() {
        let denied = |path: &str| [(path.into(), "rule".to_owned())];
        check_system(&denied("/usr/no/such/file")).unwrap();
        check_system(&denied("/root")).unwrap();
        check_system(&denied("/usr-local/bin")).unwrap();
        for path in ["/usr/bin/env", "/usr", "/bin/sh", "/lib"] {
            assert!(check_system(&denied(path)).is_err(), "{path}");
        }
    }
}
