//! `ringfence stop`

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use ringfence_tests::{Project, Started, each_user};

use crate::bundles::files;

/// A bundle whose agent may write in `out`.
pub(crate) const OUT: &str = "write = [\"out/**\"]";

/// Starts a run that waits for ever, and returns when its agent is at work: it writes to a FIFO of the
/// project. Needs [`OUT`].
pub(crate) fn waiting(project: &Project) -> Started {
    let fifo = project.path().join("out/ready");
    project
        .shell(&["sh", "-c", "mkdir -p out && { test -p out/ready || mkfifo out/ready; }"])
        .ok()
        .done();
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut ready =
        OpenOptions::new().read(true).custom_flags(flags).open(fifo).expect("our own FIFO");
    let mut run =
        project.start(&["run", "--", "/bin/sh", "-c", "echo up > out/ready; exec sleep 1000"]);
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

#[test]
fn an_unknown_or_doubtful_run_is_not_stopped() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let (one, two) = (waiting(&project), waiting(&project));
        for id in ["nonsense", "20990101", "", "2", "../..", "*"] {
            let output = project.ringfence(&["stop", id]);
            assert!([1, 2].contains(&output.status), "{id:?}: {} {}", output.status, output.stderr);
        }
        let alive = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(alive["runs"].as_array().map(Vec::len), Some(2), "{alive}");
        for id in project.runs() {
            project.ringfence(&["stop", &id]).ok().done();
        }
        one.finish().done();
        two.finish().done();
    });
}
