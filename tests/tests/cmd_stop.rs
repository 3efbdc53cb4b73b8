//! `ringfence stop`

use std::io::Read;

use ringfence_tests::{Project, Started, each_user};

use crate::bundles::{SMALL, files};

/// Starts a run that waits for ever, and returns when its agent is at work: it opens a FIFO of the
/// project, which is an event that can be awaited.
pub(crate) fn waiting(project: &Project) -> Started {
    let fifo = project.path().join("ready");
    project.shell(&["sh", "-c", "test -p ready || mkfifo ready"]).ok().done();
    let run = project.start(&["run", "--", "/bin/sh", "-c", "echo up > ready; exec sleep 1000"]);
    let mut word = String::new();
    std::fs::File::open(fifo).expect("our own FIFO").read_to_string(&mut word).expect("the agent writes");
    assert_eq!(word, "up\n");
    run
}

#[test]
fn it_ends_a_run_and_its_evidence_is_whole() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
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
        let project = Project::ready(who, &files("write = [\"out/**\"]"));
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
