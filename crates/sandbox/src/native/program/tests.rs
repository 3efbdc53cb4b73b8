use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{Program, resolve};
use crate::Error;

const SEARCH: &str = "/usr/bin:/bin";

fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_system_program_needs_nothing() {
    let program = resolve(Path::new("/bin/sh"), &[], OsStr::new(SEARCH)).unwrap();
    assert_eq!(program, Program { file: None, links: Vec::new() });
}

#[test]
fn a_chain_of_links_is_recreated_and_the_file_mounted() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("versions")).unwrap();
    let file = script(&root.join("versions"), "1", "#!/bin/sh\n");
    symlink("versions/1", root.join("current")).unwrap();
    symlink(root.join("current"), root.join("agent")).unwrap();
    let program = resolve(&root.join("agent"), &[], OsStr::new(SEARCH)).unwrap();
    assert_eq!(program.file, Some(file));
    let places: Vec<_> = program.links.iter().map(|(place, _)| place.clone()).collect();
    assert_eq!(places, [root.join("agent"), root.join("current")]);
}

#[test]
fn a_granted_folder_is_visible() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let file = script(&root, "agent", "#!/bin/sh\n");
    let program = resolve(&file, &[&root], OsStr::new(SEARCH)).unwrap();
    assert_eq!(program.file, None);
}

#[test]
fn an_interpreter_that_is_not_visible_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let hidden = script(&root, "interpreter", "#!/bin/sh\n");
    let direct = script(&root, "direct", &format!("#!{}\n", hidden.display()));
    let by_env = script(&root, "by-env", "#!/usr/bin/env no-such-interpreter\n");
    for program in [direct, by_env] {
        let error = resolve(&program, &[], OsStr::new(SEARCH)).unwrap_err();
        assert!(matches!(error, Error::Spec(ref text) if text.contains("interpreter")), "{error}");
    }
    let fine = script(&root, "fine", "#!/usr/bin/env sh\n");
    assert!(resolve(&fine, &[], OsStr::new(SEARCH)).is_ok());
}

#[test]
fn what_cannot_be_executed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::write(root.join("plain"), "x").unwrap();
    symlink("loop", root.join("loop")).unwrap();
    for name in ["plain", "missing", "loop", "."] {
        assert!(resolve(&root.join(name), &[], OsStr::new(SEARCH)).is_err(), "{name}");
    }
}
