use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use ringfence_bundle::{Blob, Content, Kind, Lock, Objects, Snapshot};

use super::{Needed, State, Store, needed};
use crate::Error;

fn blob(text: &str, executable: bool) -> Blob {
    Blob { bytes: text.into(), executable }
}

fn many(count: usize) -> BTreeMap<String, Blob> {
    (0..count).map(|n| (format!("d{}/f{n}", n % 7), blob(&n.to_string(), n % 5 == 0))).collect()
}

#[test]
fn what_is_kept_is_given_back_with_its_digest() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::of(home.path());
    let tree: BTreeMap<_, _> =
        [("SKILL.md".to_owned(), blob("a", false)), ("bin/run".to_owned(), blob("b", true))].into();
    let digest = store.deposit_tree(Kind::Skill, &tree).unwrap();
    assert_eq!(store.deposit_tree(Kind::Skill, &tree).unwrap(), digest);
    let read = store.objects().read(Kind::Skill, &digest).unwrap();
    assert_eq!(read, Some(Content::Tree(tree)));
    let digest = store.deposit_definition(Kind::Server, b"{}").unwrap();
    assert_eq!(store.objects().proved(Kind::Server, &digest).unwrap(), Some(digest));
    let digest = store.deposit_file(Kind::Instruction, &blob("x", false)).unwrap();
    assert_eq!(
        store.objects().read(Kind::Instruction, &digest).unwrap(),
        Some(Content::File(blob("x", false)))
    );
    // An address of another kind holds nothing.
    assert_eq!(store.objects().read(Kind::Program, &digest).unwrap(), None);
    let tree = many(50);
    let digest = store.deposit_tree(Kind::Skill, &tree).unwrap();
    assert_eq!(store.objects().read(Kind::Skill, &digest).unwrap(), Some(Content::Tree(tree)));
}

#[test]
fn a_damaged_object_is_never_given_back_and_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::of(home.path());
    let digest = store.deposit_file(Kind::Instruction, &blob("right", false)).unwrap();
    let state = || store.prove(&store.list().unwrap()[0]);
    assert_eq!(state(), State::Whole);
    let place = store.objects().place(Kind::Instruction, &digest).join("content");
    for damage in 0..4 {
        fs::remove_file(&place).unwrap();
        match damage {
            0 => fs::write(&place, "wrong").unwrap(),
            1 => std::os::unix::fs::symlink("/etc/passwd", &place).unwrap(),
            2 => {}
            _ => {
                fs::create_dir(&place).unwrap();
                fs::write(place.join("x"), "right").unwrap();
            }
        }
        let read = store.objects().read(Kind::Instruction, &digest);
        assert!(!matches!(read, Ok(Some(_))), "{damage}: {read:?}");
        assert!(matches!(state(), State::Damaged(_)), "{damage}");
        store.deposit_file(Kind::Instruction, &blob("right", false)).unwrap();
        assert!(store.objects().read(Kind::Instruction, &digest).unwrap().is_some());
        assert_eq!(state(), State::Whole);
    }
}

