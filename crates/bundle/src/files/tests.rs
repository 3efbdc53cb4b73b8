use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::{MAX_FILE, ReadError, open_root, read_file};
use crate::{Digest, Kind};

fn tree() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir_all(dir.path().join("s/sub")).expect("made");
    fs::write(dir.path().join("s/SKILL.md"), "text").expect("written");
    fs::write(dir.path().join("s/sub/run.sh"), "#!/bin/sh\n").expect("written");
    fs::write(dir.path().join("outside"), "secret").expect("written");
    dir
}

fn digest(dir: &Path) -> Result<Digest, ReadError> {
    super::digest(open_root(dir).expect("opened").as_fd(), "./s", Kind::Skill)
}

fn refusal(dir: &Path) -> String {
    match digest(dir) {
        Err(ReadError::Refused(reason)) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn a_tree_has_one_digest_wherever_it_lies() {
    assert_eq!(digest(tree().path()).expect("read"), digest(tree().path()).expect("read"));
}

#[test]
fn each_byte_name_and_mode_counts() {
    let dir = tree();
    let first = digest(dir.path()).expect("read");
    let script = dir.path().join("s/sub/run.sh");
    let changes: [(&str, &dyn Fn()); 4] = [
        ("bytes", &|| fs::write(&script, "#!/bin/sh\n\n").expect("written")),
        ("mode", &|| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("set")),
        ("a new file", &|| fs::write(dir.path().join("s/new"), "").expect("written")),
        ("a name", &|| fs::rename(&script, dir.path().join("s/sub/other.sh")).expect("renamed")),
    ];
    let mut seen = vec![first];
    for (what, change) in changes {
        change();
        let now = digest(dir.path()).expect("read");
        assert!(!seen.contains(&now), "{what}");
        seen.push(now);
    }
}

#[test]
fn nothing_but_files_and_folders_is_pinned() {
    type Make = fn(&Path);
    let cases: [(&str, Make); 6] = [
        ("symbolic link", |at| symlink("../outside", at).expect("linked")),
        ("symbolic link", |at| symlink("/etc", at).expect("linked")),
        ("symbolic link", |at| symlink("SKILL.md", at).expect("linked")),
        ("named pipe", |at| mknodat(CWD, at, FileType::Fifo, Mode::RUSR, 0).expect("made")),
        ("socket", |at| drop(UnixListener::bind(at).expect("bound"))),
        ("does not show", |at| fs::write(at.with_file_name("a\u{202e}b"), "").expect("written")),
    ];
    for (reason, make) in cases {
        let dir = tree();
        assert!(digest(dir.path()).is_ok(), "control");
        make(&dir.path().join("s/evil"));
        assert!(refusal(dir.path()).contains(reason), "{reason}: {}", refusal(dir.path()));
    }
}

#[test]
fn a_link_on_the_way_is_not_followed() {
    let dir = tree();
    fs::rename(dir.path().join("s"), dir.path().join("real")).expect("renamed");
    symlink("real", dir.path().join("s")).expect("linked");
    assert!(refusal(dir.path()).contains("symbolic link"));
    let root = open_root(dir.path()).expect("opened");
    let through = read_file(root.as_fd(), "s/SKILL.md", 100);
    assert!(matches!(through, Err(ReadError::Refused(_))), "{through:?}");
    assert_eq!(read_file(root.as_fd(), "real/SKILL.md", 100).expect("control"), b"text");
}

#[test]
fn nothing_outside_is_read() {
    let dir = tree();
    let root = open_root(&dir.path().join("s")).expect("opened");
    for path in ["../outside", "sub/../../outside", "/etc/passwd"] {
        let read = read_file(root.as_fd(), path, 100);
        assert!(matches!(read, Err(ReadError::Refused(_))), "{path}: {read:?}");
    }
    assert!(read_file(root.as_fd(), "sub/../SKILL.md", 100).is_ok(), "control");
}

#[test]
fn a_pipe_never_hangs_and_kinds_are_told_apart() {
    let dir = tree();
    mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("made");
    let root = open_root(dir.path()).expect("opened");
    for (path, reason) in [("pipe", "named pipe"), ("s", "folder")] {
        let Err(ReadError::Refused(found)) = read_file(root.as_fd(), path, 10) else {
            panic!("{path} was read")
        };
        assert!(found.contains(reason), "{found}");
    }
    assert!(matches!(read_file(root.as_fd(), "none", 10), Err(ReadError::Absent)));
    assert!(matches!(
        super::digest(root.as_fd(), "outside", Kind::Skill),
        Err(ReadError::Refused(_))
    ));
    let either = super::digest(root.as_fd(), "outside", Kind::Workflow).expect("a file");
    let blob = super::Blob { bytes: b"secret".to_vec(), executable: false };
    assert_eq!(either, super::file_digest("workflow", &blob));
}

#[test]
fn reads_are_bounded() {
    let dir = tree();
    let root = open_root(dir.path()).expect("opened");
    assert_eq!(read_file(root.as_fd(), "outside", 2).expect("read").len(), 3);
    let huge = fs::File::create(dir.path().join("s/huge")).expect("made");
    huge.set_len(MAX_FILE + 1).expect("sized");
    assert!(refusal(dir.path()).contains("too large"));
    huge.set_len(16).expect("sized");
    assert!(digest(dir.path()).is_ok());
    fs::create_dir_all(dir.path().join("s").join("d/".repeat(40))).expect("made");
    assert!(refusal(dir.path()).contains("deep"));
}

#[test]
fn an_empty_folder_pins_nothing() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(dir.path().join("s")).expect("made");
    assert!(refusal(dir.path()).contains("no file"));
}
