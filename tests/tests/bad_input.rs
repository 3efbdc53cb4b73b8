//! Bad input: a clear error that names file, line, rule and the next command, a status by kind, and
//! nothing changed on disk.

use std::time::Duration;

use ringfence_tests::{Project, Upstream, Who, each_user};
use rustix::process::Signal;

use crate::bundles::{MIRROR, SMALL, files, hosts, upstream};
use crate::cmd_stop::{OUT, waiting};

/// Runs commands that must all end with one of these statuses and leave the project as it was.
#[track_caller]
fn changes_nothing(project: &Project, statuses: &[i32], says: &[&str], commands: &[&[&str]]) {
    for words in commands {
        let before = project.picture(&project.path());
        let output = project.ringfence(words);
        assert!(
            statuses.contains(&output.status),
            "{words:?} ended with {}\n{}\n{}",
            output.status,
            output.stdout,
            output.stderr
        );
        let all = format!("{}{}", output.stdout, output.stderr);
        for word in says {
            assert!(all.contains(word), "{words:?} does not say {word:?}:\n{all}");
        }
        assert!(!all.contains("panicked"), "{words:?}: {all}");
        assert_eq!(project.picture(&project.path()), before, "{words:?} changed the project");
    }
}

const READERS: &[&[&str]] = &[
    &["validate"],
    &["lock"],
    &["lock", "--check"],
    &["trust", "--preview"],
    &["run"],
    &["run", "--plan"],
    &["run", "--", "true"],
];

#[test]
fn a_manifest_that_is_missing() {
    each_user(|who| {
        let project = Project::new(who);
        changes_nothing(&project, &[1], &["ringfence.toml", "ringfence init"], READERS);
        let nowhere = project.root().join("nowhere").display().to_string();
        let program = project.program().display().to_string();
        let output = project.shell(&[&program, "-C", &nowhere, "validate"]);
        assert_eq!(output.status, 1, "{}", output.stderr);
    });
}

#[test]
fn a_manifest_that_is_no_manifest() {
    each_user(|who| {
        let project = Project::new(who);
        let huge = vec![b'#'; 5 << 20];
        let many = "a = 1\n".repeat(300_000);
        let nested = format!("version = 1\nx = {}{}\n", "[".repeat(10_000), "]".repeat(10_000));
        let cases: &[(&str, &[u8])] = &[
            ("empty", b""),
            ("only a space", b" "),
            ("binary", b"\x7fELF\x02\x01\x01\x00\x00\xff\xfe"),
            ("UTF-16", b"\xff\xfev\x00e\x00r\x00"),
            ("NUL", b"version = 1\n\x00"),
            ("huge", &huge),
            ("many lines", many.as_bytes()),
            ("deep", nested.as_bytes()),
            ("JSON", b"{\"version\": 1}"),
            ("no version", b"[agent]\nname = \"a\"\n"),
            ("another version", b"version = 2\n"),
            (
                "a merge conflict",
                b"<<<<<<< ours\nversion = 1\n=======\nversion = 1\n>>>>>>> theirs\n",
            ),
        ];
        for (name, bytes) in cases {
            eprintln!("manifest: {name}");
            project.file(".ringfence/ringfence.toml", bytes);
            changes_nothing(&project, &[1], &["ringfence.toml"], READERS);
        }
        project.manifest(SMALL);
        project.ringfence(&["validate"]).ok().done();
    });
}

#[test]
fn a_manifest_that_is_not_a_file() {
    each_user(|who| {
        let project = Project::new(who);
        let path = project.path().join(".ringfence/ringfence.toml");
        let place = path.display().to_string();
        for make in [
            "mkdir -p",
            "mkfifo",
            "ln -s /dev/zero",
            "ln -s /etc/passwd",
            "ln -s ringfence.toml",
            "ln -s ../real.toml",
        ] {
            project.file("real.toml", SMALL);
            project.file(".ringfence/x", "");
            project
                .shell(&["sh", "-c", &format!("rm -rf '{place}'; {make} '{place}'")])
                .ok()
                .done();
            changes_nothing(&project, &[1], &["ringfence.toml"], READERS);
        }
        project.shell(&["sh", "-c", &format!("rm -rf '{place}'")]).ok().done();
        project.manifest(SMALL);
        project.ringfence(&["validate"]).ok().done();
        if !who.is_root() {
            project.shell(&["chmod", "000", &place]).ok().done();
            let output = project.ringfence(&["validate"]);
            assert_eq!(output.status, 1, "{}", output.stderr);
        }
    });
}

