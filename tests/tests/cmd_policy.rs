//! `ringfence policy`

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence_tests::{Project, TestNet, each_user, each_wall};

use crate::bundles::{SMALL, files};

const BUNDLE: &str = r#"version = 1

[agent]
name = "case"

[sandbox.network]
allowed_hosts = ["api.example.com"]

[servers.search]
type = "stdio"
command = "/usr/bin/python3"
args = ["server.py"]
tools = ["raw", "environment", "row_delete"]

[policy.tools]
search = ["raw", "row_delete", "environment"]
[policy.filesystem]
write = ["src/**"]
deny = ["keys/**"]
"#;

const MACHINE: &str = "[policy.tools]\n\"*\" = [\"*\", \"!*_delete\"]\n[policy.egress]\nagent = \
                       [\"*.example.com:443\"]\n";

fn project(who: ringfence_tests::Who) -> Project {
    let project = Project::new(who);
    project.manifest(BUNDLE);
    project.machine(MACHINE);
    // The mirror, with a tool whose name a preset refuses.
    project.python();
    let mirror = fs::read_to_string(project.path().join("mirror.py")).expect("it was written");
    project.file("server.py", mirror.replace("secret_tool", "row_delete"));
    project
}

#[test]
fn explain_names_rule_layer_file_and_line_and_needs_no_trust() {
    each_user(|who| {
        let project = project(who);
        let ask = |args: &[&str]| {
            let mut words = vec!["policy", "explain"];
            words.extend(args);
            words.push("--json");
            project.ringfence(&words).ok().json()
        };
        let allowed = ask(&["search", "tool", "raw"]);
        assert_eq!(allowed["version"], 1);
        assert_eq!(allowed["allowed"], true, "{allowed}");
        let refused = ask(&["search", "tool", "row_delete"]);
        let because = &refused["answers"][0]["because"];
        assert_eq!(refused["allowed"], false);
        assert_eq!(because["layer"], "machine");
        assert_eq!(because["line"], 2);
        let machine = project.state().join("machine.toml");
        assert_eq!(because["file"], machine.display().to_string());
        assert_eq!(because["rule"], "machine.toml:2 [policy.tools] \"*\" \"!*_delete\"");
        assert_eq!(ask(&["agent", "host", "api.example.com:443"])["allowed"], true);
        assert_eq!(ask(&["agent", "host", "api.example.com"])["allowed"], true);
        assert_eq!(ask(&["agent", "host", "API.example.com.:80"])["allowed"], false);
        assert_eq!(ask(&["agent", "secret", "KEY"])["allowed"], false);
        assert_eq!(ask(&["search", "method", "tools/list"])["allowed"], true);
        let path = ask(&["agent", "path", "src/a.rs"]);
        assert_eq!(path["answers"][0]["asked"], "read");
        assert_eq!(path["answers"][1]["allowed"], true);
        assert_eq!(ask(&["agent", "path", "keys/a"])["answers"][0]["allowed"], false);
        let table = ask(&["search"]);
        assert!(table["rules"].as_array().is_some_and(|rules| rules.len() > 5), "{table}");

        // For people.
        let words = project.ringfence(&["policy", "explain", "search", "tool", "row_delete"]).ok();
        for part in ["refused", "machine.toml:2", "!*_delete"] {
            assert!(words.stdout.contains(part), "{part}: {}", words.stdout);
        }
        assert!(
            project.ringfence(&["policy", "explain", "search"]).ok().stdout.contains("declared")
        );
        // Nothing was made or trusted on the way.
        assert!(!project.state().join("trust.json").exists());
        assert!(!project.state().join("runs").exists());
    });
}

#[test]
fn a_refusal_is_an_answer_and_with_check_a_status() {
    each_user(|who| {
        let project = project(who);
        let ask = |tool: &str, more: &[&str]| {
            let mut words = vec!["policy", "explain", "search", "tool", tool];
            words.extend(more);
            project.ringfence(&words)
        };
        ask("raw", &["--check"]).ok().done();
        ask("row_delete", &[]).ok().done();
        ask("row_delete", &["--check"]).expect(3).done();
        for (words, status) in [
            (&["policy", "explain", "nobody", "tool", "raw"][..], 1),
            (&["policy", "explain", "agent", "host", "a b"], 1),
            (&["policy", "explain", "agent", "host", "x.com:0"], 1),
            (&["policy", "explain", "agent", "secret", "1X"], 1),
            (&["policy", "explain", "search", "tool"], 2),
            (&["policy", "explain", "search", "nonsense", "x"], 2),
            (&["policy", "explain"], 2),
        ] {
            project.ringfence(words).expect(status).done();
        }
        let hostile = "a\u{1b}[2Jb\u{202e}c";
        let shown = ask(hostile, &[]).ok().stdout;
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
        project.machine("[policy]\nisolatoin = \"kernel\"\n");
        ask("raw", &[]).expect(1).says(&["machine.toml:2", "isolatoin"]).done();
    });
}

