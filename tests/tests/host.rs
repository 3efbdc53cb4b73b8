//! The backend `host`: no wall, and what is kept all the same.

use std::os::fd::OwnedFd;

use ringfence_tests::{Project, Started, each_user};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::bundles::files;
use crate::cmd_stop::{OUT, waiting_behind};

/// Lets go of a process as a daemon does, twice over, and says its id.
const DAEMON: &str = "(setsid sh -c 'echo $$ > out/daemon; exec sleep 1000' </dev/null >/dev/null 2>&1 &); \
                      while ! [ -s out/daemon ]; do :; done; echo $$ > out/agent; ";

/// A run whose agent has let a daemon go, and both processes.
fn family(project: &Project, end: &str) -> (Started, [OwnedFd; 2]) {
    let _ = std::fs::remove_file(project.path().join("out/daemon"));
    let script = format!("{DAEMON}echo up > out/ready; {end}");
    let run = waiting_behind(project, "host", &["/bin/sh", "-c", &script]);
    let both = ["agent", "daemon"].map(|name| {
        let text = std::fs::read_to_string(project.path().join("out").join(name));
        let pid = text.expect("it says so").trim().parse().ok().and_then(Pid::from_raw);
        pidfd_open(pid.expect("a process id"), PidfdFlags::empty()).expect("it lives")
    });
    (run, both)
}

/// Whether a process is gone after at most so many seconds.
fn gone(process: &OwnedFd, seconds: i64) -> bool {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let mut one = [PollFd::new(process, PollFlags::IN)];
    poll(&mut one, Some(&time)).expect("it can be waited for") > 0
}

#[test]
fn what_an_agent_without_a_wall_starts_ends_with_it() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        project.shell(&["sh", "-c", "mkdir -p out && mkfifo out/go"]).ok().done();
        let (run, [agent, daemon]) = family(&project, "cat out/go; exit 7");
        assert!(!gone(&agent, 0) && !gone(&daemon, 1), "control: it outlives its parent");
        std::fs::write(project.path().join("out/go"), "").expect("the agent reads it");
        run.finish().expect(7).done();
        assert!(gone(&agent, 0) && gone(&daemon, 0), "before the run is over");
        project.events().has("run_finished", &[("ended_by", "exit"), ("status", "7")]);
    });
}

#[test]
fn it_and_what_it_starts_end_with_the_supervisor_and_with_a_stop() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        // One that does not listen, and the process between it and the supervisor is stopped by nothing.
        for deaf in ["exec sleep 1000", "trap '' TERM HUP INT; while :; do sleep 1000; done"] {
            let (run, both) = family(&project, deaf);
            assert!(both.iter().all(|process| !gone(process, 0)), "control: both live");
            run.signal(Signal::KILL);
            run.finish().expect(137).done();
            assert!(both.iter().all(|process| gone(process, 2)), "the supervisor is dead");
            let (run, both) = family(&project, deaf);
            let id = project.runs().pop().expect("a run");
            project.ringfence(&["stop", &id]).ok().done();
            assert_ne!(run.finish().status, 0);
            assert!(both.iter().all(|process| gone(process, 0)), "the run is over");
            project.events().has("run_finished", &[("ended_by", "stopped")]);
        }
    });
}

#[test]
fn how_an_agent_without_a_wall_ends_is_told_as_it_is() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let run = |script: &str| {
            project.ringfence(&["run", "--sandbox", "host", "--", "/bin/sh", "-c", script])
        };
        run("exit 0").ok().done();
        run("exit 255").expect(255).done();
        project.events().has("run_finished", &[("ended_by", "exit"), ("status", "255")]);
        run("kill -SEGV $$").expect(139).done();
        project.events().has("run_finished", &[("ended_by", "signal"), ("status", "139")]);
        project.file("broken", "#!/nonexistent/program\n");
        project.shell(&["chmod", "755", "broken"]).ok().done();
        let broken = project.path().join("broken").display().to_string();
        let output = project.ringfence(&["run", "--sandbox", "host", "--", &broken]);
        assert_eq!(output.status, 255, "{}", output.stderr);
        output.says(&["execute", "No such file"]).done();
    });
}

#[test]
fn limits_that_nobody_keeps_are_said_to_be_none() {
    each_user(|who| {
        let limits =
            "\n\n[sandbox]\nmemory_mb = 512\npids = 100\n\n[limits]\nmax_duration_seconds = 3600\n";
        let project = Project::ready(who, &format!("{}{limits}", files(OUT)));
        let plan = |backend: &str| {
            project.ringfence(&["run", "--sandbox", backend, "--plan", "--", "true"]).ok().stdout
        };
        let (host, native) = (plan("host"), plan("native"));
        for limit in ["memory: 512 MiB", "pids: 100"] {
            let kept = |plan: &str| {
                let line = plan.lines().find(|line| line.contains(limit)).expect(limit);
                !line.contains("not kept")
            };
            assert!(kept(&native) && !kept(&host), "{host}{native}");
        }
        assert!(host.contains("duration: 3600 s (enforced)"), "{host}");
        let words = ["run", "--sandbox", "host", "--", "true"];
        project.ringfence(&words).ok().says(&["not kept: memory"]).done();
        let told = project.run(&["true"]).ok().stderr;
        assert!(!told.contains("not kept"), "{told}");
    });
}
