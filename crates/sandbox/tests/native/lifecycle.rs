//! How a sandbox ends, and what is left then.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use ringfence_sandbox::Rule;

use crate::Test;
use crate::support::{Case, Placeholder, REFUSED, User};

pub const TESTS: &[Test] = &[
    ("killing_the_supervisor_kills_all", killing_the_supervisor_kills_all),
    ("killing_it_at_any_moment_leaves_nothing", killing_it_at_any_moment_leaves_nothing),
    ("a_sweep_puts_everything_back", a_sweep_puts_everything_back),
    ("a_live_run_keeps_shared_placeholders", a_live_run_keeps_shared_placeholders),
    ("the_end_of_the_agent_ends_all", the_end_of_the_agent_ends_all),
    ("exits_are_told_apart", exits_are_told_apart),
    ("orphans_are_collected", orphans_are_collected),
    ("a_missing_program_is_refused", a_missing_program_is_refused),
    ("it_is_available", it_is_available),
];

/// A grandchild that holds standard output open, so that its end can be awaited.
const STUBBORN: &str =
    "trap '' HUP INT TERM; (trap '' HUP INT TERM; setsid sleep 600) & echo up; sleep 600";

fn killing_the_supervisor_kills_all(user: User) {
    let mut case = Case::new(user);
    let mut child = case.start(STUBBORN);
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 3]).unwrap();
    let start = Instant::now();
    child.kill().unwrap();
    // The end comes when no process of the sandbox holds the pipe any more.
    assert_eq!(stdout.read(&mut [0; 1]).unwrap(), 0);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

fn killing_it_at_any_moment_leaves_nothing(user: User) {
    let mut case = Case::new(user);
    case.wish.probe = true;
    case.missing("held", Rule::ReadOnly, Placeholder::Dir);
    case.missing("folder", Rule::Pinned, Placeholder::Dir);
    case.missing("folder/file", Rule::ReadOnly, Placeholder::File("{}".into()));
    for moment in 0..40 {
        let mut child = case.start("exec sleep 600");
        // Wherever it is by then: before its namespaces, amid the mounts, in the probe, running.
        std::thread::sleep(Duration::from_micros(moment * 700));
        let start = Instant::now();
        child.kill().unwrap();
        // Everything that it starts holds this pipe, until it ends.
        assert_eq!(child.stdout.take().unwrap().read(&mut [0; 1]).unwrap(), 0);
        assert!(start.elapsed() < Duration::from_secs(2), "{moment}");
        child.wait().unwrap();
        // A process that is just dying may still hold a placeholder: then it stays written down.
        loop {
            ringfence_sandbox::sweep(&case.wish.run_dir).unwrap();
            if case.journals() == 0 {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(2), "{moment}");
            std::thread::yield_now();
        }
        assert_eq!(fs::read_dir(case.project()).unwrap().count(), 0, "{moment}");
    }
}

fn a_sweep_puts_everything_back(user: User) {
    let mut case = Case::new(user);
    case.wish.memory = Some(256 << 20);
    case.missing(".mcp.json", Rule::ReadOnly, Placeholder::File("{}".into()));
    case.missing(".claude/hooks", Rule::Masked, Placeholder::Dir);
    case.file("own/.keep", "");
    let mut child = case.start(STUBBORN);
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 3]).unwrap();
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(case.project()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), [".claude", ".mcp.json", "own"]);
    assert_eq!(case.journals(), 1);
    // An ordinary user can make no cgroup here.
    assert_eq!(case.groups().len(), usize::from(user == User::Root));
    child.kill().unwrap();
    child.wait().unwrap();
    let _ = stdout.read(&mut [0; 1]);
    assert_eq!(names().len(), 3, "a killed supervisor cleans nothing");
    ringfence_sandbox::sweep(&case.wish.run_dir).unwrap();
    assert_eq!(names(), ["own"]);
    assert_eq!((case.journals(), case.groups().len()), (0, 0));
    ringfence_sandbox::sweep(&case.wish.run_dir).unwrap();
    ringfence_sandbox::sweep(&case.outside().join("never")).unwrap();
}

