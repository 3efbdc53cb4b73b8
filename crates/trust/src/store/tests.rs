use std::collections::BTreeMap;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use ringfence_bundle::{Lock, Objects, Snapshot, Whose};
use ringfence_record::{Event, MachineLog, VerifyOptions, read_machine, verify};

use super::{State, Store, TrustedBundle};
use crate::{Error, Review};

const MANIFEST: &str = "version = 1\n\n[instructions.team]\npath = \"./team.md\"\n";

pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) home: PathBuf,
    pub(crate) project: PathBuf,
    pub(crate) store: Store,
    pub(crate) log: MachineLog,
}

impl Scene {
    /// A locked project, not trusted yet.
    pub(crate) fn new() -> Self {
        Self::of(MANIFEST)
    }

    pub(crate) fn of(manifest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let project = folder.path().join("project");
        std::fs::create_dir_all(project.join(".ringfence")).unwrap();
        let project = project.canonicalize().unwrap();
        let log = MachineLog::of_machine(&home).unwrap();
        let store = Store::new(&home);
        let scene = Self { folder, home, project, store, log };
        scene.write("ringfence.toml", manifest);
        scene.write("team.md", "Be kind.\n");
        scene.lock();
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.project.join(".ringfence").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn lock(&self) {
        let snapshot = Snapshot::read_without_lock(&self.project).unwrap();
        self.write(
            "ringfence.lock",
            &Lock::compute(&snapshot, &Objects::of(Path::new("/nonexistent")), &BTreeMap::new())
                .unwrap()
                .render(),
        );
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::read(&self.project).unwrap()
    }

    pub(crate) fn grant(&self) -> Result<(), Error> {
        let review = self.store.review(self.snapshot(), None)?;
        self.store.grant(&review, &review.digest().to_string(), &self.log)
    }

    pub(crate) fn review(&self) -> Review {
        self.store.review(self.snapshot(), None).unwrap()
    }

    pub(crate) fn check(&self) -> Result<TrustedBundle, Error> {
        self.store.check(self.snapshot(), None, Whose::All)
    }

    pub(crate) fn state(&self) -> State {
        self.review().state()
    }

    pub(crate) fn trusted() -> (Self, TrustedBundle) {
        let scene = Self::new();
        scene.grant().unwrap();
        let bundle = scene.check().unwrap();
        (scene, bundle)
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        read_machine(&self.home)
            .unwrap()
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().event)
            .filter(|event| !matches!(event, Event::Commit { .. }))
            .collect()
    }
}

