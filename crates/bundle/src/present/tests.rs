use std::fs;
use std::path::Path;

use crate::{Severity, Snapshot};

const MANIFEST: &str = "version = 1\n\
                        [skills.s]\n\
                        path = \"./skills/s\"\n\
                        [instructions.i]\n\
                        path = \"./i.md\"\n\
                        [extensions.e]\n\
                        path = \"./e\"\n\
                        target = \"pi\"\n\
                        [skills.far]\n\
                        library = \"far\"\n";

fn project() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join(".ringfence");
    fs::create_dir_all(folder.join("skills/s")).expect("ours");
    fs::write(folder.join("ringfence.toml"), MANIFEST).expect("ours");
    fs::write(folder.join("skills/s/SKILL.md"), "# s\n").expect("ours");
    fs::write(folder.join("i.md"), "Be kind.\n").expect("ours");
    fs::write(folder.join("e"), "export {}\n").expect("ours");
    root
}

/// `file:line:rule` of each finding.
fn brief(project: &Path) -> Vec<String> {
    let snapshot = Snapshot::read_without_lock(project).expect("it parses");
    let findings = snapshot.check_paths().expect("the folder is there");
    let at = |f: &crate::Diagnostic| f.at.clone().expect("a place");
    findings.iter().map(|f| format!("{}:{}:{}", at(f).file.display(), at(f).line, f.rule)).collect()
}

#[test]
fn what_is_there_in_its_kind_is_no_finding() {
    let root = project();
    assert_eq!(brief(root.path()), [] as [&str; 0]);
    // An extension is a file or a folder.
    let e = root.path().join(".ringfence/e");
    fs::remove_file(&e).expect("ours");
    fs::create_dir(&e).expect("ours");
    fs::write(e.join("index.ts"), "export {}\n").expect("ours");
    assert_eq!(brief(root.path()), [] as [&str; 0]);
}

#[test]
fn each_path_is_found_by_file_and_line() {
    let root = project();
    let folder = root.path().join(".ringfence");
    fs::remove_dir_all(folder.join("skills/s")).expect("ours");
    assert_eq!(brief(root.path()), [".ringfence/ringfence.toml:3:missing-file"]);
    fs::write(folder.join("skills/s"), "a file\n").expect("ours");
    assert_eq!(brief(root.path()), [".ringfence/ringfence.toml:3:unpinnable"]);
    fs::remove_file(folder.join("i.md")).expect("ours");
    fs::create_dir(folder.join("i.md")).expect("ours");
    fs::remove_file(folder.join("e")).expect("ours");
    std::os::unix::fs::symlink("/etc/hostname", folder.join("e")).expect("ours");
    assert_eq!(
        brief(root.path()),
        [
            ".ringfence/ringfence.toml:3:unpinnable",
            ".ringfence/ringfence.toml:5:unpinnable",
            ".ringfence/ringfence.toml:7:unpinnable"
        ]
    );
}

#[test]
fn a_skill_without_its_file_is_a_warning() {
    let root = project();
    let skill = root.path().join(".ringfence/skills/s");
    fs::rename(skill.join("SKILL.md"), skill.join("skill.md")).expect("ours");
    assert_eq!(brief(root.path()), [".ringfence/ringfence.toml:3:no-skill-file"]);
    let snapshot = Snapshot::read_without_lock(root.path()).expect("it parses");
    let found = snapshot.check_paths().expect("the folder is there");
    assert_eq!(found[0].severity, Severity::Warning);
    assert_eq!(found[0].help.as_deref(), Some("write .ringfence/skills/s/SKILL.md"));
}

#[test]
fn text_that_does_not_show_is_found_where_it_stands() {
    let root = project();
    fs::write(root.path().join(".ringfence/i.md"), "a\nb\u{202e}c\n").expect("ours");
    assert_eq!(brief(root.path()), [".ringfence/i.md:2:hidden-text"]);
}
