//! `ringfence logs`

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use ringfence_tests::{Project, each_user};
use rustix::process::Signal;

use crate::bundles::files;
use crate::cmd_stop::{OUT, waiting};

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

#[test]
fn it_follows_a_run_to_its_end_and_says_when_there_was_none() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        for crash in [false, true] {
            let run = waiting(&project);
            let id = project.runs().pop().expect("a run");
            let program = project.program().display().to_string();
            let mut follow = project.command(&[&program, "logs", &id, "-f"]);
            let mut follow = follow.stdout(Stdio::piped()).spawn().expect("the program is there");
            let mut lines = BufReader::new(follow.stdout.take().expect("it is a pipe")).lines();
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
            } else {
                assert!(text.contains("stop asked for by uid"), "{text}");
                assert!(last.contains("(stopped"), "{text}");
            }
            assert!(follow.wait().expect("it is ours").success());
            run.finish().done();
        }
    });
}