#[test]
fn a_rule_of_the_overlay_is_named_by_its_own_file() {
    each_user(|who| {
        let project = project(who);
        project.local("[policy.tools]\nsearch = [\"environment\"]\n");
        let words = ["policy", "explain", "search", "tool", "raw"];
        let said = project.ringfence(&words).ok().stdout;
        assert!(said.contains("ringfence.local.toml:2"), "{said}");
    });
}

#[test]
fn what_is_explained_is_what_a_run_does() {
    each_user(|who| {
        let project = project(who);
        let probe = ["src/a", "docs/a", "keys/a", ".git/hooks/x", ".ringfence/ringfence.toml"];
        for path in &probe[..4] {
            project.file(path, "SECRET-WORD\n");
        }
        project.lock();
        project.trust();
        let mut script = String::from("m = Mcp('search')\n");
        for tool in ["raw", "row_delete", "absent"] {
            script += &format!("m.call('{tool}', '{tool}')\n");
        }
        for path in probe {
            script += &format!(
                "attempt('read {path}', lambda: len(read('{path}')) > 0 or read('/absent'))\n\
                 attempt('write {path}', lambda: (open('{path}', 'a').close(), True)[1])\n"
            );
        }
        let cases = project.agent(&script);
        let explained = |args: &[&str]| {
            let mut words = vec!["policy", "explain", "--json"];
            words.extend(args);
            project.ringfence(&words).ok().json()
        };
        for tool in ["raw", "row_delete", "absent"] {
            match explained(&["search", "tool", tool])["allowed"].as_bool() {
                Some(true) => cases.answered(tool),
                _ => cases.not_answered(tool),
            }
        }
        assert_eq!(explained(&["search", "tool", "raw"])["allowed"], true, "control");
        let mut seen = [0, 0];
        for path in probe {
            let answers = explained(&["agent", "path", path]);
            for (n, verb) in ["read", "write"].into_iter().enumerate() {
                let case = format!("{verb} {path}");
                if answers["answers"][n]["allowed"] == true {
                    seen[0] += 1;
                    cases.happened(&case);
                } else {
                    seen[1] += 1;
                    cases.refused(&case);
                }
            }
        }
        assert!(seen[0] >= 4 && seen[1] >= 4, "both answers occur: {seen:?}");
    });
}

#[test]
fn a_read_scope_is_a_scope() {
    each_wall(&[], |who, wall| {
        let net = TestNet::new(who, &[]);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.file("src/a", "a\n");
        project.file("docs/a", "a\n");
        let script = "attempt('inside', lambda: read('src/a'))\n\
                      attempt('outside', lambda: read('docs/a'))\n\
                      attempt('listed', lambda: os.listdir('docs'))\n";
        // Control: without a scope both are read.
        project.manifest(SMALL);
        project.lock();
        project.trust();
        let cases = project.agent(script);
        cases.happened("inside");
        cases.happened("outside");
        // The bundle's scope, and the machine's over a bundle that asks for all.
        let agent = "\"src/**\", \"agent.py\", \"case.py\"";
        for (machine, bundle) in [("", agent), (agent, "\"**\"")] {
            project.manifest(&files(&format!("read = [{bundle}]")));
            let rules = format!("[policy.filesystem]\nread = [{machine}]\n");
            project.machine(if machine.is_empty() { "" } else { &rules });
            project.lock();
            project.trust();
            let cases = project.agent(script);
            cases.happened("inside");
            cases.refused("outside");
        }
    });
}

#[test]
fn check_finds_dead_rules_in_both_layers() {
    each_user(|who| {
        let project = project(who);
        // Warnings alone.
        let warned = project.ringfence(&["policy", "check", "--json"]).ok().json();
        assert_eq!(warned["findings"][0]["rule"], "moot-rule", "{warned}");
        assert_eq!(warned["findings"][0]["severity"], "warning");
        assert_eq!(warned["findings"].as_array().map(Vec::len), Some(1), "{warned}");
        assert_eq!(warned["findings"][0]["at"]["line"], 16);
        // Errors, in the machine's file and in the bundle's.
        project.machine("[policy.tools]\nsearch = [\"raw\", \"!r*\"]\n");
        project
            .ringfence(&["policy", "check"])
            .expect(1)
            .says(&["never-allows", "machine.toml:2", "help:"])
            .done();
        project.machine("");
        project.manifest(&format!("{SMALL}[policy.filesystem]\nwrite = [\"a\"]\ndeny = [\"a\"]\n"));
        project
            .ringfence(&["policy", "check"])
            .expect(1)
            .says(&["never-allows", "ringfence.toml:6"])
            .done();
        // Nothing to say, with a bundle and without.
        project.manifest(SMALL);
        project.ringfence(&["policy", "check"]).ok().says(&["every rule"]).done();
        fs::remove_dir_all(project.path().join(".ringfence")).expect("our own folder");
        project.ringfence(&["policy", "check"]).ok().says(&["every rule"]).done();
        project.machine("[policy.tools]\nsearch = [\"a\", \"a\"]\n");
        project.ringfence(&["policy", "check"]).ok().says(&["duplicate-pattern"]).done();
        // What does not parse is said too, all of it.
        project.machine("[policy]\nx = 1\n");
        project.manifest("version = 1\ny = 1\n");
        let found = project.ringfence(&["policy", "check", "--json"]).expect(1).json();
        assert_eq!(found["findings"].as_array().map(Vec::len), Some(2), "{found}");
    });
}