#[test]
fn untrusted_until_a_person_says_yes() {
    let scene = Scene::new();
    assert_eq!(scene.state(), State::Untrusted);
    assert!(matches!(scene.check(), Err(Error::Untrusted { project }) if project == scene.project));
    scene.grant().unwrap();
    assert_eq!(scene.state(), State::Trusted);
    let bundle = scene.check().unwrap();
    assert_eq!(bundle.consent(), scene.snapshot().consent_digest());
    assert!(scene.store.still(&bundle));
    assert_eq!(scene.store.grants().unwrap().len(), 1);
    let mode = scene.home.join("trust.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn one_byte_in_any_of_the_three_files_gates_anew() {
    for name in ["ringfence.toml", "ringfence.local.toml", "ringfence.lock"] {
        let (scene, bundle) = Scene::trusted();
        let before = std::fs::read_to_string(scene.path(name)).unwrap_or_default();
        scene.write(name, &format!("{before}# \n"));
        assert!(!scene.store.still(&bundle), "{name}");
        assert_eq!(scene.state(), State::Changed, "{name}");
        assert!(matches!(scene.check(), Err(Error::Changed { trusted, found, .. })
            if trusted == bundle.consent() && found != trusted));
        scene.grant().unwrap();
        assert_eq!(scene.state(), State::Trusted, "{name}");
        assert!(!scene.store.still(&bundle), "the old proof is of the old bytes");
    }
}

#[test]
fn a_pinned_file_that_changed_is_drift() {
    let (scene, _) = Scene::trusted();
    scene.write("team.md", "Be cruel.\n");
    assert_eq!(scene.state(), State::Changed);
    assert!(matches!(scene.check(), Err(Error::Drifted(drift)) if drift[0].name == "team"));
    assert!(matches!(scene.grant(), Err(Error::Drifted(_))));
    scene.lock();
    assert!(matches!(scene.check(), Err(Error::Changed { .. })));
    scene.grant().unwrap();
    scene.check().expect("locked and trusted anew");
}

#[test]
fn without_a_lock_nothing_is_granted() {
    let scene = Scene::new();
    std::fs::remove_file(scene.path("ringfence.lock")).unwrap();
    assert!(matches!(scene.grant(), Err(Error::Unlocked(_))));
    assert!(scene.events().is_empty(), "nothing was intended");
    assert!(matches!(scene.check(), Err(Error::Untrusted { .. })));
    scene.lock();
    scene.grant().expect("control");
}

#[test]
fn consent_to_other_bytes_is_no_consent() {
    let scene = Scene::new();
    let review = scene.review();
    let good = review.digest().to_string();
    let bundle = review.snapshot().consent_digest().to_string();
    for given in ["", "yes", &bundle, &good.to_uppercase(), &good[..good.len() - 1], "\u{1b}[2J"] {
        let error = scene.store.grant(&review, given, &scene.log).expect_err(given);
        assert!(matches!(&error, Error::WrongDigest { .. }));
        assert!(!error.to_string().contains('\u{1b}'));
    }
    assert!(scene.events().is_empty() && scene.store.grants().unwrap().is_empty());
    scene.store.grant(&review, &good, &scene.log).expect("control");
}

#[test]
fn every_change_is_told_before_and_after() {
    let (scene, bundle) = Scene::trusted();
    scene.grant().unwrap();
    assert!(scene.store.still(&bundle), "the same bytes were granted again");
    assert!(scene.store.revoke(&scene.project, &scene.log).unwrap());
    assert!(!scene.store.revoke(&scene.project, &scene.log).unwrap());
    assert!(!scene.store.still(&bundle));
    assert!(matches!(scene.check(), Err(Error::Untrusted { .. })));

    let events = scene.events();
    let mut told = Vec::new();
    for pair in events.chunks(2) {
        match pair {
            [
                Event::TrustIntended { action, project, consent, change, review },
                Event::TrustSettled { change: same, result },
            ] => {
                assert_eq!((change, result.as_str()), (same, "done"));
                assert_eq!(Path::new(project), scene.project);
                assert_eq!(*consent, bundle.consent().to_string());
                assert_eq!(*review, Some(scene.review().digest().to_string()));
                told.push(action.clone());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, ["grant", "regrant", "revoke"]);
    assert!(verify(&scene.home, &VerifyOptions::default()).unwrap().findings.is_empty());
}

#[test]
fn a_change_left_half_done_is_settled_by_what_the_store_holds() {
    let (scene, bundle) = Scene::trusted();
    let intend = |action: &str, consent: &str, change: &str| {
        let _receipt = scene
            .log
            .append(Event::TrustIntended {
                action: action.to_owned(),
                project: scene.project.to_str().unwrap().to_owned(),
                consent: consent.to_owned(),
                change: change.to_owned(),
                review: None,
            })
            .unwrap();
    };
    intend("regrant", &bundle.consent().to_string(), "a");
    intend("regrant", "sha256:00", "b");
    intend("revoke", &bundle.consent().to_string(), "c");
    assert!(!scene.store.revoke(Path::new("/nowhere"), &scene.log).unwrap());
    let settled: Vec<_> = scene
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::TrustSettled { change, result } => Some((change, result)),
            _ => None,
        })
        .skip(1)
        .collect();
    let expected = [("a", "done"), ("b", "failed"), ("c", "failed")];
    assert_eq!(settled, expected.map(|(change, result)| (change.to_owned(), result.to_owned())));
    let before = scene.events().len();
    assert!(!scene.store.revoke(Path::new("/nowhere"), &scene.log).unwrap());
    assert_eq!(scene.events().len(), before, "each is settled once");
}

#[test]
fn a_store_that_is_not_a_store_trusts_nothing_and_stays_as_it_is() {
    let (scene, bundle) = Scene::trusted();
    let path = scene.home.join("trust.json");
    let good = std::fs::read_to_string(&path).unwrap();
    let row = &good[good.find("\n    \"").unwrap()..good.rfind("\n  }").unwrap()];
    let cases = [
        String::new(),
        "{}".to_owned(),
        good.replace("\"version\": 2", "\"version\": 3"),
        good.replace("\"version\": 2", "\"version\": 1"),
        good.replace("\"version\": 2", "\"version\": 2, \"more\": 0"),
        good.replace("\"at\"", "\"when\""),
        good.replace("sha256:", "sha512:"),
        good.replace(row, &format!("{row},{row}")),
        good.clone() + "{}",
        good[..good.len() / 2].to_owned(),
        "[".repeat(100_000),
    ];
    for bad in cases {
        assert_ne!(bad, good, "the case changes something");
        std::fs::write(&path, &bad).unwrap();
        assert!(!scene.store.still(&bundle), "{bad:.200}");
        for result in [scene.check().map(drop), scene.grant(), scene.store.grants().map(drop)] {
            let error = result.expect_err("a store that does not parse");
            assert!(matches!(&error, Error::Store { path: named, .. } if *named == path));
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), bad, "nothing is overwritten");
    }
    std::fs::write(&path, &good).unwrap();
    assert!(scene.store.still(&bundle), "control");
    scene.check().expect("control");
}

