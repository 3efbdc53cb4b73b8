//! `ringfence receive`, and `ringfence trust --received`

use std::path::PathBuf;

use ringfence_tests::{Project, Who, each_user};
use serde_json::Value;

use crate::bundles::{give, share, shared};

/// A machine that was given an archive of another's, with the other's DID.
fn given(who: Who) -> (Project, PathBuf, String) {
    let sender = Project::new(who);
    shared(&sender);
    let (file, did) = share(&sender, "out");
    let receiver = Project::new(who);
    let file = give(&receiver, "in", &std::fs::read(file).expect("an archive"));
    (receiver, file, did)
}

fn receive(project: &Project, file: &std::path::Path) -> Value {
    project.ringfence(&["receive", &file.display().to_string(), "--json"]).ok().json()
}

#[test]
fn a_received_bundle_waits_inert_and_its_card_is_shown() {
    each_user(|who| {
        let (project, file, did) = given(who);
        let shown = project.ringfence(&["receive", &file.display().to_string()]).ok();
        let first = shown.stdout.lines().next().expect("a card");
        assert!(first.starts_with("UNKNOWN PUBLISHER") && first.contains(&did), "{first}");
        for word in ["tools/server.py", "cargo fmt", "opus", "sha256:"] {
            assert!(shown.stdout.contains(word), "{word} is not on the card:\n{}", shown.stdout);
        }
        shown.says(&["quarantine", "trust --received"]).done();
        project.ringfence(&["publisher", "add", "acme", &did]).ok().done();
        let known = project.ringfence(&["receive", &file.display().to_string()]).ok();
        assert!(known.stdout.starts_with("case 1.2.0, signed by acme"), "{}", known.stdout);
        let json = receive(&project, &file);
        assert_eq!((&json["publisher"], &json["did"]), (&"acme".into(), &did.as_str().into()));
        let list = project.ringfence(&["receive", "--list", "--json"]).ok().json();
        assert_eq!(list["quarantine"].as_array().map(Vec::len), Some(1), "twice is once");
        assert_eq!(list["quarantine"][0]["id"], json["id"]);
        // Receiving records no trust, and what waits is nobody's project.
        assert!(!project.state().join("trust.json").exists());
        let id = json["id"].as_str().expect("an id");
        let inside = project.state().join("quarantine").join(id).join("bundle");
        let program = project.program().display().to_string();
        let run = project.shell(&[&program, "-C", &inside.display().to_string(), "run", "true"]);
        assert!([2, 3].contains(&run.status), "{}: {}", run.status, run.stderr);
    });
}

