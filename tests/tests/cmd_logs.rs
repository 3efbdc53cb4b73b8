//! `ringfence logs`

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use ringfence_tests::{Project, each_user};
use rustix::process::Signal;

use crate::bundles::files;
use crate::cmd_stop::{OUT, waiting, waiting_in};

#[test]
fn it_shows_a_run_line_by_line_and_what_it_shows_is_escaped() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        project.run(&["/bin/echo", "\u{1b}[31mred\u{7}"]).ok().done();
        let shown = project.ringfence(&["logs"]).ok().stdout;
        assert!(shown.contains("started") && shown.contains("finished with 0 (exit)"), "{shown}");
        assert!(!shown.contains('\u{1b}') && shown.contains("u{1b}"), "{shown}");
        let json = project.ringfence(&["logs", "last", "--json"]).ok().stdout;
        let last: serde_json::Value = serde_json::from_str(
            json.lines().rfind(|line| line.contains("run_finished")).unwrap_or("{}"),
        )
        .expect("each line is JSON");
        assert_eq!(last["event"]["ended_by"], "exit");
        project.ringfence(&["logs", "nonsense"]).expect(1).done();
    });
}

/// `logs -f` under way, and its lines.
pub(crate) fn follow(project: &Project, run: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let program = project.program().display().to_string();
    let mut follow = project.command(&[&program, "logs", run, "-f"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().expect("the program is there");
    let lines = BufReader::new(follow.stdout.take().expect("it is a pipe")).lines();
    (follow, lines)
}

#[test]
fn it_follows_a_run_to_its_end_and_says_when_there_was_none() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        for crash in [false, true] {
            let run = waiting(&project);
            let id = project.runs().pop().expect("a run");
            let (mut follow, mut lines) = follow(&project, &id);
            let mut next = || lines.next().and_then(Result::ok);
            // It shows what there is, and then waits.
            let first = next().expect("the start is recorded");
            assert!(first.contains("started"), "{first}");
            if crash {
                run.signal(Signal::KILL);
            } else {
                project.ringfence(&["stop", &id[..id.len() - 2]]).ok().done();
            }
            let rest: Vec<String> = std::iter::from_fn(next).collect();
            let (last, text) = (rest.last().expect("an end"), rest.join("\n"));
            if crash {
                assert!(last.contains("no end: Ringfence was killed"), "{text}");
                assert!(last.contains("no seal"), "{text}");
            } else {
                // It waits for the seal, and says nothing of it when it is there.
                let log = std::fs::read_to_string(project.state().join("log/machine.jsonl"));
                let log = log.expect("the machine's log");
                let sealed = log.lines().any(|l| l.contains("run_sealed") && l.contains(&id));
                assert!(sealed && !text.contains("no seal"), "{text}");
                assert!(text.contains("stop asked for by uid"), "{text}");
                assert!(last.contains("(stopped"), "{text}");
            }
            assert!(follow.wait().expect("it is ours").success());
            run.finish().done();
        }
    });
}

#[test]
fn it_ends_with_the_run_where_the_record_failed_before() {
    each_user(|who| {
        let mut project = Project::new(who);
        project.manifest(&files(OUT));
        project.lock();
        project.trust();
        project.python();
        project.shell(&["sh", "-c", "mkdir -p out && mkfifo out/go"]).ok().done();
        // Every connection that is refused is recorded, until there is no more room.
        project.file(
            "case.py",
            "import sys; sys.path.insert(0, '.')\nfrom agent import *\nopen('out/ready', 'w').write('up\\n')\nopen('out/go').read()\nwhile True:\n    try_connect('refused', 'other.example.com:443')\n",
        );
        let small = ["prlimit", "--fsize=300000", "env", "--ignore-signal=XFSZ"];
        project.inside(small.map(String::from).to_vec());
        let run = waiting_in(&project, &[ringfence_tests::PYTHON, "-B", "case.py"]);
        project.inside(Vec::new());
        let id = project.runs().pop().expect("a run");
        let (mut follow, mut lines) = follow(&project, &id);
        let first = lines.next().and_then(Result::ok).expect("the start is recorded");
        assert!(first.contains("started"), "{first}");
        std::fs::write(project.path().join("out/go"), "").expect("the agent reads it");
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        assert!(follow.wait().expect("it is ours").success());
        let text = rest.join("\n");
        assert!(text.contains("other.example.com"), "control: it followed: {text}");
        let last = rest.last().expect("an end");
        assert!(last.contains("no end") && last.contains("no seal"), "{text}");
        let output = run.finish().expect(255);
        assert!(output.stderr.contains("events.jsonl"), "{}", output.stderr);
    });
}
