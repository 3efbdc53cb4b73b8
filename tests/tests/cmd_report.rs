//! `ringfence report`

use ringfence_tests::{Events, Project, each_user};

use crate::bundles::MIRROR;

#[test]
fn it_tells_people_and_programs_the_same() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        let cases =
            project.agent("m = Mcp('mirror')\nm.call('yes', 'raw')\nm.call('no', 'secret_tool')");
        cases.answered("yes");
        let id = project.runs().pop().expect("a run");
        let words = project.ringfence(&["report", &id]).ok().stdout;
        for word in [id.as_str(), "allowed", "refused", "raw", "secret_tool"] {
            assert!(words.contains(word), "{word} is missing:\n{words}");
        }
        let events = Events::from_value(&project.report());
        events.has("call_decided", &[("tool", "raw"), ("outcome", "allowed")]);
        events.has("call_decided", &[("tool", "secret_tool"), ("outcome", "refused")]);
        events.has("call_settled", &[("result", "answered")]);
        events.has("run_finished", &[("status", "0")]);
        // The beginning of an id is enough when it is the only one.
        project.ringfence(&["report", &id[..id.len() - 2]]).ok().done();
    });
}

#[test]
fn what_an_agent_chose_is_shown_escaped() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        let cases = project.agent("Mcp('mirror').call('odd', 'evil\\x1b[2Jtool\\r\\nallowed call raw\\u202e')\ntry_connect('host', b'evil\\x1b]0;x\\x07.example.com:443')");
        cases.not_answered("odd");
        let id = project.runs().pop().expect("a run");
        let shown = project.ringfence(&["report", &id]).ok();
        for text in [&shown.stdout, &cases.output.stderr] {
            assert!(
                !text.contains('\u{1b}') && !text.contains('\r') && !text.contains('\u{202e}'),
                "{text:?}"
            );
        }
        assert!(shown.stdout.contains("evil"), "{}", shown.stdout);
    });
}

#[test]
fn an_unknown_run_is_the_persons_error() {
    each_user(|who| {
        let project = Project::ready(who, crate::bundles::SMALL);
        for id in ["nonsense", "../../etc", "/etc/passwd", ""] {
            let output = project.ringfence(&["report", id]);
            assert!([1, 2].contains(&output.status), "{id:?}: {}", output.stderr);
        }
        project.run(&["true"]).ok().done();
        project.ringfence(&["report", "last"]).ok().done();
    });
}

#[test]
fn the_last_run_is_that_of_the_project_here_and_else_the_machines() {
    each_user(|who| {
        let project = Project::ready(who, crate::bundles::SMALL);
        project.run(&["true"]).ok().done();
        let first = project.runs().pop().expect("a run");
        let program = project.program().display().to_string();
        // Another project of the same machine.
        let other = project.root().join("home/other");
        std::fs::create_dir_all(other.join(".ringfence")).expect("our own folder");
        std::fs::write(other.join(".ringfence/ringfence.toml"), crate::bundles::SMALL)
            .expect("our own file");
        for path in ["home/other", "home/other/.ringfence", "home/other/.ringfence/ringfence.toml"]
        {
            who.own(&project.root().join(path));
        }
        let there = other.display().to_string();
        let elsewhere = |folder: &str, args: &[&str]| {
            let words = [&[program.as_str(), "-C", folder], args].concat();
            project.shell(&words).ok()
        };
        let before = elsewhere(&there, &["report"]);
        assert!(before.stdout.contains(&first), "{}", before.stdout);
        before.says(&["no run of a project here: this is the machine's last"]).done();
        elsewhere(&there, &["lock"]).done();
        let preview = elsewhere(&there, &["trust", "--preview", "--json"]).json();
        let digest = preview["review_digest"].as_str().expect("a digest").to_owned();
        elsewhere(&there, &["trust", "--yes", "--consented", &digest]).done();
        elsewhere(&there, &["run", "--", "true"]).done();
        let second = project.runs().pop().expect("a run");
        assert_ne!(first, second);
        // Here its own, though the other's is newer; there the other's; the folder is the heading.
        for (report, folder, id) in [
            (project.ringfence(&["report"]).ok(), project.path().display().to_string(), &first),
            (
                project.ringfence(&["report", "last"]).ok(),
                project.path().display().to_string(),
                &first,
            ),
            (elsewhere(&there, &["report"]), there.clone(), &second),
            (elsewhere("/", &["report"]), there.clone(), &second),
            (project.ringfence(&["report", &second]).ok(), there.clone(), &second),
        ] {
            let mut lines = report.stdout.lines();
            assert_eq!(lines.next(), Some(format!("project {folder}").as_str()));
            assert_eq!(lines.next(), Some(format!("run {id}").as_str()));
            report.done();
        }
        let json = project.ringfence(&["report", "--json"]).ok().json();
        assert_eq!(json["project"], project.path().display().to_string());
    });
}

