//! `ringfence trust`

use ringfence_tests::{Project, each_user};

use crate::bundles::MIRROR;

#[test]
fn the_preview_shows_all_that_can_run_and_changes_nothing() {
    each_user(|who| {
        let project = Project::new(who);
        let manifest = MIRROR.replace(
            "[servers.mirror]",
            "[sandbox]\ncredentials = [\"SOME_TOKEN\"]\n[sandbox.network]\nallowed_hosts = [\"api.example.com\"]\n\n[servers.mirror]",
        );
        project.manifest(&manifest);
        project.lock();
        let before = project.picture(project.root());
        let shown = project.ringfence(&["trust", "--preview"]).ok();
        for word in
            ["/usr/bin/python3", "mirror.py", "api.example.com", "SOME_TOKEN", "raw", "sha256:"]
        {
            assert!(shown.stdout.contains(word), "{word} is not shown:\n{}", shown.stdout);
        }
        let digest = project.preview();
        assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
        let after = project.picture(project.root());
        let state = project.state();
        let outside = |p: &std::path::Path| !p.starts_with(&state);
        let keep = |map: std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>| {
            map.into_iter().filter(|(p, _)| outside(p)).collect::<Vec<_>>()
        };
        assert_eq!(keep(after), keep(before));
        assert!(!state.join("trust.json").exists(), "a preview is not a yes");
    });
}

#[test]
fn only_the_digest_that_was_shown_is_consent() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        let digest = project.preview();
        project.ringfence(&["trust", "--yes"]).expect(2).done();
        let wrong = format!("sha256:{}", "0".repeat(64));
        for other in [wrong.as_str(), "", "sha256:", &digest[..70], &digest.to_uppercase()] {
            let output = project.ringfence(&["trust", "--yes", "--consented", other]);
            assert!(
                [1, 2, 3].contains(&output.status),
                "{other:?}: {} {}",
                output.status,
                output.stderr
            );
            project.run(&["true"]).expect(3).done();
        }
        // A byte changed between the look and the yes.
        project.manifest(&format!("{MIRROR}\n# one more\n"));
        let late = project.ringfence(&["trust", "--yes", "--consented", &digest]);
        assert_ne!(late.status, 0);
        project.manifest(MIRROR);
        project.ringfence(&["trust", "--yes", "--consented", &digest]).ok().done();
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn without_a_terminal_nobody_says_yes() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.lock();
        let output = project.ringfence(&["trust"]);
        assert_ne!(output.status, 0, "{}", output.stdout);
        output.says(&["--consented"]).done();
        project.run(&["true"]).expect(3).done();
    });
}

#[test]
fn consent_is_listed_recorded_and_taken_back() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        let path = project.path().display().to_string();
        assert!(project.ringfence(&["trust", "--list"]).ok().stdout.contains(&path));
        project.run(&["true"]).ok().done();
        project.ringfence(&["trust", "--revoke"]).ok().done();
        assert!(!project.ringfence(&["trust", "--list"]).ok().stdout.contains(&path));
        project.run(&["true"]).expect(3).done();
        let log = std::fs::read_to_string(project.state().join("log/machine.jsonl"))
            .expect("the machine's log");
        let events = ringfence_tests::Events::from_lines(&log);
        for action in ["grant", "revoke"] {
            let intent = events.has("trust_intended", &[("action", action)]);
            let change = ringfence_tests::field(intent, "change");
            events.has("trust_settled", &[("change", &change), ("result", "done")]);
        }
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn a_broken_store_trusts_nothing() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        project.run(&["true"]).ok().done();
        let good = std::fs::read(project.state().join("trust.json")).expect("the store");
        for bad in [&b""[..], b"{", b"[]", b"null", &good[..good.len() / 2], b"\xff\xfe"] {
            project.state_file("trust.json", bad);
            let output = project.run(&["true"]);
            assert!([1, 3].contains(&output.status), "{}: {}", output.status, output.stderr);
            output.says(&["trust.json"]).done();
            assert_eq!(std::fs::read(project.state().join("trust.json")).expect("the store"), bad);
        }
        project.state_file("trust.json", good);
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn with_json_stdout_is_one_value() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.lock();
        // Nobody is at a terminal: the review goes where people read, the error is the value.
        let asked = project.ringfence(&["trust", "--json"]).expect(1);
        assert!(asked.json()["error"]["next"].as_str().is_some_and(|next| next.contains("--yes")));
        let digest = project.preview();
        let yes = project.ringfence(&["trust", "--yes", "--consented", &digest, "--json"]).ok();
        assert_eq!(yes.json()["trusted"], true);
        let again = project.ringfence(&["trust", "--json"]).ok();
        assert_eq!(again.json()["review_digest"], digest.as_str());
        let back = project.ringfence(&["trust", "--revoke", "--json"]).ok();
        assert_eq!(back.json()["was_trusted"], true);
    });
}

