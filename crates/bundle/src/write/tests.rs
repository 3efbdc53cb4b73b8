use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{write_first, write_lock};
use crate::{Error, Snapshot};

fn names(folder: &Path) -> Vec<String> {
    let read = fs::read_dir(folder.join(".ringfence")).expect("a folder");
    let mut names: Vec<String> = read
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

#[test]
fn the_first_manifest_is_written_once() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = write_first(dir.path(), "version = 1\n").expect("written");
    assert_eq!(fs::read_to_string(&path).expect("read"), "version = 1\n");
    assert_eq!(names(dir.path()), [".gitignore", "ringfence.toml"]);
    fs::remove_file(dir.path().join(".ringfence/.gitignore")).expect("removed");
    let error = write_first(dir.path(), "other").expect_err("there is one");
    assert!(matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists));
    assert_eq!(names(dir.path()), ["ringfence.toml"], "nothing is changed");
    assert_eq!(fs::read_to_string(&path).expect("read"), "version = 1\n");
}

#[test]
fn a_link_in_place_of_a_file_is_replaced_or_refused_but_never_followed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let outside = dir.path().join("outside");
    fs::create_dir(dir.path().join(".ringfence")).expect("made");
    symlink(&outside, dir.path().join(".ringfence/ringfence.toml")).expect("linked");
    assert!(write_first(dir.path(), "text").is_err());
    fs::remove_file(dir.path().join(".ringfence/ringfence.toml")).expect("removed");
    write_first(dir.path(), "version = 1\n").expect("control");
    let snapshot = Snapshot::read(dir.path()).expect("read");
    symlink(&outside, dir.path().join(".ringfence/ringfence.lock")).expect("linked");
    write_lock(&snapshot, "version = 1\n").expect("written");
    assert!(!outside.exists());
    let lock = dir.path().join(".ringfence/ringfence.lock");
    assert!(lock.symlink_metadata().expect("there").is_file());
    fs::rename(dir.path().join(".ringfence"), dir.path().join("real")).expect("moved");
    symlink("real", dir.path().join(".ringfence")).expect("linked");
    assert!(write_lock(&snapshot, "other").is_err(), "nor the folder");
}

#[test]
fn what_a_killed_writer_left_goes_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    write_first(dir.path(), "version = 1\n").expect("written");
    let folder = dir.path().join(".ringfence");
    for name in ["ringfence.lock.17.new", "ringfence.toml.4.new", "ringfence.lock.new", "a.1.new"] {
        fs::write(folder.join(name), "half").expect("written");
    }
    let snapshot = Snapshot::read(dir.path()).expect("read");
    write_lock(&snapshot, "version = 1\n").expect("written");
    assert_eq!(
        names(dir.path()),
        [".gitignore", "a.1.new", "ringfence.lock", "ringfence.lock.new", "ringfence.toml"]
    );
}

#[test]
fn two_who_set_at_once_do_not_undo_each_other() {
    use crate::{Layer, write_layer};
    let dir = tempfile::tempdir().expect("a temporary folder");
    write_first(dir.path(), "version = 1\n").expect("written");
    for nth in 0..20 {
        let before = Snapshot::read(dir.path()).expect("read");
        let set = |who| {
            let text = format!("version = 1\n# {who} {nth}\n");
            write_layer(&before, Layer::Manifest, &text).is_ok()
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| set("one"));
            (set("other"), one.join().expect("no panic"))
        });
        assert!(one != other, "one writes, and the other is told: {one} {other}");
    }
}

#[test]
fn who_keeps_the_folder_locked_stops_nobody() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    write_first(dir.path(), "version = 1\n").expect("written");
    let snapshot = Snapshot::read(dir.path()).expect("read");
    let folder = dir.path().join(".ringfence");
    fs::write(folder.join("ringfence.lock.17.new"), "half").expect("written");
    let held = fs::File::open(&folder).expect("opened");
    held.lock().expect("locked");
    write_lock(&snapshot, "version = 1\n").expect("written all the same");
    assert!(folder.join("ringfence.lock.17.new").exists(), "it may be somebody's");
    drop(held);
    write_lock(&snapshot, "version = 1\n").expect("written");
    assert!(!folder.join("ringfence.lock.17.new").exists(), "control");
}
