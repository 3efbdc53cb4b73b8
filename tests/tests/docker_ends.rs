//! The sandboxes `docker` and `lockdown`: when a run ends, and when it does not.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ringfence_tests::{Engine, PYTHON, Project, Screen, TestNet, Wall, Who, each_user, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::bundles::files;
use crate::docker;

fn ready(who: Who) -> (TestNet, Engine, Project) {
    let (net, engine, project) = docker::ready(who, Wall::Docker, &files("write = [\"**\"]"));
    (net, engine.expect("it has one"), project)
}

#[test]
fn an_agent_that_lets_go_of_its_streams_goes_on() {
    each_user(|who| {
        let (_net, engine, project) = ready(who);
        // More than the time after which an engine that says nothing counts as gone.
        let script = "exec </dev/null >/dev/null 2>&1; sleep 2; exit 9";
        let began = Instant::now();
        project.run(&["sh", "-c", script]).expect(9).done();
        assert!(began.elapsed() > Duration::from_secs(2));
        project.events().has("run_finished", &[("ended_by", "exit"), ("status", "9")]);
        // And what watches over it then is still there: the engine's end is its own.
        let script = "exec </dev/null >/dev/null 2>&1; sleep 600";
        let run = project.start(&["run", "--sandbox", "docker", "--", "sh", "-c", script]);
        let running = || engine.docker(&["ps", "--quiet", "--filter=name=-agent"]);
        eventually("the agent's start", || {
            project.events_text().contains("sandbox_started") && !running().is_empty()
        });
        engine.docker(&["kill", running().trim()]);
        assert_ne!(run.finish().status, 0);
        assert_eq!(engine.left(), Vec::<String>::new());
    });
}

/// Wants every turn of every CPU, and everything that would keep the container's process 1 from its own.
const SPIN: &str = r#"
import os, sys
for number in range(150):
    if os.fork() == 0:
        while True: pass
# And ended processes without pause, which only process 1 collects.
for number in range(4):
    if os.fork() == 0:
        while True:
            if os.fork() == 0:
                if os.fork() == 0: os._exit(0)
                os._exit(0)
            os.wait()
print("SPINNING", flush=True)
while True: pass
"#;

#[test]
fn an_agent_that_wants_every_turn_ends_with_its_supervisor() {
    let (_net, engine, project) = ready(Who::Itself);
    let words = ["run", "--sandbox", "docker", "--", PYTHON, "-c", SPIN];
    let run = project.start(&words);
    eventually("the agents", || engine.agents() > 150);
    run.signal(Signal::KILL);
    let began = Instant::now();
    while engine.agents() > 0 && began.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "they lived on for {took:?}");
    drop(run.finish());
    project.ringfence(&["clean"]).ok().done();
    // A person's own stop takes longer where everything waits for a turn, and comes to its end too.
    let run = project.start(&words);
    eventually("the agents", || engine.agents() > 150);
    run.signal(Signal::TERM);
    run.finish().expect(143).done();
    assert_eq!(engine.agents(), 0);
    assert_eq!(engine.left(), Vec::<String>::new());
}

#[test]
fn no_keys_make_an_engine_let_go_of_the_terminal() {
    each_user(|who| {
        let (_net, _engine, project) = ready(who);
        let script = "import tty, sys, os\ntty.setraw(0)\nos.write(1, b'READY')\ngot = b''\n\
                      while len(got) < 3: got += os.read(0, 3)\n\
                      os.write(1, got.hex().encode())\nsys.exit(4)";
        let words = ["run", "--sandbox", "docker", "--", PYTHON, "-c", script];
        let screen = Screen::start(&project, &words);
        screen.shows("READY");
        // By default these make the engine's client, and with it us, leave.
        screen.send("\x10\x11x");
        screen.shows("101178");
        let (status, shown) = screen.finish();
        assert_eq!(status, 4, "{shown}");
    });
}

