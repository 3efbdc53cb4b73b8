//! Reading the repository itself: its files, and the names of its tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The repository's folder.
///
/// # Panics
/// Never: the suite is a folder of it.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_owned()
}

/// Every `.rs` file below a folder, build output left out.
#[must_use]
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            all.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// The name that follows `fn`, if the line defines a function.
fn function(line: &str) -> Option<&str> {
    let rest = line.trim_start();
    let rest = rest.strip_prefix("pub ").unwrap_or(rest);
    let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Names of the test functions in a folder: those that follow an attribute that ends in `test` and,
/// inside `proptest!`, the same.
#[must_use]
pub fn test_functions(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in rust_files(folder) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let mut marked = false;
        for line in text.lines() {
            let line = line.trim();
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
            } else if let Some(name) = function(line) {
                if std::mem::take(&mut marked) {
                    names.insert(name.to_owned());
                }
            } else if !line.starts_with("#[") && !line.starts_with("//") && !line.is_empty() {
                marked = false;
            }
        }
    }
    names
}
