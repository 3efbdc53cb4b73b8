//! `ringfence validate`

use ringfence_tests::{Project, Who, each_user};

use crate::bundles::{MIRROR, SMALL};

#[test]
fn a_good_bundle_is_told_its_labels() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        let words = project.ringfence(&["validate"]).ok();
        let all = format!("{}{}", words.stdout, words.stderr);
        assert!(all.contains("enforced"), "{all}");
        let json = project.ringfence(&["validate", "--json"]).ok().json();
        assert!(json.to_string().contains("enforced"), "{json}");
    });
}

#[test]
fn all_problems_are_found_in_one_go_with_their_places() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest("version = 1\n\n[agent]\nname = \"Bad Name\"\n\n[srevers.x]\ntype = \"http\"\n\n[limits]\nmax_duration_seconds = \"soon\"\n");
        let output = project.ringfence(&["validate"]).expect(1);
        let all = format!("{}{}", output.stdout, output.stderr);
        for place in ["ringfence.toml:4:", "ringfence.toml:6:", "ringfence.toml:10:"] {
            assert!(all.contains(place), "{place} is not named: {all}");
        }
        assert!(all.contains("servers"), "a suggestion for `srevers`: {all}");
    });
}

/// Each of these is an error of its own kind; the good twin beside it is not.
const PAIRS: &[(&str, &str)] = &[
    ("[agent]\nname = \"a\"\nnmae = \"b\"", "[agent]\nname = \"a\""),
    ("[agent]\nname = \"a\"\nname = \"b\"", "[agent]\nname = \"a\""),
    ("[agent]\nname = 1", "[agent]\nname = \"a\""),
    (
        "[agent]\nname = \"a\"\ncapabilities = [\"fly\"]",
        "[agent]\nname = \"a\"\ncapabilities = [\"read_file\"]",
    ),
    (
        "[agent]\nname = \"a\"\ncapabilities = [\"external_api\"]\n[sandbox]\nisolation = \"process\"",
        "[agent]\nname = \"a\"\ncapabilities = [\"external_api\"]\n[sandbox]\nisolation = \"network\"",
    ),
    (
        "[sandbox.network]\negress = \"none\"\nallowed_hosts = [\"a.example.com\"]",
        "[sandbox.network]\negress = \"restricted\"\nallowed_hosts = [\"a.example.com\"]",
    ),
    (
        "[servers.a-b]\ntype = \"http\"\nurl = \"https://a.example.com/\"\n[servers.a_b]\ntype = \"http\"\nurl = \"https://b.example.com/\"",
        "[servers.a-b]\ntype = \"http\"\nurl = \"https://a.example.com/\"\n[servers.ab]\ntype = \"http\"\nurl = \"https://b.example.com/\"",
    ),
    (
        "[servers.a__b]\ntype = \"http\"\nurl = \"https://a.example.com/\"",
        "[servers.a]\ntype = \"http\"\nurl = \"https://a.example.com/\"",
    ),
    ("[spending]\nmax_per_run_usd = \"0\"", "[spending]\nmax_per_run_usd = \"0.50\""),
    ("[spending]\nmax_per_run_usd = 0.5", "[spending]\nmax_per_run_usd = \"0.5\""),
    (
        "[agent]\nname = \"a\"\n[spending]\nmax_per_day_usd = \"1\"",
        "[agent]\nname = \"a\"\n[spending]\nmax_per_run_usd = \"1\"",
    ),
];

fn statuses(who: Who, text: &str) -> i32 {
    let project = Project::new(who);
    project.manifest(&format!("version = 1\n{text}\n"));
    project.ringfence(&["validate"]).status
}

#[test]
fn each_rule_has_a_good_twin() {
    each_user(|who| {
        for (bad, good) in PAIRS {
            assert_eq!(statuses(who, good), 0, "must be fine:\n{good}");
            assert_eq!(statuses(who, bad), 1, "must be an error:\n{bad}");
        }
    });
}