#[test]
fn an_engine_that_stands_still_delays_the_end_and_loses_nothing_of_it() {
    each_user(|who| {
        let (_net, engine, project) = ready(who);
        let script = "echo first; while ! [ -e go ]; do sleep 0.1; done; echo last; exit 3";
        let run = project.start(&["run", "--sandbox", "docker", "--", "sh", "-c", script]);
        eventually("the agent's start", || {
            !project.runs().is_empty() && project.events_text().contains("sandbox_started")
        });
        let pid = i32::try_from(engine.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::STOP).expect("it is up");
        project.file("go", "");
        // Some of the turns in which the supervisor looks at its limits.
        std::thread::sleep(Duration::from_secs(2));
        kill_process(pid, Signal::CONT).expect("it is up");
        let output = run.finish().expect(3);
        assert_eq!(output.stdout, "first\nlast\n");
        assert_eq!(engine.left(), Vec::<String>::new());
    });
}

#[test]
fn whoever_reads_slowly_reads_everything() {
    let (_net, engine, project) = ready(Who::Itself);
    let program = project.program().display().to_string();
    let path = project.path().display().to_string();
    let script = "head -c 300000 /dev/zero | tr '\\0' x; : > written";
    let words = [&program, "-C", &path, "run", "--sandbox", "docker", "--", "sh", "-c", script];
    let mut command = project.command(&words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut run = command.spawn().expect("it is there");
    eventually("the agent's last word", || project.path().join("written").exists());
    eventually("the container's end", || {
        engine.docker(&["ps", "--quiet", "--filter=name=-agent"]).is_empty()
    });
    // Longer than an engine has to bring what was written.
    std::thread::sleep(Duration::from_secs(12));
    let mut read = Vec::new();
    run.stdout.take().expect("a pipe").read_to_end(&mut read).expect("a pipe");
    assert_eq!(read.len(), 300_000);
    assert!(run.wait().expect("it is ours").success());
    assert!(fs::exists(project.path().join("written")).is_ok_and(|there| there));
}

/// An image that another build of this program made seven years ago: a folder for `docker load`.
const OLD: &str = r#"set -e
cd "$3"
mkdir old && cd old
head -c 1024 /dev/zero > layer.tar
id=$(sha256sum < layer.tar | cut -d' ' -f1)
printf '{"created":"%s","architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$1" "$id" > config.json
printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$2" > manifest.json
tar -cf ../old.tar layer.tar config.json manifest.json
cd .. && rm -r old"#;

#[test]
fn what_older_builds_needed_goes_with_the_first_run_of_a_new_one() {
    let (_net, engine, project) = ready(Who::Itself);
    let now = "2999-01-01T00:00:00Z";
    for (created, name) in [
        ("2020-01-01T00:00:00Z", "ringfence-sidecar:old"),
        // The controls: one that may just be starting, and one that is somebody else's.
        (now, "ringfence-sidecar:new"),
        ("2020-01-01T00:00:00Z", "somebody-elses:old"),
    ] {
        let folder = project.path().display().to_string();
        project.shell(&["sh", "-c", OLD, "sh", created, name, &folder]).ok().done();
        engine.docker(&["load", "--input", &format!("{folder}/old.tar")]);
    }
    project.run(&["true"]).ok().done();
    let there = engine.docker(&["image", "ls", "--format={{.Repository}}:{{.Tag}}"]);
    assert!(!there.contains("ringfence-sidecar:old"), "{there}");
    assert!(there.contains("ringfence-sidecar:new"), "{there}");
    assert!(there.contains("somebody-elses:old"), "{there}");
    // A name says nothing: what was made is known by what is in it.
    let own = there
        .lines()
        .find(|name| name.starts_with("ringfence-sidecar:") && !name.ends_with(":new"));
    engine.docker(&["tag", Engine::AGENT, own.expect("it made one")]);
    project.run(&["true"]).ok().done();
}