#[test]
fn only_a_yes_to_its_digest_moves_it_out() {
    each_user(|who| {
        let (project, file, _) = given(who);
        let json = receive(&project, &file);
        let id = &json["id"].as_str().expect("an id")[..12];
        let digest = json["card"]["review_digest"].as_str().expect("a digest");
        let into = project.root().join("home/new").display().to_string();
        let trust = |more: &[&str]| {
            let mut words = vec!["trust", "--received", id, "--into", &into];
            words.extend(more);
            project.ringfence(&words)
        };
        // Nobody is at a terminal; another digest; no folder; a verb that is another's.
        let asked = trust(&[]).expect(1);
        asked.says(&["--yes --consented", digest, "UNKNOWN PUBLISHER"]).done();
        let other = format!("sha256:{}", "0".repeat(64));
        trust(&["--yes", "--consented", &other]).expect(3).done();
        trust(&["--revoke"]).expect(2).done();
        project.ringfence(&["trust", "--received", id]).expect(2).done();
        assert!(!std::path::Path::new(&into).exists());
        assert!(!project.state().join("trust.json").exists());
        trust(&["--yes", "--consented", digest]).ok().says(&["trusted"]).done();
        let program = project.program().display().to_string();
        let check = project.shell(&[&program, "-C", &into, "lock", "--check"]);
        check.ok().done();
        let state = project.shell(&[&program, "-C", &into, "trust", "--json"]).ok().json();
        assert_eq!(state["trusted"], true);
        // It is out of quarantine, and its trust is in the machine's log.
        let list = project.ringfence(&["receive", "--list", "--json"]).ok().json();
        assert_eq!(list["quarantine"].as_array().map(Vec::len), Some(0));
        trust(&["--yes", "--consented", digest]).expect(1).says(&["receive --list"]).done();
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn nothing_that_is_there_is_written_over() {
    each_user(|who| {
        let (project, file, _) = given(who);
        let json = receive(&project, &file);
        let id = json["id"].as_str().expect("an id");
        let digest = json["card"]["review_digest"].as_str().expect("a digest");
        project.file("file", "mine");
        project.file("folder/file", "mine");
        let link = project.path().join("link").display().to_string();
        project.shell(&["ln", "-s", "nowhere", &link]).ok().done();
        let before = project.picture(&project.path());
        for into in ["file", "folder", "link", "missing/new", "file/new", "."] {
            let into = project.path().join(into).display().to_string();
            let words =
                ["trust", "--received", id, "--into", &into, "--yes", "--consented", digest];
            project.ringfence(&words).expect(1).done();
            assert_eq!(project.picture(&project.path()), before, "{into}");
        }
        // Where its files would be something else: a hook, an object, part of a bundle.
        project.shell(&["mkdir", "-p", ".git", ".ringfence"]).ok().done();
        for into in [".git/hooks", ".ringfence/new", "../state/new", "../state/quarantine/new"] {
            let into = project.path().join(into).display().to_string();
            let words =
                ["trust", "--received", id, "--into", &into, "--yes", "--consented", digest];
            project.ringfence(&words).expect(1).says(&["lies in a folder of"]).done();
            assert!(!std::path::Path::new(&into).exists());
        }
        let into = project.path().join("new").display().to_string();
        let words = ["trust", "--received", id, "--into", &into, "--yes", "--consented", digest];
        project.ringfence(&words).ok().done();
    });
}

#[test]
fn what_was_touched_in_quarantine_does_not_come_out() {
    each_user(|who| {
        let (project, file, _) = given(who);
        let json = receive(&project, &file);
        let id = json["id"].as_str().expect("an id");
        let digest = json["card"]["review_digest"].as_str().expect("a digest");
        let skill = format!("quarantine/{id}/bundle/.ringfence/skills/s/SKILL.md");
        let good = std::fs::read(project.state().join(&skill)).expect("received");
        project.state_file(&skill, "# other\n");
        let into = project.home().join("new").display().to_string();
        let words = ["trust", "--received", id, "--into", &into, "--yes", "--consented", digest];
        project.ringfence(&words).expect(3).says(&["SKILL.md", "changed"]).done();
        assert!(!project.home().join("new").exists());
        project.state_file(&skill, good);
        project.ringfence(&words).ok().done();
    });
}

#[test]
fn a_received_bundle_can_be_discarded() {
    each_user(|who| {
        let (project, file, _) = given(who);
        let json = receive(&project, &file);
        let id = json["id"].as_str().expect("an id");
        project.ringfence(&["receive", "--discard", "ffff"]).expect(1).done();
        project.ringfence(&["receive", "--discard", &id[..3]]).expect(1).done();
        project.ringfence(&["receive", "--discard", "../runs"]).expect(1).done();
        project.ringfence(&["receive", "--discard", &id[..8]]).ok().done();
        project.ringfence(&["receive", "--discard", &id[..8]]).expect(1).done();
        assert_eq!(std::fs::read_dir(project.state().join("quarantine")).expect("it").count(), 0);
        project.ringfence(&["receive", "--list"]).ok().says(&["nothing"]).done();
        project.ringfence(&["receive"]).expect(2).done();
        project.ringfence(&["receive", "/dev/zero"]).expect(1).says(&["regular"]).done();
    });
}
