//! Where the built program is, and whether it is the current one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Debian's Python: the one that is in `/usr`, and so in every sandbox.
pub const PYTHON: &str = "/usr/bin/python3";

/// The folder that holds the test binaries of this profile.
///
/// # Panics
/// When the suite was not started by Cargo.
pub(crate) fn built() -> PathBuf {
    let exe = std::env::current_exe().expect("a running program has a path");
    let deps = exe.parent().expect("a program is in a folder");
    if deps.ends_with("deps") {
        deps.parent().expect("deps is in a profile").to_owned()
    } else {
        deps.to_owned()
    }
}

/// The built `ringfence` of the profile that these tests were built with.
///
/// # Panics
/// When it is missing or older than its sources: `cargo xtask test` builds it first.
#[must_use]
pub fn program() -> PathBuf {
    let path = built().join("ringfence");
    let age = |p: &Path| fs::metadata(p).and_then(|m| m.modified());
    let Ok(made) = age(&path) else {
        panic!(
            "{} is not built: run `cargo build -p ringfence-cli` (`cargo xtask test` does)",
            path.display()
        );
    };
    // Cargo writes beside the program which files it was made of.
    let list = fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    for source in list.split_once(": ").map_or("", |(_, s)| s).split_whitespace() {
        if age(Path::new(source)).is_ok_and(|changed| changed > made) {
            panic!("{} is older than {source}: run `cargo build -p ringfence-cli`", path.display());
        }
    }
    path
}

/// The program at a place that every user can reach: as it is, or a copy in `folder`.
pub(crate) fn reachable(path: PathBuf, folder: &Path) -> PathBuf {
    let open = |p: &Path| fs::metadata(p).is_ok_and(|m| m.permissions().mode() & 0o001 != 0);
    if path.ancestors().all(open) {
        return path;
    }
    let copy = folder.join(path.file_name().expect("a program has a name"));
    fs::copy(&path, &copy).expect("the program can be copied");
    copy
}
