//! `ringfence run`

use ringfence_tests::{Project, each_user};

use crate::bundles::{MIRROR, SMALL, files, hosts};

#[test]
fn it_returns_the_agents_status_and_passes_its_output_on() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        let output =
            project.run(&["/bin/sh", "-c", "echo to-stdout; echo to-stderr >&2; exit 7"]).expect(7);
        assert!(output.stdout.contains("to-stdout") && !output.stdout.contains("to-stderr"));
        assert!(output.stderr.contains("to-stderr"));
        let id = project.runs().pop().expect("a run");
        assert!(output.stderr.contains(&id), "the run id is not said: {}", output.stderr);
        project.run(&["true"]).ok().done();
        project.run(&["/bin/sh", "-c", "kill -TERM $$"]).expect(143).done();
        project.run(&["/bin/sh", "-c", "kill -KILL $$"]).expect(137).done();
        project.events().has("run_finished", &[("status", "137"), ("ended_by", "signal")]);
    });
}

#[test]
fn json_says_how_it_ended() {
    each_user(|who| {
        let project =
            Project::ready(who, &format!("{SMALL}\n[limits]\nmax_duration_seconds = 2\n"));
        let ends = |status: i32, command: &[&str]| {
            let mut args = vec!["run", "--json", "--"];
            args.extend(command);
            let output = project.ringfence(&args).expect(status);
            let last = output.last_json();
            last["finished"]["ended_by"]
                .as_str()
                .or(last["ended_by"].as_str())
                .unwrap_or("?")
                .to_owned()
        };
        assert_eq!(ends(3, &["/bin/sh", "-c", "exit 3"]), "exit");
        assert_eq!(ends(134, &["/bin/sh", "-c", "kill -ABRT $$"]), "signal");
        assert_eq!(ends(124, &["sleep", "60"]), "limit");
        project.events().has("limit_reached", &[("limit", "duration")]);
    });
}

#[test]
fn the_plan_is_shown_and_nothing_runs() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&MIRROR.replace("[servers.mirror]", "[limits]\nmax_duration_seconds = 77\n\n[sandbox.network]\nallowed_hosts = [\"api.example.com\"]\n\n[servers.mirror]"));
        project.python();
        project.lock();
        project.trust();
        let plan = project.ringfence(&["run", "--plan", "--", "/usr/bin/env", "a-word"]).ok();
        for word in ["native", "a-word", "api.example.com", "raw", "77", "trusted", "enforced"] {
            assert!(plan.stdout.contains(word), "{word} is not shown:\n{}", plan.stdout);
        }
        assert!(project.runs().is_empty(), "a plan is not a run");
        let json = project.ringfence(&["run", "--plan", "--json", "--", "true"]).ok().json();
        assert!(json.is_object(), "{json}");
    });
}

#[test]
fn the_summary_marks_what_was_allowed_and_refused_with_the_rule() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        let cases = project.agent("m = Mcp('mirror')\nm.call('yes', 'raw')\nm.call('no', 'secret_tool')\ntry_connect('host', 'not-listed.example.com:443')");
        cases.answered("yes");
        cases.not_answered("no");
        let line = |words: &[&str]| {
            let found = cases.output.stderr.lines().any(|l| words.iter().all(|w| l.contains(w)));
            assert!(found, "no line with {words:?} in\n{}", cases.output.stderr);
        };
        line(&["allowed", "raw"]);
        line(&["refused", "secret_tool", "tools"]);
        line(&["refused", "not-listed.example.com"]);
    });
}

#[test]
fn a_machine_rule_is_named_when_it_refuses() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&hosts(&["api.example.com"]));
        project.machine("[policy.egress]\nagent = [\"*.example.org:443\"]\n");
        project.lock();
        project.trust();
        let cases = project.agent("try_connect('host', 'api.example.com:443')");
        assert!(cases.status("host") >= 400);
        let events = project.events();
        let refused =
            events.has("egress_decided", &[("host", "api.example.com"), ("outcome", "refused")]);
        assert!(refused.to_string().contains("machine.toml:2"), "{refused}");
    });
}

#[test]
fn a_write_scope_is_a_scope() {
    each_user(|who| {
        let project = Project::new(who);
        project.file("src/a.txt", "a\n");
        project.manifest(&files("write = [\"src/**\", \"made/**\"]"));
        project.lock();
        project.trust();
        let cases = project.agent(
            "attempt('in scope', lambda: write('src/a.txt'))\n\
             attempt('missing scope', lambda: write('made/b.txt'))\n\
             attempt('outside', lambda: write('c.txt'))\n\
             attempt('dots', lambda: write('src/../d.txt'))\n\
             os.symlink('..', 'src/up')\n\
             attempt('through a link', lambda: write('src/up/e.txt'))\n",
        );
        cases.happened("in scope");
        cases.happened("missing scope");
        for case in ["outside", "dots", "through a link"] {
            cases.refused(case);
        }
        let text = std::fs::read_to_string(project.path().join("made/b.txt"))
            .expect("it reached the host");
        assert_eq!(text, "changed by the agent\n");
        let owner = std::os::unix::fs::MetadataExt::uid(
            &std::fs::metadata(project.path().join("made/b.txt")).expect("there"),
        );
        assert_eq!(owner, who.uid(), "what the agent writes belongs to the person");
    });
}

