//! Which files of a project a server runs.

use std::path::{Component, Path, PathBuf};

/// Names that an interpreter runs, whatever their mode.
const CODE: [&str; 15] = [
    "bash", "cjs", "jar", "js", "jsx", "lua", "mjs", "php", "pl", "ps1", "py", "rb", "sh", "ts",
    "wasm",
];

/// The program of a server and what its arguments name that looks like code, where they lie in the
/// project: relative to it, and both a link and what it leads to. Whoever may write these decides
/// what runs with the server's secrets and hosts. What they load in turn is not known here.
pub(crate) fn programs<'a>(
    project: &Path,
    file: &Path,
    args: impl IntoIterator<Item = &'a str>,
) -> Vec<PathBuf> {
    let value = |arg: &'a str| match arg.split_once('=') {
        Some((_, value)) if arg.starts_with('-') => value,
        _ => arg,
    };
    let named = args.into_iter().map(|arg| project.join(value(arg))).filter(|path| is_code(path));
    let mut found = Vec::new();
    for path in std::iter::once(file.to_owned()).chain(named) {
        let real = path.canonicalize().ok();
        for path in [Some(path), real].into_iter().flatten() {
            found.extend(within(project, &path));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn is_code(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let named = path.extension().and_then(|name| name.to_str());
    let named = named.is_some_and(|name| CODE.contains(&name.to_ascii_lowercase().as_str()));
    path.metadata().is_ok_and(|m| m.is_file() && (named || m.permissions().mode() & 0o111 != 0))
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