#[test]
fn consent_to_a_project_that_is_gone_can_be_taken_back() {
    each_user(|who| {
        let project = Project::ready(who, MIRROR);
        std::fs::rename(project.path(), project.root().join("moved")).expect("our own folder");
        let back = project.ringfence(&["trust", "--revoke", "--json"]).ok();
        assert_eq!(back.json()["was_trusted"], true);
        let list = project.ringfence(&["trust", "--list", "--json"]).ok().json();
        assert_eq!(list["projects"], serde_json::json!([]));
    });
}

fn state(project: &Project) -> String {
    let list = project.ringfence(&["trust", "--list", "--json"]).ok().json();
    ringfence_tests::field(&list["projects"][0], "state")
}

#[test]
fn the_list_says_how_each_project_stands_and_a_changed_one_is_granted_again() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        assert_eq!(state(&project), "trusted");
        project.manifest(&format!("{MIRROR}\n# one more\n"));
        assert_eq!(state(&project), "changed");
        let asked = project.ringfence(&["trust"]).expect(1);
        // What moved comes first, then the whole, then the question.
        let said = |word: &str| {
            asked.stderr.find(word).unwrap_or_else(|| panic!("{word}: {}", asked.stderr))
        };
        assert!(said(".ringfence/ringfence.toml:11: changed") < said("MCP servers"));
        project.trust();
        assert_eq!(state(&project), "trusted");
        project.manifest("version = 1\nnonsense");
        assert_eq!(state(&project), "changed");
        let log = std::fs::read_to_string(project.state().join("log/machine.jsonl"));
        let events = ringfence_tests::Events::from_lines(&log.expect("the machine's log"));
        events.has("trust_intended", &[("action", "regrant")]);
        std::fs::rename(project.path(), project.root().join("moved")).expect("our own folder");
        assert_eq!(state(&project), "gone");
    });
}

#[test]
fn a_store_of_the_version_before_asks_again() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        let store = project.state().join("trust.json");
        let good = std::fs::read(&store).expect("the store");
        let mut json: serde_json::Value = serde_json::from_slice(&good).expect("JSON");
        json["version"] = 1.into();
        for grant in json["projects"].as_object_mut().expect("projects").values_mut() {
            grant.as_object_mut().expect("a grant").remove("programs").expect("programs");
        }
        project.state_file("trust.json", json.to_string());
        project.run(&["true"]).expect(3).says(&["did not record", "ringfence trust"]).done();
        assert_eq!(state(&project), "changed");
        project.trust();
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn a_setting_that_drifted_warns_and_a_hook_refuses() {
    each_user(|who| {
        let project = Project::new(who);
        let with = |model: &str, hook: &str| {
            format!(
                "version = 1\n[settings.claude-code]\nmodel = \"{model}\"\n[hooks.h]\nevent = \"post_tool_use\"\ncommand = \"{hook}\"\n"
            )
        };
        project.manifest(&with("opus", "true"));
        project.lock();
        project.trust();
        let plain = project.run(&["true"]).ok();
        assert!(!plain.stderr.contains("warning"), "{}", plain.stderr);
        project.manifest(&with("haiku", "true"));
        project.run(&["true"]).expect(3).done();
        project.trust();
        project.run(&["true"]).ok().says(&["warning", "claude-code.model"]).done();
        project.manifest(&with("haiku", "false"));
        let digest = project.preview();
        let yes = project.ringfence(&["trust", "--yes", "--consented", &digest]).expect(3);
        yes.says(&["hook h"]).done();
    });
}

#[test]
fn a_broken_store_is_named_by_every_question_with_what_to_do() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.lock();
        project.trust();
        project.state_file("trust.json", "{");
        for words in [
            &["trust", "--list"][..],
            &["trust", "--preview"],
            &["trust"],
            &["trust", "--revoke"],
            &["diff", "--approved"],
            &["run", "--", "true"],
        ] {
            let output = project.ringfence(words).expect(3);
            output.says(&["trust.json", "nothing is trusted", "next: mv "]).done();
        }
    });
}
