//! `ringfence stop`

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use ringfence_tests::{Project, Started, each_user};
use rustix::process::Signal;

use crate::bundles::files;
use crate::cmd_logs::follow;

/// A bundle whose agent may write in `out`.
pub(crate) const OUT: &str = "write = [\"out/**\"]";

/// Starts a run that waits for ever, and returns when its agent is at work: it writes to a FIFO of the
/// project. Needs [`OUT`].
pub(crate) fn waiting(project: &Project) -> Started {
    waiting_in(project, &["/bin/sh", "-c", "echo up > out/ready; exec sleep 1000"])
}

/// The same with a command of its own, which says `up` into `out/ready`.
pub(crate) fn waiting_in(project: &Project, command: &[&str]) -> Started {
    waiting_behind(project, "native", command)
}

/// The same behind a backend.
pub(crate) fn waiting_behind(project: &Project, backend: &str, command: &[&str]) -> Started {
    let fifo = project.path().join("out/ready");
    project
        .shell(&["sh", "-c", "mkdir -p out && { test -p out/ready || mkfifo out/ready; }"])
        .ok()
        .done();
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut ready =
        OpenOptions::new().read(true).custom_flags(flags).open(fifo).expect("our own FIFO");
    let mut words = vec!["run", "--sandbox", backend, "--"];
    words.extend(command);
    let mut run = project.start(&words);
    let mut word = [0; 3];
    while ready.read(&mut word).unwrap_or(0) == 0 {
        if run.ends_within(Duration::from_millis(10)) {
            run.finish().ok().done();
            panic!("the agent ended before it was told to");
        }
    }
    assert_eq!(&word, b"up\n");
    run
}

#[test]
fn it_ends_a_run_and_its_evidence_is_whole() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let run = waiting(&project);
        let id = project.runs().pop().expect("a run");
        project.ringfence(&["stop", &id]).ok().done();
        let output = run.finish();
        assert_ne!(output.status, 0, "{}", output.stderr);
        project.events().has("run_finished", &[("ended_by", "stopped")]);
        project.ringfence(&["audit", "verify", "--run", &id]).ok().done();
        let again = project.ringfence(&["stop", &id]);
        assert_eq!(again.status, 1, "{}", again.stderr);
    });
}

/// An agent that does not end when it is asked to.
const DEAF: [&str; 3] =
    ["/bin/sh", "-c", "trap '' TERM HUP INT; echo up > out/ready; while :; do sleep 1000; done"];

#[test]
fn the_request_is_on_record_before_the_agent_is_ended_even_if_the_supervisor_dies_then() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let mut run = waiting_in(&project, &DEAF);
        let id = project.runs().pop().expect("a run");
        let (mut follow, mut lines) = follow(&project, &id);
        let first = lines.next().and_then(Result::ok).expect("the start is recorded");
        assert!(first.contains("started"), "{first}");
        let stop = project.start(&["stop", &id]);
        let asked = lines.by_ref().map_while(Result::ok).find(|l| l.contains("stop asked for"));
        let asked = asked.expect("it is in the record");
        assert!(asked.contains(&format!("by uid {}", who.uid())), "{asked}");
        // The agent does not listen and is given time: the run is not over.
        assert!(!run.ends_within(Duration::ZERO), "the request was recorded after the end");
        run.signal(Signal::KILL);
        run.finish().expect(137).done();
        stop.finish().done();
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        assert!(follow.wait().expect("it is ours").success(), "{rest:?}");
        let events = project.events();
        events.has("stop_requested", &[]);
        assert!(events.with("run_finished", &[]).is_empty(), "it was killed");
    });
}

#[test]
fn a_run_that_had_ended_by_itself_was_not_stopped() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        project.shell(&["sh", "-c", "mkdir -p out && mkfifo out/go"]).ok().done();
        let mut run =
            waiting_in(&project, &["/bin/sh", "-c", "echo up > out/ready; cat out/go; exit 7"]);
        let id = project.runs().pop().expect("a run");
        let status = |pid: u32, name: &str| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
            line.trim().to_owned()
        };
        // A supervisor that does not get to see what happens: the request first, then the end.
        let pid = run.pid();
        run.signal(Signal::STOP);
        let stop = project.start(&["stop", &id]);
        let term = 1_u64 << (Signal::TERM.as_raw() - 1);
        let pending = || u64::from_str_radix(&status(pid, "ShdPnd:"), 16).unwrap_or(0) & term != 0;
        let children = || {
            let tasks =
                std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
            let all = lists.map(Result::unwrap_or_default).collect::<Vec<_>>().join(" ");
            all.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        };
        let mut until = |met: &dyn Fn() -> bool| {
            while !met() {
                assert!(!run.ends_within(Duration::from_millis(5)), "it was stopped");
            }
        };
        until(&pending);
        assert!(!children().is_empty(), "the sandbox is the supervisor's child");
        std::fs::write(project.path().join("out/go"), "").expect("the agent reads it");
        until(&|| children().into_iter().any(|pid| status(pid, "State:").starts_with('Z')));
        run.signal(Signal::CONT);
        run.finish().expect(7).done();
        stop.finish().ok().done();
        let events = project.events();
        events.has("run_finished", &[("ended_by", "exit"), ("status", "7")]);
        assert!(events.with("stop_requested", &[]).is_empty(), "nothing ended by it");
    });
}

#[test]
fn an_unknown_or_doubtful_run_is_not_stopped() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        project.run(&["true"]).ok().done();
        let over = project.runs().pop().expect("a run");
        let (one, two) = (waiting(&project), waiting(&project));
        for id in ["nonsense", "20990101", "", "2", "../..", "*"] {
            let output = project.ringfence(&["stop", id]);
            assert!([1, 2].contains(&output.status), "{id:?}: {} {}", output.status, output.stderr);
        }
        let alive = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(alive["runs"].as_array().map(Vec::len), Some(2), "{alive}");
        // It names every one that may be meant, and what to type; one that is over is none of them.
        let doubt = project.ringfence(&["stop", "2"]).expect(1).stderr;
        for id in project.runs() {
            assert_eq!(doubt.contains(&id), id != over, "{doubt}");
        }
        let next = doubt.lines().find_map(|l| l.trim().strip_prefix("next: ringfence stop "));
        let next = next.expect("what to type").to_owned();
        assert!(next.len() < 24, "no more of the id than it takes: {next}");
        project.ringfence(&["stop", &next]).ok().done();
        let alive = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(alive["runs"].as_array().map(Vec::len), Some(1), "{alive}");
        let id = alive["runs"][0]["run"].as_str().expect("an id").to_owned();
        assert!(!id.starts_with(&next), "{id} {next}");
        // The only one that lives is meant, although others began so too.
        project.ringfence(&["stop", "2"]).ok().done();
        project.ringfence(&["stop", "2"]).expect(1).says(&["3 runs", "ringfence stop"]).done();
        project.ringfence(&["stop", &id]).expect(1).says(&["over already", "report"]).done();
        one.finish().done();
        two.finish().done();
    });
}
