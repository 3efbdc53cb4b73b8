//! `ringfence set`

use ringfence_tests::{Events, Project, each_user};

use crate::bundles::SMALL;

fn actions(project: &Project) -> Vec<String> {
    let log = std::fs::read_to_string(project.state().join("log/machine.jsonl"));
    let events = Events::from_lines(&log.expect("the machine's log"));
    let intents = events.with("trust_intended", &[]);
    intents.iter().map(|event| ringfence_tests::field(event, "action")).collect()
}

#[test]
fn a_preference_is_written_in_place_and_trust_is_carried() {
    each_user(|who| {
        let project =
            Project::ready(who, &format!("# mine\n{SMALL}\n[meta]\ngitignore = false # not yet\n"));
        let output = project.ringfence(&["set", "meta.gitignore", "true"]).ok();
        assert!(
            output.stdout.contains(".ringfence/ringfence.toml:8: changed"),
            "{}",
            output.stdout
        );
        output.says(&["still trusted"]).done();
        let text = std::fs::read_to_string(project.path().join(".ringfence/ringfence.toml"));
        assert!(text.expect("the manifest").contains("gitignore = true # not yet\n"));
        project.run(&["true"]).ok().done();
        let local = ["set", "delivery.render_locally", "[\"codex\"]", "--local"];
        project.ringfence(&local).ok().says(&["still trusted"]).done();
        project.run(&["true"]).ok().done();
        project.ringfence(&local).ok().says(&["so already"]).done();
        assert_eq!(actions(&project), ["grant", "carry", "carry"]);
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn it_makes_no_trust_and_settles_no_change() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(SMALL);
        project.lock();
        project
            .ringfence(&["set", "meta.gitignore", "true"])
            .ok()
            .says(&["ringfence trust"])
            .done();
        project.run(&["true"]).expect(3).done();
        project.trust();
        project.run(&["true"]).ok().done();
        project.local("[limits]\nmax_duration_seconds = 50\n");
        project.ringfence(&["set", "meta.gitignore", "false"]).ok().done();
        project.run(&["true"]).expect(3).done();
        assert_eq!(actions(&project), ["grant"]);
    });
}

#[test]
fn nothing_but_a_preference_can_be_set() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        let before = project.picture(&project.path());
        for (key, value) in [
            ("sandbox.command", "[\"sh\"]"),
            ("agent.name", "\"x\""),
            ("meta.gitignore", "maybe"),
            ("meta.gitignore", "true\n[hooks.x]\nevent = \"post_tool_use\"\ncommand = \"x\""),
            ("", "true"),
        ] {
            project.ringfence(&["set", key, value]).expect(1).says(&["meta.gitignore"]).done();
        }
        project.ringfence(&["set", "meta.gitignore", "true", "--print"]).ok().done();
        assert_eq!(project.picture(&project.path()), before, "nothing was written");
        project.run(&["true"]).ok().done();
        let json = project.ringfence(&["set", "meta.gitignore", "true", "--json"]).ok().json();
        assert_eq!(
            (json["written"].as_bool(), json["trust_carried"].as_bool()),
            (Some(true), Some(true))
        );
    });
}