#[test]
fn a_backend_that_is_not_there_is_refused_not_replaced() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        project.ringfence(&["run", "--sandbox", "native", "--", "true"]).ok().done();
        for other in ["docker", "lockdown", "microvm", "none", "nonsense"] {
            let output = project.ringfence(&["run", "--sandbox", other, "--", "true"]);
            assert!(
                [1, 2, 3].contains(&output.status),
                "{other}: {} {}",
                output.status,
                output.stderr
            );
        }
        let strong = Project::new(who);
        strong.manifest(
            &SMALL
                .replace("name = \"case\"", "name = \"case\"\ncapabilities = [\"delete_records\"]"),
        );
        strong.lock();
        strong.trust();
        let output = strong.run(&["true"]);
        assert!(
            [1, 3].contains(&output.status),
            "a kernel floor has no backend here: {}",
            output.stderr
        );
        assert!(output.stderr.contains("kernel"), "{}", output.stderr);
    });
}

#[test]
fn limits_end_a_run_or_bind_it() {
    each_user(|who| {
        let project = Project::ready(
            who,
            &format!("{SMALL}\n[sandbox]\nmemory_mb = 128\npids = 32\ndisk_mb = 8\n"),
        );
        project.run(&["true"]).ok().done();
        let cases = project.agent(
            "attempt('small', lambda: (open('/tmp/small', 'wb').write(b'x' * 1000000), True)[1])\n\
             attempt('big', lambda: ([open('/tmp/big', 'ab').write(b'x' * 1000000) for _ in range(40)], True)[1])\n",
        );
        cases.happened("small");
        cases.refused("big");
        let memory = project.run(&["/usr/bin/python3", "-c", "b = bytearray(600 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nimport time; time.sleep(30)"]);
        assert_ne!(memory.status, 0, "600 MiB in 128: {}", memory.stderr);
        let forks =
            project.run(&["/bin/bash", "-c", "for i in $(seq 200); do sleep 20 & done; wait"]);
        assert_ne!(forks.status, 0, "200 processes in 32: {}", forks.stderr);
    });
}

#[test]
fn the_project_may_be_named_before_or_after_the_command() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        let program = project.program().display().to_string();
        let path = project.path().display().to_string();
        for words in [["-C", &path, "run", "--", "true"], ["run", "-C", &path, "--", "true"]] {
            let mut all = vec![program.as_str()];
            all.extend(words);
            ringfence_tests::Started::new(project.command(&all)).finish().ok().done();
        }
    });
}

#[test]
fn on_the_host_nothing_is_called_enforced_and_what_asks_for_a_wall_is_refused() {
    each_user(|who| {
        let zone = [("allowed.example.com", serde_json::json!([ringfence_tests::TestNet::PUBLIC]))];
        let net = ringfence_tests::TestNet::new(who, &zone);
        let mut project = Project::new(who);
        net.host(&mut project);
        project.manifest(&hosts(&["allowed.example.com"]));
        project.lock();
        project.trust();
        project.python();
        project.file(
            "case.py",
            "from agent import *\nhttps('allowed', 'allowed.example.com:443')\ntry_connect('refused', 'other.example.com:443')\n",
        );
        let words = ["run", "--sandbox", "host", "--", ringfence_tests::PYTHON, "-B", "case.py"];
        let output = project.ringfence(&words).ok();
        assert!(output.stderr.contains("HOST / ADVISORY"), "{}", output.stderr);
        assert!(output.stderr.contains("warning: no wall"), "{}", output.stderr);
        let told = format!("{}{}", output.stdout, output.stderr);
        assert!(!told.contains("ENFORCED"), "{told}");
        let cases = Project::cases(output);
        assert!(cases.body("allowed").contains("tls host"), "{}", cases.get("allowed"));
        assert_eq!(cases.status("refused"), 403);
        let events = project.events();
        events.has("egress_decided", &[("host", "other.example.com"), ("outcome", "refused")]);
        events.has("run_started", &[("backend", "host")]);
        events.has("sandbox_started", &[("principal", "agent"), ("mode", "HOST / ADVISORY")]);
        assert!(events.with("sandbox_probed", &[]).is_empty(), "nothing was tried");
        let plan = project.ringfence(&["run", "--sandbox", "host", "--plan", "--", "true"]).ok();
        assert!(plan.stdout.contains("isolation   none"), "{}", plan.stdout);
        assert!(!plan.stdout.contains("ENFORCED"), "{}", plan.stdout);

        // It is never chosen by itself, and never where more is needed.
        let manifest = format!("{}\n[sandbox]\nisolation = \"network\"\n", SMALL);
        project.manifest(&manifest);
        project.lock();
        project.trust();
        let refused = project.ringfence(&["run", "--sandbox", "host", "--", "true"]).expect(3);
        assert!(refused.stderr.contains("needs `network` isolation"), "{}", refused.stderr);
    });
}
