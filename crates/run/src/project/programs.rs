//! Which paths of a project must not be written, so that a file a server runs stays what it is.

use std::path::{Component, Path, PathBuf};

/// A file that a server runs, where it lies in the project: relative to it, and both a link and what
/// it leads to.
pub(crate) fn programs(project: &Path, file: &Path) -> Vec<PathBuf> {
    let real = file.canonicalize().ok();
    let paths = [Some(file.to_owned()), real].into_iter().flatten();
    let mut found: Vec<PathBuf> = paths.filter_map(|path| within(project, &path)).collect();
    found.sort();
    found.dedup();
    found
}

/// The path relative to the project, or the first link on the way to it.
fn within(project: &Path, path: &Path) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for component in path.strip_prefix(project).ok()?.components() {
        match component {
            Component::Normal(name) => relative.push(name),
            Component::CurDir => continue,
            // Where it leads is found by the path that is real.
            _ => return None,
        }
        if project.join(&relative).is_symlink() {
            break;
        }
    }
    (!relative.as_os_str().is_empty()).then_some(relative)
}