#[test]
fn a_lock_that_does_not_parse() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        project.run(&["true"]).ok().done();
        let good = std::fs::read(project.path().join(".ringfence/ringfence.lock")).expect("a lock");
        for bad in [
            &b""[..],
            b"{",
            b"version = 99\n",
            b"\xff\xfe\x00",
            b"<<<<<<< ours\n",
            &good[..good.len() / 2],
        ] {
            project.file(".ringfence/ringfence.lock", bad);
            changes_nothing(
                &project,
                &[1, 3],
                &["ringfence.lock"],
                &[&["lock", "--check"], &["run"], &["run", "--", "true"]],
            );
        }
        // `ringfence lock` is the next command, and mends it.
        project.lock();
        project.trust();
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn a_bundle_that_is_untrusted_or_drifted() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        changes_nothing(&project, &[1, 3], &["next: ringfence"], &[&["run", "--", "true"]]);
        project.lock();
        changes_nothing(&project, &[3], &["ringfence trust"], &[&["run", "--", "true"], &["run"]]);
        project.trust();
        project.run(&["true"]).ok().done();
        project.manifest(&MIRROR.replace("\"environment\"", "\"environment\", \"secret_tool\""));
        changes_nothing(&project, &[3], &["ringfence"], &[&["run", "--", "true"]]);
    });
}

#[test]
fn a_manifest_that_asks_for_more_than_the_machine_allows() {
    each_user(|who| {
        let asks: &[(&str, &str, &str)] = &[
            (
                "[policy]\ncredentials = [\"OK_*\"]\n",
                "[sandbox]\ncredentials = [\"OTHER\"]",
                "[sandbox]\ncredentials = [\"OK_ONE\"]",
            ),
            (
                "[policy]\nallow_proceed = false\n",
                "[approvals]\non_timeout = \"proceed\"",
                "[approvals]\non_timeout = \"deny\"",
            ),
        ];
        for (machine, much, fits) in asks {
            let project = Project::new(who);
            project.machine(machine);
            ceiling(project, much, fits);
        }
    });
}

#[test]
fn a_number_beyond_the_machines_is_narrowed_and_the_plan_says_so() {
    each_user(|who| {
        let project =
            Project::ready(who, &format!("{SMALL}\n[limits]\nmax_duration_seconds = 61\n"));
        let plan = || project.ringfence(&["run", "--plan", "--", "true"]).ok().stdout;
        assert!(plan().contains("duration: 61 s"), "control: {}", plan());
        project.machine("[policy]\nmax_duration_seconds = 60\n");
        assert!(plan().contains("duration: 60 s"), "{}", plan());
        project.machine("[policy]\nmax_duration_seconds = 1\n");
        project.run(&["sleep", "60"]).expect(124).done();
    });
}

/// What fits runs; what is too much is refused, and both places are named.
fn ceiling(mut project: Project, much: &str, fits: &str) {
    project.env("OK_ONE", "1").env("OTHER", "1");
    project.manifest(&format!("{SMALL}\n{fits}\n"));
    project.lock();
    project.trust();
    project.run(&["true"]).ok().done();
    project.manifest(&format!("{SMALL}\n{much}\n"));
    project.lock();
    let preview = project.ringfence(&["trust", "--preview", "--json"]);
    if let (0, Some(digest)) = (preview.status, preview.json()["review_digest"].as_str()) {
        project.ringfence(&["trust", "--yes", "--consented", digest]).done();
    }
    let words: &[&[&str]] = &[&["run", "--", "true"]];
    changes_nothing(&project, &[3], &["machine.toml:2", "ringfence.toml"], words);
}

