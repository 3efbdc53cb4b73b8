//! `ringfence show`

use ringfence_tests::{Project, each_user};

use crate::bundles::MIRROR;

const OVERLAY: &str = "[sandbox]\nmemory_mb = 256\n\n[servers.mirror]\ntools = [\"raw\"]\n";

#[test]
fn show_prints_a_manifest_that_parses_to_the_same() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.local(OVERLAY);
        let before = project.picture(project.root());
        let shown = project.ringfence(&["show"]).ok();
        assert_eq!(project.picture(project.root()), before, "it writes nothing");
        let table: toml::Table = shown.stdout.parse().expect("TOML");
        assert_eq!(table["sandbox"]["memory_mb"].as_integer(), Some(256));
        assert_eq!(table["servers"]["mirror"]["tools"].as_array().map(Vec::len), Some(1));
        assert_eq!(table["servers"]["mirror"]["args"][0].as_str(), Some("mirror.py"));
        // Another project with what was printed for its manifest has the same to show.
        let other = Project::new(who);
        other.manifest(&shown.stdout);
        assert_eq!(other.ringfence(&["show"]).ok().stdout, shown.stdout);
        let digest = |project: &Project| {
            project.lock();
            let lock = project.path().join(".ringfence/ringfence.lock");
            std::fs::read(lock).expect("a lock")
        };
        assert_eq!(digest(&project), digest(&other), "and the same pins");
    });
}

#[test]
fn show_says_where_each_value_comes_from() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.local(OVERLAY);
        let text = project.ringfence(&["show", "--origin"]).ok().stdout;
        for line in [
            "memory_mb = 256  # ringfence.local.toml:2",
            "tools = [\"raw\"]  # ringfence.local.toml:5",
            "args = [\"mirror.py\"]  # ringfence.toml:9",
            "# sandbox.network.egress: restricted  # default",
            "# sandbox.credentials: none  # default",
            "# servers.mirror.allowed_hosts: none  # default",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(text.parse::<toml::Table>().is_ok(), "{text}");
        let json = project.ringfence(&["show", "--json"]).ok().json();
        assert_eq!(json["version"], 1);
        let rows = json["values"].as_array().expect("values");
        let row = |key: &str| rows.iter().find(|row| row["key"] == key).expect("a row");
        assert_eq!(row("sandbox.memory_mb")["value"], 256);
        assert_eq!(row("sandbox.memory_mb")["file"], ".ringfence/ringfence.local.toml");
        assert_eq!(row("servers.mirror.command")["line"], 8);
        let defaults = json["defaults"].as_array().expect("defaults");
        assert!(defaults.iter().any(|it| it["key"] == "policy.filesystem.write"), "{defaults:?}");
    });
}

#[test]
fn show_of_what_does_not_parse_names_it() {
    each_user(|who| {
        let project = Project::new(who);
        project.ringfence(&["show"]).expect(1).says(&["ringfence init"]).done();
        project.manifest(MIRROR);
        project.local("servers = 1\n");
        project
            .ringfence(&["show"])
            .expect(1)
            .says(&["overlay-conflict", "ringfence.local.toml:1", "ringfence.toml:6"])
            .done();
        project.local("[servers.mirror]\nargs = [\"other.py\"]\n");
        project.ringfence(&["show"]).ok().done();
    });
}
