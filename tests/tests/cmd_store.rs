//! `ringfence store`

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_tests::{Project, Who, each_user};
use rustix::process::Signal;

use crate::bundles::MIRROR;

/// A bundle with one of each kind that is pinned.
fn project(who: Who) -> Project {
    let project = Project::new(who);
    project.manifest(&format!(
        "{MIRROR}\n[skills.s]\npath = \"./skills/s\"\n[instructions.team]\npath = \"./team.md\"\n\
         [settings.claude-code]\nmodel = \"opus\"\n[hooks.fmt]\nevent = \"post_tool_use\"\n\
         command = \"cargo fmt\"\n[extensions.e]\npath = \"./e.ts\"\ntarget = \"pi\"\n\
         [workflows.w]\npath = \"./w.js\"\n"
    ));
    project.python();
    project.file(".ringfence/skills/s/SKILL.md", "# s\n");
    project.file(".ringfence/team.md", "Be kind.\n");
    project.file(".ringfence/e.ts", "e\n");
    project.file(".ringfence/w.js", "w\n");
    project
}

/// Folders of the store whose name begins with a mark.
fn marked(store: &Path, mark: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![store.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(mark) {
                found.push(entry.path());
            } else if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn everything_that_is_pinned_is_kept_listed_and_proved() {
    each_user(|who| {
        let project = project(who);
        let empty = project.ringfence(&["store", "list", "--json"]).ok().json();
        assert_eq!(empty["objects"], serde_json::json!([]));
        let lock = project.ringfence(&["lock", "--json"]).ok().json();
        let pins = lock["pins"].as_array().expect("pins");
        let list = project.ringfence(&["store", "list", "--json"]).ok().json();
        assert_eq!(list["version"], 1);
        let rows = list["objects"].as_array().expect("objects").clone();
        for pin in pins {
            let kept = |row: &&serde_json::Value| {
                row["kind"] == pin["kind"] && row["digest"] == pin["digest"]
            };
            assert_eq!(rows.iter().filter(kept).count(), 1, "{pin}");
        }
        // And the three files, under the digest that a person says yes to.
        assert_eq!(rows.len(), pins.len() + 1);
        assert!(rows.iter().any(|row| row["kind"] == "consent"));
        project.ringfence(&["store", "list"]).ok().done();
        let fine = project.ringfence(&["store", "verify", "--json"]).ok().json();
        assert_eq!(fine["damaged"], serde_json::json!([]));
        assert_eq!(fine["objects"], rows.len());
    });
}

#[test]
fn a_damaged_object_is_named_and_mended() {
    each_user(|who| {
        let project = project(who);
        project.lock();
        project.ringfence(&["store", "verify"]).ok().done();
        let list = project.ringfence(&["store", "list", "--json"]).ok().json();
        for row in list["objects"].as_array().expect("objects") {
            let content = Path::new(row["path"].as_str().expect("a path")).join("content");
            let file = match (content.join("SKILL.md"), content.join("lock")) {
                (skill, _) if skill.exists() => skill,
                (_, lock) if lock.exists() => lock,
                _ => content,
            };
            let bytes = fs::read(&file).expect("our own file");
            fs::write(&file, [b"x", bytes.as_slice()].concat()).expect("our own file");
            let digest = row["digest"].as_str().expect("a digest");
            let found = project.ringfence(&["store", "verify"]).expect(1);
            assert!(found.stdout.contains(digest), "{}", found.stdout);
            found.says(&["ringfence lock"]).done();
            let found = project.ringfence(&["store", "verify", "--json"]).expect(1).json();
            assert_eq!(found["damaged"].as_array().map(Vec::len), Some(1));
            project.lock();
            project.ringfence(&["store", "verify"]).ok().done();
        }
    });
}

#[test]
fn gc_keeps_what_trusted_projects_need() {
    each_user(|who| {
        let project = project(who);
        project.lock();
        project.trust();
        project.file(".ringfence/team.md", "Be kinder.\n");
        project.lock();
        project.file(".ringfence/team.md", "Be kindest.\n");
        project.lock();
        let count = || {
            let list = project.ringfence(&["store", "list", "--json"]).ok().json();
            list["objects"].as_array().expect("objects").len()
        };
        let before = count();
        // Of the last day: all stay.
        let young = project.ringfence(&["store", "gc", "--json"]).ok().json();
        assert_eq!(young["removed"], serde_json::json!([]));
        let dry = project.ringfence(&["store", "gc", "--now", "--dry-run", "--json"]).ok().json();
        assert_eq!(count(), before);
        project.ringfence(&["store", "gc", "--now", "--dry-run"]).ok().says(&["bytes"]).done();
        let gone = project.ringfence(&["store", "gc", "--now", "--json"]).ok().json();
        assert_eq!(gone["removed"], dry["removed"]);
        assert!(gone["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
        // The second lock's instructions, and its three files and those of the third.
        let removed = gone["removed"].as_array().expect("rows");
        let of = |kind: &str| removed.iter().filter(|row| row["kind"] == kind).count();
        assert_eq!((of("instruction"), of("consent"), removed.len()), (1, 2, 3), "{gone}");
        project.ringfence(&["store", "verify"]).ok().done();
        project.trust();
        project.run(&["true"]).ok().done();
        project.ringfence(&["trust", "--revoke"]).ok().done();
        project.ringfence(&["store", "gc", "--now"]).ok().done();
        assert_eq!(count(), 0);
        // What is not known to be needless stays.
        project.lock();
        project.state_file("trust.json", "{");
        project.ringfence(&["store", "gc", "--now"]).expect(3).says(&["trust.json"]).done();
        assert!(count() > 0);
    });
}

#[test]
fn killed_while_keeping_leaves_no_half_object() {
    each_user(|who| {
        let project = project(who);
        for n in 0..3000 {
            let path = project.path().join(format!(".ringfence/skills/s/f{n}"));
            fs::write(path, format!("{n}\n")).expect("our own file");
        }
        who.own(&project.path());
        let store = project.state().join("store");
        let mut started = project.start(&["lock"]);
        while marked(&store.join("skill"), ".new-").is_empty() {
            assert!(
                !started.ends_within(std::time::Duration::ZERO),
                "it ended before it could be killed"
            );
            std::thread::yield_now();
        }
        started.signal(Signal::KILL);
        assert_eq!(started.finish().status, 137);
        assert_eq!(
            marked(&store.join("skill"), ".new-").len(),
            1,
            "it was killed at another moment"
        );
        project.ringfence(&["store", "verify"]).ok().done();
        project.ringfence(&["store", "gc"]).ok().says(&["unfinished"]).done();
        assert_eq!(marked(&store, ".new-"), Vec::<PathBuf>::new());
        project.lock();
        project.ringfence(&["store", "verify"]).ok().done();
    });
}

#[test]
fn many_processes_keep_the_same_at_once() {
    each_user(|who| {
        let project = project(who);
        for n in 0..200 {
            let path = project.path().join(format!(".ringfence/skills/s/f{n}"));
            fs::write(path, format!("{n}\n")).expect("our own file");
        }
        who.own(&project.path());
        let all: Vec<_> = (0..4).map(|_| project.start(&["lock"])).collect();
        let collector = project.start(&["store", "gc"]);
        for started in all {
            let done = started.finish().ok();
            assert!(!done.stderr.contains("warning"), "{}", done.stderr);
        }
        collector.finish().ok().done();
        project.ringfence(&["store", "verify"]).ok().done();
        project.ringfence(&["lock", "--check"]).ok().done();
        assert_eq!(marked(&project.state().join("store"), ".new-"), Vec::<PathBuf>::new());
    });
}

#[test]
fn a_store_that_cannot_be_written_does_not_stop_the_lock() {
    each_user(|who| {
        let project = project(who);
        project.state_file("store", "not a folder");
        project.ringfence(&["lock"]).ok().says(&["warning", "not everything was kept"]).done();
        project.ringfence(&["lock", "--check"]).ok().done();
        fs::remove_file(project.state().join("store")).expect("our own file");
        let fine = project.ringfence(&["lock"]).ok();
        assert!(!fine.stderr.contains("warning"), "{}", fine.stderr);
    });
}