#[test]
fn a_machine_policy_that_does_not_parse() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        project.run(&["true"]).ok().done();
        for bad in [
            "[policy",
            "[policy]\nisolatoin = \"network\"\n",
            "[policy]\nisolation = 3\n",
            "\u{0}",
            "[servers.x]\ntype = \"http\"\n",
        ] {
            project.machine(bad);
            changes_nothing(&project, &[1, 3], &["machine.toml"], &[&["run", "--", "true"]]);
        }
        project.machine("[policy]\nisolation = \"network\"\n");
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn a_command_that_does_not_exist() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        changes_nothing(
            &project,
            &[2],
            &[],
            &[
                &["frobnicate"],
                &["run", "--frobnicate"],
                &["stop"],
                &["audit"],
                &["audit", "frobnicate"],
            ],
        );
        changes_nothing(
            &project,
            &[1],
            &["no-such-program"],
            &[&["run", "--", "no-such-program"], &["run", "--", "/no-such-program"]],
        );
        project.file("not-executable", "#!/bin/sh\n");
        changes_nothing(&project, &[1], &["not-executable"], &[&["run", "--", "./not-executable"]]);
        changes_nothing(&project, &[1], &["command"], &[&["run"]]);
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn an_upstream_that_is_down_or_talks_nonsense() {
    each_user(|who| {
        let ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        let sized = |body: &str| {
            format!("{ok}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        };
        let good = sized(
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"fine"}]}}"#,
        );
        let control = Upstream::until("tools/call", &good);
        let mut urls = vec![("down", Upstream::nobody())];
        let bad = [
            ("not HTTP", "hello\r\n\r\n".to_owned()),
            ("nothing", String::new()),
            ("an error page", "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops".to_owned()),
            ("not JSON", sized("<html>")),
            ("not JSON-RPC", sized("{\"hello\":1}")),
            ("another id", sized(r#"{"jsonrpc":"2.0","id":99999,"result":{}}"#)),
            ("half of it", format!("{ok}Content-Length: 1000\r\nConnection: close\r\n\r\n{{")),
            ("deep", sized(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#, "[".repeat(50_000), "]".repeat(50_000)))),
            ("another type", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}".to_owned()),
        ];
        let mut alive = vec![control];
        urls.push(("control", alive[0].url()));
        for (name, answer) in &bad {
            for upstream in [Upstream::saying(answer), Upstream::until("tools/call", answer)] {
                urls.push((name, upstream.url()));
                alive.push(upstream);
            }
        }
        for (name, url) in urls {
            let project = Project::ready(who, &upstream(&url));
            let cases = project.agent("Mcp('up').call('call', 'echo')\nsay('after')");
            let _ = cases.get("after");
            assert_eq!(cases.output.status, 0, "{name}: the run goes on");
            if name == "control" {
                cases.answered("call");
            } else {
                eprintln!("upstream: {name}");
                cases.not_answered("call");
            }
            project.ringfence(&["audit", "verify"]).ok().done();
        }
    });
}

#[test]
fn a_slow_upstream_does_not_hold_the_run() {
    each_user(|who| {
        let slow = Upstream::silent();
        let project = Project::ready(
            who,
            &format!("{}\n[limits]\nmax_duration_seconds = 3\n", upstream(&slow.url())),
        );
        let cases = project.agent("Mcp('up').call('call', 'echo')");
        assert_eq!(cases.output.status, 124, "{}", cases.output.stderr);
        assert!(!slow.seen().is_empty(), "control: it was asked");
        project.events().has("run_finished", &[("ended_by", "limit")]);
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn a_stdio_server_that_cannot_start_dies_or_babbles() {
    each_user(|who| {
        let servers: &[(&str, &str)] = &[
            ("/no/such/program", ""),
            ("/bin/false", ""),
            ("/bin/sh", "echo hello; cat >/dev/null"),
            ("/bin/sh", "exit 3"),
            ("/bin/sh", "head -c 1 >/dev/null"),
            ("/bin/sh", "yes"),
        ];
        for (command, script) in servers {
            let project = Project::new(who);
            let args = if script.is_empty() {
                String::new()
            } else {
                format!("args = [\"-c\", \"{script}\"]\n")
            };
            project.manifest(&format!("{SMALL}\n[limits]\nmax_duration_seconds = 60\n\n[servers.odd]\ntype = \"stdio\"\ncommand = \"{command}\"\n{args}"));
            project.lock();
            project.trust();
            let cases = project.agent("Mcp('odd').call('call', 'x')\nsay('after')");
            if *command == "/no/such/program" {
                // A program that is not there is found before the agent starts.
                cases.output.expect(1).says(&["/no/such/program"]).done();
                continue;
            }
            let _ = cases.get("after");
            cases.not_answered("call");
            assert_eq!(cases.output.status, 0, "{command} {script}: {}", cases.output.stderr);
        }
    });
}

#[test]
fn two_runs_at_once() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let (one, two) = (waiting(&project), waiting(&project));
        let runs = project.runs();
        assert_eq!(runs.len(), 2);
        project.ringfence(&["stop", &runs[0]]).ok().done();
        let left = project.ringfence(&["ps", "--json"]).ok().json();
        assert!(
            left.to_string().contains(&runs[1]) && !left.to_string().contains(&runs[0]),
            "{left}"
        );
        project.ringfence(&["stop", &runs[1]]).ok().done();
        one.finish().done();
        two.finish().done();
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn ctrl_c_at_any_point() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let before = project.picture(&project.path());
        for step in 0..16 {
            let mut run = project.start(&["run", "--", "sleep", "1000"]);
            assert!(!run.ends_within(Duration::from_millis(step * 6)));
            run.signal(Signal::INT);
            let output = run.finish();
            assert_eq!(output.status, 130, "after {} ms: {}", step * 6, output.stderr);
        }
        // With the agent at work for certain.
        let run = waiting(&project);
        run.signal(Signal::INT);
        run.finish().expect(130).done();
        project.ringfence(&["audit", "verify"]).ok().done();
        let none = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(none["runs"], serde_json::json!([]));
        std::fs::remove_dir_all(project.path().join("out")).expect("our own folder");
        let mut after = project.picture(&project.path());
        after.retain(|path, _| !path.ends_with("out"));
        let mut before = before;
        before.retain(|path, _| !path.ends_with("out"));
        assert_eq!(after, before);
    });
}

#[test]
fn odd_homes_and_projects() {
    each_user(|who| {
        let mut project = Project::ready(who, &hosts(&["a.example.com"]));
        project.run(&["true"]).ok().done();
        for (home, statuses) in [
            ("relative", vec![0, 1, 3, 255]),
            ("", vec![0, 1, 3, 255]),
            ("/proc/nope", vec![1, 3, 255]),
            ("/dev/null", vec![1, 3, 255]),
        ] {
            project.env("RINGFENCE_HOME", home);
            let output = project.run(&["true"]);
            assert!(
                statuses.contains(&output.status),
                "{home:?}: {} {}",
                output.status,
                output.stderr
            );
            assert!(!output.stderr.contains("panicked"), "{home:?}: {}", output.stderr);
        }
        // A project whose path has a space, a quote and another script.
        let odd = Project::new(who);
        let folder = "a b'c é日本";
        odd.file(&format!("{folder}/.ringfence/ringfence.toml"), SMALL);
        let path = odd.path().join(folder).display().to_string();
        let program = odd.program().display().to_string();
        odd.shell(&[&program, "-C", &path, "lock"]).ok().done();
        let digest =
            odd.shell(&[&program, "-C", &path, "trust", "--preview", "--json"]).ok().json();
        let digest = digest["review_digest"].as_str().expect("a digest").to_owned();
        odd.shell(&[&program, "-C", &path, "trust", "--yes", "--consented", &digest]).ok().done();
        let output = odd.shell(&[&program, "-C", &path, "run", "--", "pwd"]).ok();
        assert!(output.stdout.contains(folder), "{}", output.stdout);
    });
}

#[test]
fn a_full_disk_under_the_record_before_the_first_line() {
    // The case with room for some calls is in `redteam_evidence.rs`.
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        project.run(&["true"]).ok().done();
        if who == Who::Itself || !Who::suite_is_root() {
            let program = project.program().display().to_string();
            let path = project.path().display().to_string();
            // No file may grow past this: the first append fails.
            let output = project.shell(&[
                "sh",
                "-c",
                "trap '' XFSZ; ulimit -f 0; exec \"$@\"",
                "sh",
                &program,
                "-C",
                &path,
                "run",
                "--",
                "true",
            ]);
            assert_ne!(output.status, 0, "{}", output.stderr);
        }
    });
}
