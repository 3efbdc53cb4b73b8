use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::hash::{hash_with, within_size};
use super::list::at_most;
use super::{MAX_FILE, ReadError, content, open_root, read_file};
use crate::objects::Content;
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
    let huge = File::create(dir.path().join("s/huge")).expect("made");
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

#[test]
fn a_tree_read_whole_has_the_same_digest() {
    let dir = tree();
    let root = open_root(dir.path()).expect("opened");
    let read = content(root.as_fd(), "s").expect("read");
    assert_eq!(digest(dir.path()).expect("read"), read.digest(Kind::Skill));
    let Content::Tree(files) = read else { panic!("a folder") };
    assert_eq!(files.keys().collect::<Vec<_>>(), ["SKILL.md", "sub/run.sh"]);
}

#[test]
fn many_are_digested_at_once_and_each_has_its_own_answer() {
    let dir = tree();
    for nth in 0..300 {
        let at = dir.path().join(format!("many/{}/{nth}.md", nth % 7));
        fs::create_dir_all(at.parent().expect("a parent")).expect("made");
        fs::write(at, format!("file {nth} {}", "x".repeat(nth * 41))).expect("written");
    }
    let root = open_root(dir.path()).expect("opened");
    let ask = |path| super::Ask { root: root.as_fd(), path, kind: Kind::Workflow };
    let asks = [ask("s"), ask("none"), ask("many"), ask("outside"), ask("s/SKILL.md"), ask("many")];
    let one = |path| super::digest(root.as_fd(), path, Kind::Workflow).expect("read");
    for _ in 0..4 {
        let mut found = super::digests(&asks).into_iter();
        let mut next = || found.next().expect("an answer");
        assert_eq!(next().expect("read"), one("s"));
        assert!(matches!(next(), Err(ReadError::Absent)));
        let many = next().expect("read");
        assert_eq!(many, one("many"));
        assert_eq!(next().expect("read"), one("outside"));
        assert_eq!(next().expect("read"), one("s/SKILL.md"));
        assert_eq!(next().expect("read"), many);
    }
    // Whatever the order in which they are read, the first bad one is named.
    for nth in [3, 10, 17] {
        fs::write(dir.path().join(format!("many/3/{nth}.md")), "a\u{202e}b").expect("written");
    }
    for _ in 0..4 {
        let Err(ReadError::Hidden(finding)) = &super::digests(&asks)[2] else { panic!("refused") };
        assert_eq!(finding.path, "3/10.md");
        assert!(super::digests(&asks)[0].is_ok(), "another tree is not touched by that");
    }
}

#[test]
fn hidden_text_is_placed() {
    let dir = tree();
    let long = format!("# fine\nline é two {}", "x".repeat(300_000));
    fs::write(dir.path().join("s/SKILL.md"), format!("{long}\nab\u{e0041}cd\nrest"))
        .expect("written");
    let Err(ReadError::Hidden(finding)) = digest(dir.path()) else { panic!("refused") };
    assert_eq!((finding.path.as_str(), finding.line, finding.column), ("SKILL.md", 3, 3));
    assert_eq!(finding.text, "ab\u{fffd}cd");
    assert!(finding.to_string().contains("U+E0041"), "{finding}");
    assert!(finding.to_string().contains("`ab<U+E0041>cd`"), "{finding}");
    fs::write(dir.path().join("s/SKILL.md"), long.replace("two", "✔️")).expect("written");
    assert!(digest(dir.path()).is_ok(), "control");
    // Files of the project that servers run are code of any kind, and not judged.
    fs::write(dir.path().join("outside"), "a\u{200b}").expect("written");
    let root = open_root(dir.path()).expect("opened");
    assert!(super::digest(root.as_fd(), "outside", Kind::Program).is_ok());
    assert!(super::digest(root.as_fd(), "outside", Kind::Extension).is_err());
    fs::write(dir.path().join("outside"), b"caf\xe9").expect("written");
    assert!(super::digest(root.as_fd(), "outside", Kind::Extension).is_ok());
    assert!(super::digest(root.as_fd(), "outside", Kind::Instruction).is_err());
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("f");
    let root = open_root(dir.path()).expect("opened");
    let body = vec![b'x'; 600_000];
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let open = || fs::OpenOptions::new().write(true).open(&path).expect("opened");
    let changes: [(&str, &dyn Fn()); 6] = [
        ("grows", &|| {
            fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .expect("opened")
                .write_all(b"y")
                .expect("written");
        }),
        ("shrinks", &|| open().set_len(10).expect("cut")),
        ("is emptied", &|| open().set_len(0).expect("cut")),
        ("other bytes", &|| open().write_all(b"y").expect("written")),
        ("other bytes under the old time", &|| {
            let mut file = open();
            file.write_all(b"y").expect("written");
            file.set_modified(old).expect("set");
        }),
        ("another mode", &|| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        }),
    ];
    for (what, change) in changes {
        fs::write(&path, &body).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        open().set_modified(old).expect("set");
        let mut pieces = 0;
        let read = hash_with(root.as_fd(), "f", |_| {
            pieces += 1;
            if pieces == 2 {
                change();
            }
        });
        assert!(matches!(read, Err(ReadError::Changed)), "{what}: {read:?}");
        assert!(hash_with(root.as_fd(), "f", |_| {}).is_ok(), "control");
    }
}

#[test]
fn names_that_are_one_elsewhere_refuse_the_tree() {
    for (one, other) in [("README.md", "readme.md"), ("caf\u{e9}", "cafe\u{301}"), ("x", "X")] {
        let dir = tree();
        fs::write(dir.path().join("s/sub").join(one), "").expect("written");
        assert!(digest(dir.path()).is_ok(), "control");
        fs::create_dir(dir.path().join("s/sub").join(other)).expect("made");
        let refusal = refusal(dir.path());
        assert!(refusal.contains(one) && refusal.contains(other), "{refusal}");
    }
    let dir = tree();
    fs::write(dir.path().join("s/x"), "").expect("written");
    fs::write(dir.path().join("s/sub/X"), "").expect("written");
    assert!(digest(dir.path()).is_ok(), "in two folders they are two");
}

#[test]
fn a_repository_inside_is_not_pinned() {
    for name in [".git", ".GIT"] {
        let dir = tree();
        fs::create_dir(dir.path().join("s/sub").join(name)).expect("made");
        assert!(refusal(dir.path()).contains("repository"));
    }
    let dir = tree();
    fs::write(dir.path().join("s/.gitignore"), "x").expect("written");
    assert!(digest(dir.path()).is_ok(), "control");
}

#[test]
fn trees_are_bounded() {
    let dir = tree();
    let root = open_root(dir.path()).expect("opened");
    let within = |most| {
        let ask = super::Ask { root: root.as_fd(), path: "s", kind: Kind::Skill };
        within_size(&[ask], most).pop().expect("an answer")
    };
    // Of the two files, `text` and `#!/bin/sh` with its line end.
    assert!(within(14).is_ok(), "control");
    let refused = within(13).expect_err("one byte more");
    assert!(refused.to_string().contains("1 GiB"), "{refused}");
    let top = open_root(&dir.path().join("s")).expect("opened");
    assert_eq!(at_most(top.as_fd(), 3).expect("control"), ["SKILL.md", "sub/run.sh"]);
    let top = open_root(&dir.path().join("s")).expect("opened");
    let refused = at_most(top.as_fd(), 2).expect_err("one entry more");
    assert!(refused.to_string().contains("100,000"), "{refused}");
}
