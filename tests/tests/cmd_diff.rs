//! `ringfence diff`, and the lines that `trust` and `lock --check` show

use ringfence_tests::{Project, each_user};

const BUNDLE: &str = r#"version = 1

[skills.tidy]
path = "./skills/tidy"

[instructions.team]
path = "./team.md"

[settings.claude-code]
model = "opus"

[servers.local]
type = "stdio"
command = "/usr/bin/python3"
args = ["server.py"]
"#;

fn bundle(who: ringfence_tests::Who) -> Project {
    let project = Project::new(who);
    project.file(".ringfence/skills/tidy/SKILL.md", "# Tidy\n\nfirst\nsecond\nthird\n");
    project.file(".ringfence/skills/tidy/logo.bin", b"\x00\x01\n\x02\n\xff");
    project.file(".ringfence/team.md", "Be kind.\nBe brief.\n");
    project.file("server.py", "import sys\nprint('one')\n");
    project.manifest(BUNDLE);
    project.lock();
    project
}

#[test]
fn every_file_is_named_with_its_line_in_all_three_places() {
    each_user(|who| {
        let project = bundle(who);
        project.trust();
        project.ringfence(&["diff"]).ok().done();
        project.ringfence(&["diff", "--approved"]).ok().done();
        let cases: &[(&str, &[u8], &str)] = &[
            (".ringfence/skills/tidy/SKILL.md", b"# Tidy\n\nfirst\nsecind\nthird\n", ":4: changed"),
            (".ringfence/skills/tidy/logo.bin", b"\x00\x01\n\x03\n\xff", ":2: changed"),
            (".ringfence/skills/tidy/new.md", b"new\n", ":1: added"),
            (".ringfence/team.md", b"Be kind.\nBe grief.\n", ":2: changed"),
            ("server.py", b"import sys\nprint('two')\n", ":2: changed"),
        ];
        for (path, bytes, place) in cases {
            let full = project.path().join(path);
            let before = std::fs::read(&full).ok();
            project.file(path, bytes);
            for words in [
                &["diff"][..],
                &["diff", "--approved"],
                &["lock", "--check"],
                &["trust", "--preview"],
            ] {
                let output = project.ringfence(words);
                let status = if words[0] == "trust" { 0 } else { 1 };
                let output = output.expect(status);
                let place = format!("{path}{place}");
                assert!(output.stdout.contains(&place), "{words:?}, {place}:\n{}", output.stdout);
            }
            project.run(&["true"]).expect(3).done();
            match before {
                Some(before) => drop(project.file(path, before)),
                None => std::fs::remove_file(&full).expect("our own file"),
            }
        }
        project.ringfence(&["diff"]).ok().done();
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn what_is_declared_is_named_where_it_stands() {
    each_user(|who| {
        let project = bundle(who);
        project.trust();
        project.manifest(&BUNDLE.replace("opus", "haiku"));
        let place = ".ringfence/ringfence.toml:10: changed";
        for words in [&["diff"][..], &["diff", "--approved"], &["trust", "--preview"]] {
            let output = project.ringfence(words);
            assert!(output.stdout.contains(place), "{words:?}:\n{}", output.stdout);
            assert!(output.stdout.contains("opus") && output.stdout.contains("haiku"));
        }
        // A comment is nothing that is pinned, and still not what was approved.
        project.manifest(&format!("{BUNDLE}# more\n"));
        project.ringfence(&["diff"]).ok().done();
        let approved = project.ringfence(&["diff", "--approved", "--json"]).expect(1).json();
        assert_eq!(approved["files"][0]["file"], ".ringfence/ringfence.toml");
        assert_eq!(approved["files"][0]["line"], 16);
        assert_eq!(approved["version"], 1);
        project.local("[limits]\nmax_duration_seconds = 5\n");
        let output = project.ringfence(&["diff", "--approved"]).expect(1);
        assert!(output.stdout.contains(".ringfence/ringfence.local.toml:1: added"));
    });
}

#[test]
fn a_mode_and_an_escape_are_shown_and_nothing_is_written() {
    each_user(|who| {
        let project = bundle(who);
        project.trust();
        let file = project
            .file(".ringfence/skills/tidy/SKILL.md", "# Tidy\n\nfirst\x1b[2J\nsecond\nthird\n");
        let before = project.picture(project.root());
        let output = project.ringfence(&["diff"]).expect(1);
        assert!(!output.stdout.contains('\x1b'), "{:?}", output.stdout);
        assert_eq!(project.picture(project.root()), before, "a look changes nothing");
        project.file(".ringfence/skills/tidy/SKILL.md", "# Tidy\n\nfirst\nsecond\nthird\n");
        project.shell(&["chmod", "+x", &file.display().to_string()]).ok().done();
        let output = project.ringfence(&["diff"]).expect(1);
        assert!(output.stdout.contains("SKILL.md:1: mode changed"), "{}", output.stdout);
    });
}

#[test]
fn without_something_to_compare_with_it_says_so() {
    each_user(|who| {
        let project = bundle(who);
        project.ringfence(&["diff", "--approved"]).expect(1).says(&["ringfence trust"]).done();
        project.trust();
        // The bytes of then are gone: their digests are all there is.
        std::fs::remove_dir_all(project.state().join("store")).expect("our own folder");
        project.file(".ringfence/team.md", "Be kind.\nBe grief.\n");
        let output = project.ringfence(&["diff"]).expect(1);
        assert!(output.stdout.contains(".ringfence/team.md:1: changed"), "{}", output.stdout);
        assert!(output.stdout.contains("not recorded on this machine"), "{}", output.stdout);
        project.manifest(&format!("{BUNDLE}# more\n"));
        let preview = project.ringfence(&["trust", "--preview"]).ok();
        assert!(
            preview.stdout.contains("the bytes you approved were not recorded on this machine"),
            "{}",
            preview.stdout
        );
        std::fs::remove_file(project.path().join(".ringfence/ringfence.lock")).expect("our own");
        project.ringfence(&["diff"]).expect(1).says(&["ringfence lock"]).done();
    });
}