fn a_live_run_keeps_shared_placeholders(user: User) {
    let mut first = Case::new(user);
    first.missing(".mcp.json", Rule::ReadOnly, Placeholder::File("{}".into()));
    first.rule("", Rule::Writable);
    first.wish.mounts.reverse();
    let mut other = Case::new(user);
    other.wish.project.clone_from(&first.wish.project);
    // The second one may well know it only as something that is there.
    other.rule("", Rule::Writable).rule(".mcp.json", Rule::ReadOnly);
    let mut maker = first.start("echo up; exec sleep 600");
    let mut stdout = maker.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 3]).unwrap();
    // The second one finds the placeholder and stands on it.
    let mut second =
        other.start("echo up; while [ ! -e go ]; do sleep 0.02; done; (echo evil > .mcp.json) 2>/dev/null; rm -f .mcp.json 2>/dev/null; cat .mcp.json");
    let mut second_out = second.stdout.take().unwrap();
    second_out.read_exact(&mut [0; 3]).unwrap();
    let init = rustix::process::Pid::from_raw(i32::try_from(first.report().pid).unwrap()).unwrap();
    rustix::process::kill_process(init, rustix::process::Signal::KILL).unwrap();
    maker.wait().unwrap();
    assert!(first.project().join(".mcp.json").exists(), "the second run stands on it");
    assert_eq!(first.journals(), 1);
    first.file("go", "");
    let mut said = String::new();
    second_out.read_to_string(&mut said).unwrap();
    assert_eq!(said, "{}");
    assert!(second.wait().unwrap().success());
    ringfence_sandbox::sweep(&first.wish.run_dir).unwrap();
    assert!(!first.project().join(".mcp.json").exists());
}

fn the_end_of_the_agent_ends_all(user: User) {
    let mut case = Case::new(user);
    let mut child =
        case.start("trap '' HUP; (trap '' HUP INT TERM; exec setsid sleep 600) & echo up; exit 5");
    let mut said = String::new();
    // Only when the sleeper is gone too does the pipe end.
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "up\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

fn exits_are_told_apart(user: User) {
    let mut case = Case::new(user);
    case.sh("exit 0").ends(0);
    case.sh("exit 42").ends(42);
    case.sh("kill -TERM $$").ends(128 + libc::SIGTERM);
    case.sh("kill -SEGV $$").ends(128 + libc::SIGSEGV);
}

fn orphans_are_collected(user: User) {
    let mut case = Case::new(user);
    let script = "for i in 1 2 3 4 5; do (sh -c 'exit 0' & ) ; done
        i=0; while grep -l '^State:.Z' /proc/[0-9]*/status > /dev/null 2>&1 && [ $i -lt 200 ]; do sleep 0.01; i=$((i+1)); done
        [ $i -lt 200 ] && echo collected";
    assert_eq!(case.sh(script).fine(), "collected\n");
}

fn a_missing_program_is_refused(user: User) {
    let mut case = Case::new(user);
    let missing = case.outside().join("missing");
    for program in [missing.to_str().unwrap(), "relative", "/etc/passwd"] {
        let ran = case.run(&[program]);
        ran.ends(i32::from(REFUSED));
        assert!(ran.stderr().contains(program), "{}", ran.stderr());
    }
    // Its loader is not there: that shows only when it is executed.
    case.file("script", "#!/bin/sh\necho ran\n");
    case.file("broken", "#!/proc/none\n");
    let (script, broken) = (case.project().join("script"), case.project().join("broken"));
    for path in [&script, &broken] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    assert_eq!(case.run(&[script.to_str().unwrap()]).fine(), "ran\n");
    case.run(&[broken.to_str().unwrap()]).ends(i32::from(REFUSED));
}

fn it_is_available(user: User) {
    let case = Case::new(user);
    let out = case.supervisor().env("ONLY_TRY", "1").output().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "available\n");
}