#[test]
fn a_store_that_others_can_write_to_or_that_is_a_link_trusts_nothing() {
    let (scene, bundle) = Scene::trusted();
    let path = scene.home.join("trust.json");
    for mode in [0o620, 0o602, 0o666] {
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(!scene.store.still(&bundle));
        let error = scene.check().expect_err("writable by others");
        assert!(matches!(&error, Error::Store { .. }));
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    scene.check().expect("control");
    let aside = scene.home.join("aside.json");
    std::fs::rename(&path, &aside).unwrap();
    symlink(&aside, &path).unwrap();
    assert!(!scene.store.still(&bundle));
    assert!(matches!(scene.check(), Err(Error::Store { .. })));
}

#[test]
fn a_home_that_others_can_write_to_takes_no_grant_and_gives_no_proof() {
    let (scene, bundle) = Scene::trusted();
    set_permissions(&scene.home, Permissions::from_mode(0o777)).unwrap();
    assert!(!scene.store.still(&bundle));
    for result in [scene.grant(), scene.check().map(drop)] {
        let error = result.expect_err("anybody could put another trust.json there");
        assert!(error.to_string().contains("chmod 700"), "{error}");
    }
    set_permissions(&scene.home, Permissions::from_mode(0o700)).unwrap();
    scene.grant().expect("control");
    scene.check().expect("control");
}

#[test]
fn a_bundle_file_replaced_by_a_link_is_no_longer_the_trusted_one() {
    let (scene, bundle) = Scene::trusted();
    let path = scene.path("ringfence.toml");
    let aside = scene.path("aside.toml");
    std::fs::rename(&path, &aside).unwrap();
    symlink(&aside, &path).unwrap();
    assert!(!scene.store.still(&bundle), "same bytes, but through a link");
    std::fs::remove_file(&path).unwrap();
    assert!(!scene.store.still(&bundle), "gone");
    std::fs::rename(&aside, &path).unwrap();
    assert!(scene.store.still(&bundle), "control");
}

#[test]
fn another_projects_grant_does_not_end_this_proof() {
    let (scene, bundle) = Scene::trusted();
    let path = scene.home.join("trust.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let moved = text.replace(scene.project.to_str().unwrap(), "/elsewhere");
    let row =
        |text: &str| text[text.find("\n    \"").unwrap()..text.rfind("\n  }").unwrap()].to_owned();
    std::fs::write(&path, text.replace(&row(&text), &(row(&text) + "," + &row(&moved)))).unwrap();
    assert_eq!(scene.store.grants().unwrap().len(), 2);
    assert!(scene.store.still(&bundle));
    std::fs::write(&path, &moved).unwrap();
    assert!(!scene.store.still(&bundle), "only the other project is left");
}

#[test]
fn a_log_that_cannot_be_written_changes_no_trust() {
    let scene = Scene::new();
    let log = scene.home.join("log/machine.jsonl");
    std::fs::create_dir(&log).unwrap();
    assert!(matches!(scene.grant(), Err(Error::Record(_))));
    assert!(!scene.home.join("trust.json").exists());
    std::fs::remove_dir(&log).unwrap();
    scene.grant().expect("control");
}

#[test]
fn many_grants_at_once_all_count() {
    let scene = Scene::new();
    let projects: Vec<PathBuf> = (0..8)
        .map(|n| {
            let project = scene.home.join(format!("../p{n}"));
            std::fs::create_dir_all(project.join(".ringfence")).unwrap();
            std::fs::write(project.join(".ringfence/ringfence.toml"), "version = 1\n").unwrap();
            let snapshot = Snapshot::read_without_lock(&project).unwrap();
            let lock =
                Lock::compute(&snapshot, &Objects::of(Path::new("/nonexistent")), &BTreeMap::new())
                    .unwrap()
                    .render();
            std::fs::write(project.join(".ringfence/ringfence.lock"), lock).unwrap();
            project.canonicalize().unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for project in &projects {
            let scene = &scene;
            scope.spawn(move || {
                let snapshot = Snapshot::read(project).unwrap();
                let review = scene.store.review(snapshot, None).unwrap();
                scene.store.grant(&review, &review.digest().to_string(), &scene.log).unwrap();
            });
        }
    });
    let grants = scene.store.grants().unwrap();
    assert!(projects.iter().all(|project| grants.contains_key(project)));
    assert_eq!(scene.events().len(), 16);
    assert!(verify(&scene.home, &VerifyOptions::default()).unwrap().findings.is_empty());
}

/// A program of the machine, in a folder of its own.
fn machine_program(scene: &Scene, folder: &str, name: &str, text: &str) -> PathBuf {
    let folder = scene.folder.path().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    file.canonicalize().unwrap()
}

const SERVER: &str = "version = 1\n[sandbox]\ncommand = [\"true\"]\n[servers.s]\ntype = \"stdio\"\ncommand = \"tool\"\n";

#[test]
fn a_program_that_is_another_is_named_with_what_it_was() {
    let scene = Scene::of(SERVER);
    let first = machine_program(&scene, "one", "tool", "first");
    let (one, two) = (scene.folder.path().join("one"), scene.folder.path().join("two"));
    let path =
        |list: &[&Path]| std::env::join_paths(list.iter().chain([&Path::new("/usr/bin")])).unwrap();
    let search = path(&[&two, &one]);
    let review = || scene.store.review(scene.snapshot(), Some(&search)).unwrap();
    let check = |whose| scene.store.check(scene.snapshot(), Some(&search), whose);
    scene.store.grant(&review(), &review().digest().to_string(), &scene.log).unwrap();
    let bundle = check(Whose::All).expect("control");
    assert!(bundle.programs().iter().any(|program| program.path == first));
    let server = ringfence_bundle::Who::Server("s".to_owned());
    bundle.prove_program(&server, &first, Some(&search)).expect("control");

    // Other bytes, the same file.
    let before = review().digest();
    std::fs::write(&first, "other").unwrap();
    assert_ne!(review().digest(), before);
    assert_eq!(review().state(), State::Changed);
    for error in [
        check(Whose::All).map(drop).expect_err("swapped"),
        check(Whose::Servers).map(drop).expect_err("swapped"),
        bundle.prove_program(&server, &first, Some(&search)).expect_err("swapped"),
    ] {
        let Error::Programs(moved) = &error else { panic!("{error}") };
        let [moved] = &moved[..] else { panic!("{moved:?}") };
        assert_eq!(moved.before.as_ref().unwrap().path, first);
        assert_ne!(moved.before.as_ref().unwrap().digest, moved.now.as_ref().unwrap().digest);
        assert!(error.to_string().contains("server `s`: trusted "), "{error}");
    }
    std::fs::write(&first, "first").unwrap();
    check(Whose::All).expect("control");

    // Another that is found first.
    let second = machine_program(&scene, "two", "tool", "first");
    let error = check(Whose::All).expect_err("found first");
    assert!(matches!(&error, Error::Programs(moved)
        if moved[0].now.as_ref().unwrap().path == second));
    bundle.prove_program(&server, &first, Some(&search)).expect_err("found first");
    std::fs::remove_file(&second).unwrap();
    // The same, but a link to it: what starts is the file, which is the one that was trusted.
    symlink(&first, &second).unwrap();
    check(Whose::All).expect("the same file by a link");
    let other = machine_program(&scene, "three", "tool", "other");
    std::fs::remove_file(&second).unwrap();
    symlink(&other, &second).unwrap();
    assert!(matches!(check(Whose::All), Err(Error::Programs(_))), "the link leads elsewhere now");
    std::fs::remove_file(&second).unwrap();
    check(Whose::All).expect("control");
    bundle.prove_program(&server, &other, Some(&search)).expect_err("not the file that was proved");

    // Gone.
    std::fs::remove_file(&first).unwrap();
    assert!(matches!(check(Whose::All), Err(Error::Programs(moved)) if moved[0].now.is_none()));
}

#[test]
fn the_agents_program_is_not_judged_when_a_person_typed_another() {
    let scene = Scene::of("version = 1\n[sandbox]\ncommand = [\"tool\"]\n");
    let file = machine_program(&scene, "one", "tool", "first");
    let search = scene.folder.path().join("one").into_os_string();
    let review = scene.store.review(scene.snapshot(), Some(&search)).unwrap();
    scene.store.grant(&review, &review.digest().to_string(), &scene.log).unwrap();
    let check = |whose| scene.store.check(scene.snapshot(), Some(&search), whose);
    check(Whose::All).expect("control");
    std::fs::write(&file, "other").unwrap();
    assert!(matches!(check(Whose::All), Err(Error::Programs(_))));
    let bundle = check(Whose::Servers).expect("it is not started");
    assert!(bundle.programs().is_empty() && scene.store.still(&bundle));
}

#[test]
fn what_is_not_there_is_said_and_starts_nothing() {
    let scene = Scene::of(SERVER);
    let review = scene.store.review(scene.snapshot(), None).unwrap();
    assert_eq!(review.programs().missing.len(), 1, "{:?}", review.programs());
    assert!(review.card().lines().join("\n").contains("NOT FOUND on this machine\n  server s: "));
    scene.store.grant(&review, &review.digest().to_string(), &scene.log).unwrap();
    let check = || scene.store.check(scene.snapshot(), None, Whose::All);
    assert!(matches!(check(), Err(Error::Missing { .. })));
}

#[test]
fn a_yes_of_the_version_before_counts_as_changed() {
    let (scene, bundle) = Scene::trusted();
    let path = scene.home.join("trust.json");
    let good = std::fs::read_to_string(&path).unwrap();
    let old = good.replace("\"version\": 2", "\"version\": 1");
    let old = old.replace(",\n      \"programs\": []", "");
    assert!(!old.contains("programs"), "{old}");
    std::fs::write(&path, old).unwrap();
    assert_eq!(scene.state(), State::Changed);
    assert!(matches!(scene.check(), Err(Error::Unrecorded { .. })));
    assert!(!scene.store.still(&bundle));
    scene.grant().unwrap();
    scene.check().expect("asked anew");
}

#[test]
fn a_setting_that_drifted_warns_and_anything_else_refuses() {
    let manifest = format!("{MANIFEST}\n[settings.claude-code]\nmodel = \"opus\"\n");
    let scene = Scene::of(&manifest);
    scene.grant().unwrap();
    assert!(scene.check().unwrap().warnings().is_empty(), "control");
    scene.write("ringfence.toml", &manifest.replace("opus", "haiku"));
    assert!(matches!(scene.check(), Err(Error::Changed { .. })), "consent covers it first");
    scene.grant().expect("a yes to the new value, not locked anew");
    let bundle = scene.check().expect("it warns");
    assert_eq!(bundle.warnings()[0].name, "claude-code.model");
    scene.write("team.md", "Be cruel.\n");
    assert!(matches!(scene.check(), Err(Error::Drifted(drift)) if drift.len() == 1));
}