#[test]
fn many_that_keep_and_take_away_at_once_leave_nothing_half() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::of(home.path());
    let tree = many(40);
    let digest = Content::Tree(tree.clone()).digest(Kind::Skill);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..10 {
                        assert_eq!(store.deposit_tree(Kind::Skill, &tree).unwrap(), digest);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.gc(&Needed::default(), true, false, &|_, _| {}).unwrap();
            }
        });
        scope.spawn(|| {
            let reader = Objects::of(home.path());
            while !done.load(Ordering::Relaxed) {
                // Whole, or not there; a folder that goes while it is read may give an error, and
                // never other bytes.
                if let Ok(Some(found)) = reader.proved(Kind::Skill, &digest) {
                    assert_eq!(found, digest);
                }
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    store.deposit_tree(Kind::Skill, &tree).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    assert_eq!(store.prove(&store.list().unwrap()[0]), State::Whole);
    let gone = store.gc(&Needed::default(), false, true, &|_, _| {}).unwrap();
    assert_eq!((gone.leftovers, gone.kept), (0, 1));
}

fn bundle(project: &Path) -> Snapshot {
    let folder = project.join(".ringfence");
    fs::create_dir_all(folder.join("skills/s")).unwrap();
    fs::write(folder.join("skills/s/SKILL.md"), "# s\n").unwrap();
    fs::write(folder.join("team.md"), "Be kind.\n").unwrap();
    fs::write(project.join("server.py"), "print()\n").unwrap();
    fs::write(
        folder.join("ringfence.toml"),
        "version = 1\n[skills.s]\npath = \"./skills/s\"\n\
         [instructions.team]\npath = \"./team.md\"\n[settings.claude-code]\nmodel = \"opus\"\n\
         [servers.a]\ntype = \"stdio\"\ncommand = \"python3\"\nargs = [\"server.py\"]\n",
    )
    .unwrap();
    Snapshot::read(project).unwrap()
}

fn lock(snapshot: &Snapshot, store: &Store) -> Lock {
    Lock::compute(snapshot, store.objects(), &BTreeMap::new()).unwrap()
}

#[test]
fn every_pin_of_a_bundle_has_its_bytes_and_so_have_the_three_files() {
    let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::of(home.path());
    let snapshot = bundle(project.path());
    let lock = lock(&snapshot, &store);
    let text = lock.render();
    let kept = store.keep(&snapshot, &lock, text.as_bytes()).unwrap();
    assert_eq!(kept.pins, lock.pins.len());
    for pin in &lock.pins {
        assert!(store.objects().read(pin.kind, &pin.digest).unwrap().is_some(), "{pin:?}");
    }
    ringfence_bundle::write_lock(&snapshot, &text).unwrap();
    let consent = Snapshot::read(project.path()).unwrap().consent_digest();
    assert_eq!(kept.consent, consent);
    let three = store.approved(&consent).unwrap().unwrap();
    assert_eq!(three, (snapshot.manifest_bytes.clone(), None, Some(text.into_bytes())));
    let other = ringfence_bundle::consent_of(b"x", None, None);
    assert_eq!(store.approved(&other).unwrap(), None);
    let place = store.approved_place(&consent).join("content/manifest");
    fs::write(place, "version = 1\n").unwrap();
    assert!(store.approved(&consent).is_err());
    store.keep(&snapshot, &lock, three.2.as_deref().unwrap()).unwrap();
    assert!(store.approved(&consent).unwrap().is_some());
    // Absent and empty differ.
    let empty = (three.0.clone(), Some(Vec::new()), three.2.clone());
    let digest = store.deposit_three(&empty).unwrap();
    assert_ne!(digest, consent);
    assert_eq!(store.approved(&digest).unwrap(), Some(empty));
}

#[test]
fn a_file_that_changed_since_it_was_pinned_is_not_kept() {
    let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::of(home.path());
    let snapshot = bundle(project.path());
    let lock = lock(&snapshot, &store);
    fs::write(project.path().join(".ringfence/team.md"), "Be unkind.\n").unwrap();
    let error = store.keep(&snapshot, &lock, b"").unwrap_err();
    assert!(
        matches!(&error, Error::Moved { path, expected, found }
            if path.ends_with(".ringfence/team.md") && expected != found),
        "{error}"
    );
}

#[test]
fn what_trusted_projects_need_stays_and_the_rest_goes() {
    let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::of(home.path());
    let snapshot = bundle(project.path());
    let first = lock(&snapshot, &store);
    let approved = store.keep(&snapshot, &first, first.render().as_bytes()).unwrap().consent;
    // Locked anew and not yet approved.
    fs::write(project.path().join(".ringfence/team.md"), "Be kinder.\n").unwrap();
    let second = lock(&snapshot, &store);
    store.keep(&snapshot, &second, second.render().as_bytes()).unwrap();
    ringfence_bundle::write_lock(&snapshot, &second.render()).unwrap();
    let stray = store.deposit_file(Kind::Workflow, &blob("stray", false)).unwrap();
    let half = store.objects().root().join("skill/.new-x");
    fs::create_dir_all(&half).unwrap();
    fs::write(half.join("half"), "12345").unwrap();

    let needs = needed(&store, [(project.path().to_owned(), approved)]).unwrap();
    let nothing = |_, _| {};
    // Young ones stay.
    let gone = store.gc(&needs, false, true, &nothing).unwrap();
    assert_eq!((gone.objects.len(), gone.leftovers, gone.bytes), (0, 1, 5));
    let before = store.list().unwrap().len();
    let dry = store.gc(&needs, true, true, &nothing).unwrap();
    assert_eq!(store.list().unwrap().len(), before, "a dry run took something away");
    assert!(half.exists());
    let gone = store.gc(&needs, true, false, &nothing).unwrap();
    assert_eq!(gone, dry);
    // The stray one, and the second lock's three files, which nobody approved.
    assert_eq!(gone.objects.len(), 2, "{gone:?}");
    assert!(gone.objects.iter().any(|it| it.digest == stray));
    assert!(!half.exists());
    for pin in first.pins.iter().chain(&second.pins) {
        assert!(store.objects().read(pin.kind, &pin.digest).unwrap().is_some());
    }
    // Old ones go without being asked, unless they are needed or were asked for again.
    let old = SystemTime::now() - Duration::from_secs(3 * 24 * 60 * 60);
    for object in store.list().unwrap() {
        fs::File::open(&object.place).unwrap().set_modified(old).unwrap();
    }
    store.deposit_definition(Kind::Hook, b"{}").unwrap();
    let gone = store.gc(&Needed::default(), false, false, &nothing).unwrap();
    assert_eq!(gone.kept, 1);
    // A lock that cannot be read: what it needs is not known.
    fs::write(project.path().join(".ringfence/ringfence.lock"), "<<<<<<< ours\n").unwrap();
    assert!(needed(&store, [(project.path().to_owned(), approved)]).is_err());
}
