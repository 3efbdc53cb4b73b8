use std::fs;
use std::path::PathBuf;

use ringfence_bundle::{Objects, Snapshot};

use super::{Quarantine, Received};
use crate::archive::tests::Bundle;
use crate::{Error, Store};

struct Other {
    root: tempfile::TempDir,
    archive: PathBuf,
}

/// Another machine, with an archive of [`Bundle`].
fn other() -> Other {
    let root = tempfile::tempdir().expect("a temporary folder");
    let archive = root.path().join("a.ringfence.tar.zst");
    fs::write(&archive, Bundle::locked().packed()).expect("our own file");
    Other { root, archive }
}

impl Other {
    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }
}

#[test]
fn received_waits_and_moves_out_whole() {
    let other = other();
    let quarantine = Quarantine::of(&other.home());
    let received = quarantine.receive(&other.archive).expect("a good archive");
    assert_eq!((received.name(), received.version()), ("sample", "1.2.0"));
    let again = quarantine.receive(&other.archive).expect("twice is once");
    assert_eq!(again.id(), received.id());
    assert_eq!(quarantine.list().expect("readable").len(), 1);
    let into = other.root.path().join("new");
    let store = Store::of(&other.home());
    let target = received.release(&into, &store).expect("a new folder");
    let snapshot = Snapshot::read(&target).expect("a bundle");
    assert_eq!(snapshot.consent_digest(), received.snapshot().consent_digest());
    assert_eq!(snapshot.drift(&Objects::of(&other.home())).expect("readable"), []);
    assert!(!target.join("src").exists() && !target.join("store").exists());
    let twice = received.release(&into, &store);
    assert!(matches!(twice, Err(Error::Refused { .. })), "{twice:?}");
    assert_eq!(quarantine.discard(&received.id()[..8]).expect("there"), received.id());
    assert!(quarantine.list().expect("readable").is_empty());
    assert!(matches!(quarantine.open(received.id()), Err(Error::NoSuchArchive(_))));
}

#[test]
fn what_changed_in_quarantine_is_not_given_out() {
    let other = other();
    let quarantine = Quarantine::of(&other.home());
    let received = quarantine.receive(&other.archive).expect("a good archive");
    let folder = quarantine.root().join(received.id());
    quarantine.open(received.id()).expect("control");
    let skill = folder.join("bundle/.ringfence/skills/s/SKILL.md");
    let before = fs::read(&skill).expect("received");
    fs::write(&skill, "other\n").expect("our own file");
    let changed = quarantine.open(received.id());
    assert!(matches!(changed, Err(Error::Quarantine { .. })), "{changed:?}");
    let late = received.release(&other.root.path().join("new"), &Store::of(&other.home()));
    assert!(matches!(late, Err(Error::Quarantine { .. })), "{late:?}");
    assert!(!other.root.path().join("new").exists());
    fs::write(&skill, before).expect("our own file");
    quarantine.open(received.id()).expect("control");
    fs::write(folder.join("bundle/more"), "").expect("our own file");
    assert!(matches!(quarantine.open(received.id()), Err(Error::Quarantine { .. })));
    fs::remove_file(folder.join("bundle/more")).expect("our own file");
    fs::remove_file(&skill).expect("our own file");
    std::os::unix::fs::symlink("/etc/passwd", &skill).expect("our own link");
    assert!(matches!(quarantine.open(received.id()), Err(Error::Quarantine { .. })));
}

#[test]
fn what_a_killed_process_left_goes() {
    let other = other();
    let quarantine = Quarantine::of(&other.home());
    let left = quarantine.root().join(".new-abc/bundle");
    fs::create_dir_all(&left).expect("our own folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(quarantine.root(), mode).expect("our own folder");
    assert!(quarantine.list().expect("readable").is_empty());
    quarantine.receive(&other.archive).expect("a good archive");
    assert!(!left.exists());
}

#[test]
fn nothing_is_moved_over_or_beneath_what_is_not_there() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let home = root.path().join("home");
    Received::target(&home, &root.path().join("new")).expect("control");
    fs::write(root.path().join("file"), "").expect("our own file");
    std::os::unix::fs::symlink("nowhere", root.path().join("link")).expect("our own link");
    for bad in [".", "file", "link", "missing/new", "file/new", "new/.."] {
        let found = Received::target(&home, &root.path().join(bad));
        assert!(
            matches!(found, Err(Error::Refused { .. } | Error::Read { .. })),
            "{bad} {found:?}"
        );
    }
}
