//! Row 36: the supervisor killed with SIGKILL at any moment. The agent is dead within two seconds,
//! and the next start puts right what is left, without touching another live run.

use std::fs;
use std::time::{Duration, Instant};

use ringfence_tests::{Project, Started, Wall, each_user, held};
use rustix::process::Signal;

use crate::bundles::files;

/// Processes that have this word among their arguments, but for `ringfence run` itself.
fn alive(word: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is = |pid: u32| {
        let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).replace('\0', " ");
        text.contains(word) && !text.contains(" run -- ")
    };
    all.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(|pid| is(*pid)).collect()
}

/// Waits until the answer is yes, at most this long; how long it took.
fn until(time: Duration, yes: impl Fn() -> bool) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() < time {
        if yes() {
            return Some(start.elapsed());
        }
        // Nobody tells when a process that is not ours has gone: look again soon.
        std::thread::park_timeout(Duration::from_millis(5));
    }
    None
}

/// An agent that ignores what can be ignored, and has children and a daemon.
fn stubborn(project: &Project, word: &str) -> Started {
    let line = format!(
        "trap '' TERM INT HUP PIPE; setsid sh -c 'exec -a {word} sleep 1000' & (exec -a {word} sleep 1000) & exec -a {word} sleep 1000"
    );
    project.start(&["run", "--", "/bin/bash", "-c", &line])
}

#[test]
fn the_agent_dies_with_its_supervisor() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&files("write = [\"**\"]"));
        project.lock();
        project.trust();
        let word =
            format!("stubborn-{}", project.root().file_name().expect("a name").to_string_lossy());
        let run = stubborn(&project, &word);
        let started = until(Duration::from_secs(30), || !alive(&word).is_empty());
        assert!(started.is_some(), "control: the agent runs");
        let report = || project.ringfence(&["report"]).ok().stdout;
        assert!(report().contains("no end yet: the run is alive"), "{}", report());
        run.signal(Signal::KILL);
        let gone = until(Duration::from_secs(2), || alive(&word).is_empty());
        assert!(gone.is_some(), "alive two seconds after its supervisor: {:?}", alive(&word));
        drop(run);
        let listed = project.ringfence(&["ps", "--json"]).ok();
        assert_eq!(listed.json()["runs"], serde_json::json!([]), "{}", listed.stdout);
        assert!(report().contains("no end: Ringfence was killed"), "{}", report());
        assert_eq!(project.report()["ended"], false);
        project.run(&["true"]).ok().done();
        assert!(!report().contains("no end"), "control: {}", report());
        assert_eq!(project.report()["ended"], true);
        assert!(!project.path().join(".claude").exists(), "a placeholder was left");
    });
    held(&[36], Wall::Native);
}

#[test]
fn at_any_moment_of_the_start() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&files("write = [\"**\"]"));
        project.lock();
        project.trust();
        let before = project.picture(&project.path());
        let word =
            format!("moment-{}", project.root().file_name().expect("a name").to_string_lossy());
        for step in 0..24 {
            let mut run = stubborn(&project, &word);
            // The moments are spread over the time that a start takes.
            let ended = run.ends_within(Duration::from_millis(step * 4));
            assert!(!ended, "control: it would have gone on");
            run.signal(Signal::KILL);
            drop(run);
            let gone = until(Duration::from_secs(2), || alive(&word).is_empty());
            assert!(gone.is_some(), "killed after {} ms: {:?}", step * 4, alive(&word));
        }
        // The next start puts things right, and goes well.
        project.run(&["true"]).ok().done();
        assert_eq!(project.picture(&project.path()), before, "something was left in the project");
    });
}

#[test]
fn another_live_run_is_left_alone() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&files("write = [\"**\"]"));
        project.lock();
        project.trust();
        let name = project.root().file_name().expect("a name").to_string_lossy().into_owned();
        let (dies, lives) = (format!("dies-{name}"), format!("lives-{name}"));
        let survivor = stubborn(&project, &lives);
        let victim = stubborn(&project, &dies);
        let both = || !alive(&lives).is_empty() && !alive(&dies).is_empty();
        assert!(until(Duration::from_secs(30), both).is_some(), "control: both run");
        victim.signal(Signal::KILL);
        drop(victim);
        assert!(until(Duration::from_secs(2), || alive(&dies).is_empty()).is_some());
        project.run(&["true"]).ok().done();
        assert!(!alive(&lives).is_empty(), "the other run was ended too");
        let made = project.shell(&["ls", "-a"]).ok();
        assert!(made.stdout.contains(".ringfence"));
        survivor.signal(Signal::KILL);
        drop(survivor);
        assert!(until(Duration::from_secs(2), || alive(&lives).is_empty()).is_some());
    });
}
