use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Nearest, nearest, search};

/// A folder with a bundle in `project`, and `project/src/deep`.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a folder");
    let project = root.path().canonicalize().expect("ours").join("project");
    fs::create_dir_all(project.join("src/deep")).expect("ours");
    bundle(&project);
    (root, project)
}

fn bundle(folder: &Path) {
    fs::create_dir_all(folder.join(".ringfence")).expect("ours");
    fs::write(folder.join(".ringfence/ringfence.toml"), "version = 1\n").expect("ours");
}

#[test]
fn the_nearest_bundle_upwards_is_found() {
    let (_root, project) = tree();
    let deep = project.join("src/deep");
    assert_eq!(nearest(&project, None), Nearest::Here);
    assert_eq!(nearest(&deep, None), Nearest::Above(project.clone()));
    assert_eq!(nearest(&project.join(".ringfence"), None), Nearest::Above(project.clone()));
    bundle(&project.join("src"));
    assert_eq!(nearest(&deep, None), Nearest::Above(project.join("src")));
    bundle(&deep);
    assert_eq!(nearest(&deep, None), Nearest::Here);
}

#[test]
fn a_folder_without_a_manifest_is_no_bundle() {
    let (_root, project) = tree();
    fs::create_dir(project.join("src/.ringfence")).expect("ours");
    assert_eq!(nearest(&project.join("src/deep"), None), Nearest::Above(project.clone()));
    fs::remove_file(project.join(".ringfence/ringfence.toml")).expect("ours");
    assert_eq!(nearest(&project.join("src/deep"), None), Nearest::Here);
}

#[test]
fn a_repository_is_not_left() {
    let (_root, project) = tree();
    let deep = project.join("src/deep");
    fs::create_dir(project.join(".git")).expect("ours");
    assert_eq!(nearest(&deep, None), Nearest::Above(project.clone()), "its root counts");
    // A submodule and a linked work tree have a file.
    fs::write(project.join("src/.git"), "gitdir: elsewhere\n").expect("ours");
    assert_eq!(nearest(&deep, None), Nearest::Here);
    assert_eq!(nearest(&project.join("src"), None), Nearest::Here);
}

#[test]
fn the_home_folder_is_a_border() {
    let (_root, project) = tree();
    let deep = project.join("src/deep");
    assert_eq!(nearest(&deep, Some(&project)), Nearest::Here);
    assert_eq!(nearest(&deep, Some(&project.join("src"))), Nearest::Here);
    assert_eq!(nearest(&deep, Some(&deep)), Nearest::Here);
    let above = project.parent().expect("it has one");
    assert_eq!(nearest(&deep, Some(above)), Nearest::Above(project.clone()), "control");
}

#[test]
fn what_belongs_to_somebody_else_is_not_taken() {
    let (_root, project) = tree();
    let deep = project.join("src/deep");
    let own = fs::metadata(&project).expect("ours").uid();
    assert_eq!(search(&deep, None, own), Nearest::Above(project.clone()), "control");
    assert_eq!(search(&deep, None, own + 1), Nearest::Foreign(project.clone()));
    // Where one stands counts whoever owns it, as with `-C`.
    assert_eq!(search(&project, None, own + 1), Nearest::Here);
}