#[test]
fn a_preset_is_shown_used_and_taken_back_byte_for_byte() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        let list = project.ringfence(&["policy", "presets"]).ok().stdout;
        let names = ["compatible", "developer", "ci", "locked-down"];
        for name in names {
            assert!(list.lines().any(|line| line.starts_with(name)), "{name}: {list}");
        }
        let listed = project.ringfence(&["policy", "presets", "--json"]).ok().json();
        assert_eq!(listed["presets"].as_array().map(Vec::len), Some(4));
        let file = project.state().join("machine.toml");
        let mine = "# mine\r\n[policy]\nisolation   = 'network'\n[guard]\nmine = 1 # so";
        project.machine(mine);
        // Nobody is there to say yes: the change is shown, and nothing is done.
        let shown = project.ringfence(&["policy", "use", "developer"]).expect(1);
        assert!(shown.stderr.contains("+max_duration_seconds"), "{}", shown.stderr);
        assert!(shown.stderr.contains("--yes"), "{}", shown.stderr);
        assert_eq!(fs::read_to_string(&file).expect("there"), mine);
        for name in names {
            project.ringfence(&["policy", "use", name, "--yes"]).ok().done();
            let text = fs::read_to_string(&file).expect("there");
            let preset = project.ringfence(&["policy", "presets", "--show", name]).ok().stdout;
            assert!(text.starts_with(preset.trim_end()), "{name}");
            assert!(text.ends_with("[guard]\nmine = 1 # so\n"), "{name}: the guard's table stays");
            let mode = fs::metadata(&file).expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600);
            // It holds: it is valid, and an ordinary run goes on under it.
            project.ringfence(&["policy", "check"]).ok().done();
            project.run(&["true"]).ok().done();
        }
        project
            .ringfence(&["policy", "use", "locked-down", "--yes"])
            .ok()
            .says(&["already"])
            .done();
        project.ringfence(&["policy", "undo"]).expect(1).says(&["--yes"]).done();
        for _ in names {
            project.ringfence(&["policy", "undo", "--yes"]).ok().done();
        }
        assert_eq!(fs::read_to_string(&file).expect("there"), mine);
        project.ringfence(&["policy", "undo", "--yes"]).expect(1).says(&["take back"]).done();
        project.ringfence(&["policy", "use", "nonsense"]).expect(1).says(&["locked-down"]).done();
        project.ringfence(&["policy", "presets", "--show", "nonsense"]).expect(1).done();
    });
}

#[test]
fn a_preset_narrows_a_run() {
    each_user(|who| {
        let project = project(who);
        fs::remove_file(project.state().join("machine.toml")).expect("our own file");
        project.lock();
        project.trust();
        project.lock_tools().done();
        project.trust();
        let script = "m = Mcp('search')\nm.call('raw', 'raw')\nm.call('gone', 'row_delete')\n\
                      attempt('write', lambda: write('src/new'))\n";
        project.file("src/a", "");
        let cases = project.agent(script);
        cases.answered("raw");
        cases.answered("gone");
        cases.happened("write");
        project.ringfence(&["policy", "use", "developer", "--yes"]).ok().done();
        let cases = project.agent(script);
        cases.answered("raw");
        cases.not_answered("gone");
        cases.happened("write");
        project.ringfence(&["policy", "use", "locked-down", "--yes"]).ok().done();
        let cases = project.agent(script);
        cases.not_answered("raw");
        cases.refused("write");
        project.ringfence(&["policy", "undo", "--yes"]).ok().done();
        project.ringfence(&["policy", "undo", "--yes"]).ok().done();
        assert!(!project.state().join("machine.toml").exists());
        project.agent(script).answered("gone");
    });
}

#[test]
fn the_first_use_makes_a_private_folder() {
    each_user(|who| {
        let mut project = Project::new(who);
        let state = project.home().join("new/state");
        project.env("RINGFENCE_HOME", &state.display().to_string());
        project.ringfence(&["policy", "use", "ci", "--yes"]).ok().done();
        let mode = |path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(state.clone()), mode(state.join("machine.toml"))), (0o700, 0o600));
    });
}