#[test]
fn what_the_probe_tried_is_as_short_as_after_a_run_and_whole_in_json() {
    each_user(|who| {
        let project = Project::ready(who, crate::bundles::SMALL);
        let run = project.run(&["true"]).ok();
        let probes = |text: &str| -> Vec<String> {
            text.lines().filter(|l| l.contains("refused  probe")).map(str::to_owned).collect()
        };
        let shown = probes(&project.ringfence(&["report"]).ok().stdout);
        assert!((1..=4).contains(&shown.len()), "{shown:#?}");
        assert_eq!(shown, probes(&run.stderr));
        let events = Events::from_value(&project.report());
        let probed = events.has("sandbox_probed", &[("principal", "agent")]);
        assert!(probed["attempts"].as_array().expect("a list").len() > 20, "{probed}");
        // The probe's own request to the proxy is no decision.
        events.lacks("egress_decided", &[]);
        run.done();
    });
}

/// Says why it cannot go on, with its secret, and ends; or waits for ever.
const FAILING: &str = "import os, sys, time\n\
    for n in range(9): print('line', n, file=sys.stderr)\n\
    print('key', os.environ['KEY'], '\\x1b[2J', 'é' * 300, file=sys.stderr)\n\
    print('MISSING CONFIG: set FOO', file=sys.stderr, flush=True)\n\
    if os.path.exists('killed'): os.kill(os.getpid(), 9)\n\
    sys.exit(3)\n";

const FAILS: &str = r#"version = 1

[agent]
name = "case"

[servers.notes]
type = "stdio"
command = "/usr/bin/python3"
args = ["notes.py"]
env = { KEY = "${NOTES_KEY}" }
"#;

#[test]
fn a_server_that_dies_leaves_its_status_and_its_last_words_to_the_person_alone() {
    each_user(|who| {
        let mut project = Project::new(who);
        project.env("NOTES_KEY", "k9-value-of-the-key");
        project.python();
        project.manifest(FAILS);
        project.file("notes.py", FAILING);
        project.lock();
        project.trust();
        let good = "its stderr ends: line 6 | line 7 | line 8 | key ";
        let last = " | MISSING CONFIG: set FOO";
        for (end, next) in
            [("it exited with status 3", "killed"), ("it was killed by signal 9", "x")]
        {
            let asked = project.ringfence(&["lock", "--tools"]).expect(1);
            let cases = project.agent(
                "hello = {'protocolVersion': '2025-06-18', 'capabilities': {}, 'clientInfo': {'name': 'c', 'version': '0'}}\n\
                 print(Mcp('notes', start=False).post({'jsonrpc': '2.0', 'id': 0, 'method': 'initialize', 'params': hello}))",
            );
            let report = project.ringfence(&["report"]).ok();
            let row = report.stdout.lines().find(|l| l.contains("failed   call")).unwrap_or("");
            assert!(row.contains("notes: initialize"), "{}", report.stdout);
            for text in [&asked.stderr, &report.stdout, &cases.output.stderr] {
                for word in [end, good, last, "…", "\\u{1b}[2J"] {
                    assert!(text.contains(word), "{word} is missing:\n{text}");
                }
                assert!(!text.contains("k9-value") && !text.contains('\u{1b}'), "{text}");
                assert!(!text.contains(&"é".repeat(200)) && !text.contains("line 5"), "{text}");
            }
            let seen = &cases.output.stdout;
            assert!(seen.contains("ended the connection"), "{seen}");
            for word in ["MISSING", "status 3", "signal 9", "line 8"] {
                assert!(!seen.contains(word), "{seen}");
            }
            // Started again and again, and nobody connected to anything.
            let events = Events::from_value(&project.report());
            assert!(events.with("sandbox_started", &[("principal", "notes")]).len() > 1);
            events.lacks("egress_decided", &[]);
            events.has("call_settled", &[("result", "failed")]);
            project.file(next, "");
        }
    });
}