#[test]
fn a_gated_host_cannot_be_allowed_past_its_gate() {
    each_user(|who| {
        let with = |host: &str| {
            format!(
                "{SMALL}\n[sandbox.network]\nallowed_hosts = [\"{host}\"]\n\n[servers.up]\ntype = \"http\"\nurl = \"https://mcp.example.com/mcp\"\n"
            )
        };
        let project = Project::new(who);
        project.manifest(&with("api.example.com"));
        project.ringfence(&["validate"]).ok().done();
        for host in [
            "mcp.example.com",
            "MCP.Example.com",
            "mcp.example.com.",
            ".example.com",
            "mcp.example.com:443",
            "mcp.example.com:8080",
            "ｍcp.example.com",
            "localhost",
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "host.docker.internal",
        ] {
            project.manifest(&with(host));
            let output = project.ringfence(&["validate"]);
            assert_eq!(output.status, 1, "{host}: {} {}", output.stdout, output.stderr);
        }
    });
}

#[test]
fn it_hears_the_rules_that_a_run_would_hear() {
    each_user(|who| {
        let project = Project::new(who);
        let with = |rules: &str| {
            project.manifest(&format!("version = 1\n[policy.filesystem]\n{rules}\n"));
            project.ringfence(&["validate"])
        };
        with("write = [\"out/**\"]").ok().done();
        with("write = [\"/etc/**\"]").expect(1).says(&["/etc"]).done();
        with("write = [\"*.py\"]").expect(1).says(&["*.py"]).done();
        with("read = [\"src/**\"]\nwrite = [\"out/**\"]")
            .expect(1)
            .says(&["write-not-readable", "ringfence.toml:4 [policy.filesystem] write \"out/**\""])
            .done();
        project.machine("[policy]\nisolatoin = \"kernel\"\n");
        with("write = [\"out/**\"]").expect(1).says(&["machine.toml", "isolatoin"]).done();
    });
}

#[test]
fn it_looks_for_the_files_beside_the_manifest() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(
            "version = 1\n[skills.s]\npath = \"./skills/s\"\n[instructions.i]\npath = \"./i.md\"\n",
        );
        let missing = project.ringfence(&["validate"]).expect(1);
        missing.says(&["missing-file", "ringfence.toml:3:", "ringfence.toml:5:"]).done();
        project.file(".ringfence/i.md/a", "a folder where a file belongs\n");
        project.file(".ringfence/skills/s/notes.md", "a skill without SKILL.md\n");
        let other = project.ringfence(&["validate"]).expect(1);
        other.says(&["unpinnable", "ringfence.toml:5:", "a file is expected"]).done();
        std::fs::remove_dir_all(project.path().join(".ringfence/i.md")).expect("our own folder");
        project.file(".ringfence/i.md", "Be kind.\n");
        let json = project.ringfence(&["validate", "--json"]).ok().json();
        assert_eq!(json["valid"], true);
        assert_eq!(json["findings"][0]["rule"], "no-skill-file");
        assert_eq!(json["findings"][0]["severity"], "warning");
        assert_eq!(json["findings"][0]["at"]["line"], 3);
        project.file(".ringfence/skills/s/SKILL.md", "# s\n");
        let json = project.ringfence(&["validate", "--json"]).ok().json();
        assert_eq!(json["findings"], serde_json::json!([]), "control");
        project.lock();
    });
}

#[test]
fn what_another_program_would_have_is_told_in_words_of_ours() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(
            "version = 1\n[servers.GitHub]\ncommand = \"npx -y foo\"\ncwd = \"/x\"\nenv = { T = \"${env:T}\" }\n",
        );
        project
            .ringfence(&["validate"])
            .expect(1)
            .says(&[
                "did you mean `github`?",
                "add `type = \"stdio\"`",
                "`npx` alone is the program",
                "a server starts in the project folder",
                "write `${T}`",
            ])
            .done();
    });
}
