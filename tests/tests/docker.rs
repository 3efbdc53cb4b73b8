//! The sandboxes `docker` and `lockdown`: what is theirs alone, on a real engine.

use std::time::{Duration, Instant};

use ringfence_tests::{
    Engine, Project, TestNet, Wall, Who, each_user, each_wall, eventually, held,
};
use rustix::process::Signal;
use serde_json::json;

use crate::bundles::hosts;

/// A network with one allowed host, and a project behind a wall in it.
pub(crate) fn ready(who: Who, wall: Wall, manifest: &str) -> (TestNet, Option<Engine>, Project) {
    let zone = [("allowed.example.com", json!([TestNet::PUBLIC]))];
    let net = TestNet::new(who, &zone);
    let mut project = Project::new(who);
    let engine = wall.around(&mut project, &net);
    project.manifest(manifest);
    project.lock();
    project.trust();
    (net, engine, project)
}

#[test]
fn a_container_is_as_good_as_a_process() {
    each_user(|who| {
        let (net, engine, project) = ready(who, Wall::Docker, &hosts(&["allowed.example.com"]));
        let engine = engine.expect("it has an engine");
        // Output, errors and status are the agent's own.
        let output = project.run(&["sh", "-c", "echo out; echo err >&2; exit 7"]).expect(7);
        assert_eq!(output.stdout, "out\n");
        assert!(output.stderr.contains("err\n") && output.stderr.contains("DOCKER / ENFORCED"));
        // What is allowed is reached by the proxy beside it, and recorded.
        let cases = project.agent(r#"https("allowed", "allowed.example.com:443")"#);
        assert!(cases.body("allowed").contains("tls host"), "{}", cases.get("allowed"));
        net.saw("tls", "allowed.example.com");
        let events = project.events();
        let image = events.has("sandbox_image", &[("image", Engine::AGENT), ("runtime", "runc")]);
        assert!(image["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")));
        events.has("sandbox_probed", &[("tight", "true")]);
        events.has("egress_decided", &[("host", "allowed.example.com"), ("outcome", "allowed")]);
        let closed = events.has("egress_closed", &[("reason", "closed")]);
        assert!(closed["sent"].as_u64().is_some_and(|sent| sent > 0));
        project.ringfence(&["audit", "verify"]).ok().done();
        assert_eq!(engine.left(), Vec::<String>::new());
    });
}

#[test]
fn each_run_is_one_row_whatever_it_runs_behind() {
    let (_net, engine, project) = ready(Who::Itself, Wall::Docker, &hosts(&[]));
    let sandboxes = ["docker", "lockdown", "native", "host"];
    let runs = sandboxes.map(|sandbox| {
        let before = project.runs();
        let mut run = project.start(&["run", "--sandbox", sandbox, "--", "sleep", "1000"]);
        let mut id = None;
        eventually("the agent's start", || {
            assert!(!run.ends_within(Duration::ZERO), "{sandbox}: it has ended");
            id = project.runs().into_iter().find(|id| !before.contains(id) && !id.starts_with('.'));
            let record = id.as_ref().map(|id| project.state().join("runs").join(id));
            let text = record.map(|run| std::fs::read_to_string(run.join("events.jsonl")));
            text.is_some_and(|text| text.is_ok_and(|text| text.contains("sandbox_started")))
        });
        (run, id.expect("a run"), sandbox)
    });
    let label = |sandbox: &str| {
        let worth = if sandbox == "host" { "ADVISORY" } else { "ENFORCED" };
        format!("{} / {worth}", sandbox.to_uppercase())
    };
    // The label stands there a moment after the record says it.
    eventually("the labels", || {
        let text = project.ringfence(&["ps"]).ok().stdout;
        runs.iter().all(|(_, id, sandbox)| {
            let rows: Vec<_> = text.lines().filter(|line| line.contains(&**id)).collect();
            assert_eq!(rows.len(), 1, "{text}");
            rows[0].contains(&label(sandbox))
        })
    });
    let json = project.ringfence(&["ps", "--json"]).ok().json();
    let rows = json["runs"].as_array().expect("a list");
    assert_eq!(rows.len(), sandboxes.len(), "{json}");
    for (run, id, sandbox) in runs {
        let row = rows.iter().find(|row| row["run"] == id).expect("its row");
        assert_eq!((&row["backend"], &row["mode"]), (&sandbox.into(), &label(sandbox).into()));
        project.ringfence(&["stop", &id]).ok().done();
        run.finish().done();
    }
    assert_eq!(engine.expect("it has an engine").left(), Vec::<String>::new());
}

#[test]
fn clean_says_what_of_a_crashed_run_was_in_the_engine() {
    let (_net, engine, project) = ready(Who::Itself, Wall::Docker, &hosts(&[]));
    let engine = engine.expect("it has an engine");
    let run = project.start(&["run", "--sandbox", "docker", "--", "sleep", "1000"]);
    eventually("the agent's start", || {
        !project.runs().is_empty() && project.events_text().contains("sandbox_started")
    });
    run.signal(Signal::KILL);
    run.finish().expect(137).done();
    let told = project.ringfence(&["clean", "--json"]).ok().json();
    let removed = &told["cleaned"]["removed"];
    // Containers that have ended may be gone by themselves; networks and mounts are not.
    assert!(removed["networks"].as_u64().is_some_and(|number| number > 0), "{told}");
    assert!(removed["mounts"].as_u64().is_some_and(|number| number > 0), "{told}");
    assert_eq!((&told["cleaned"]["runs"], &removed["folders"]), (&1.into(), &1.into()), "{told}");
    assert_eq!(engine.left(), Vec::<String>::new());
    let again = project.ringfence(&["clean"]).ok().stderr;
    assert!(again.contains("nothing was left behind"), "{again}");
}

/// The words with which every process of this machine was started.
fn argument_lists() -> String {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_secret_is_in_no_argument_and_in_nothing_that_an_engine_tells() {
    each_wall(&[30], |who, wall| {
        let mut manifest = hosts(&["allowed.example.com"]);
        manifest.push_str("\n[sandbox]\ncredentials = [\"CASE_KEY\"]\n");
        let net = TestNet::new(who, &[("allowed.example.com", json!([TestNet::PUBLIC]))]);
        let mut project = Project::new(who);
        let engine = wall.around(&mut project, &net);
        project.env("CASE_KEY", "value-of-the-key-5f2b");
        project.manifest(&manifest);
        project.lock();
        project.trust();
        let script = "echo \"$CASE_KEY\"; echo \"$HTTPS_PROXY\"; sleep 7421";
        let run = project.start(&["run", "--sandbox", wall.name(), "--", "sh", "-c", script]);
        eventually("the agent's start", || {
            !project.runs().is_empty() && project.events_text().contains("sandbox_started")
        });
        // By then it has said what it has.
        eventually("the agent's command", || !processes("sleep\x007421\0").is_empty());
        let mut told = argument_lists();
        if let Some(engine) = &engine {
            let label = "--filter=label=dev.ringfence.run";
            let containers = engine.docker(&["ps", "--all", "--quiet", label]);
            let networks = engine.docker(&["network", "ls", "--quiet", label]);
            assert_eq!((containers.lines().count(), networks.lines().count()), (2, 2));
            for name in containers.lines().chain(networks.lines()) {
                told.push_str(&engine.docker(&["inspect", name]));
            }
            assert!(told.contains("ringfence-sidecar"), "the control: it tells of both");
        }
        run.signal(Signal::TERM);
        let output = run.finish();
        assert!(output.stdout.contains("value-of-the-key-5f2b"), "the control: the agent has it");
        let proxy = output.stdout.lines().find(|line| line.contains('@')).expect("it has a token");
        let token = proxy.split(':').nth(2).and_then(|rest| rest.split('@').next()).unwrap();
        let record = project.events_text();
        for secret in ["value-of-the-key-5f2b", token] {
            assert!(!told.contains(secret), "{secret} is told");
            assert!(!record.contains(secret), "{secret} is recorded");
        }
        if let Some(engine) = &engine {
            assert_eq!(engine.left(), Vec::<String>::new());
        }
    });
}

/// Calls by their numbers on this architecture, each of which must fail with a refusal; the last ones are
/// controls.
const CALLS: &str = r#"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
zero, mask, limits = (ctypes.c_long * 8)(), (ctypes.c_long * 8)(1), (ctypes.c_long * 2)(64, 64)
BUFFER, MASK, LIMITS = (ctypes.addressof(it) for it in (zero, mask, limits))
def call(case, number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
    say(case, done=result >= 0, error=errno.errorcode.get(ctypes.get_errno(), ""))
for case, number, args in [
    ("io_uring_setup", 425, (1, 0)), ("bpf", 321, (0, 0, 0)), ("keyctl", 250, (0, -3, 0)),
    ("add_key", 248, (0, 0, 0, 0, 0)), ("ptrace", 101, (0, 0, 0, 0)), ("mount", 165, (0, 0, 0, 0, 0)),
    ("unshare user", 272, (0x10000000,)), ("unshare net", 272, (0x40000000,)), ("setns", 308, (0, 0)),
    ("perf_event_open", 298, (0, 0, -1, -1, 0)), ("userfaultfd", 323, (1,)), ("init_module", 175, (0, 0, 0)),
    ("kexec_load", 246, (0, 0, 0, 0)), ("reboot", 169, (0, 0, 0, 0)), ("open_by_handle_at", 304, (0, 0, 0)),
    ("process_vm_readv", 310, (1, 0, 0, 0, 0, 0)), ("pidfd_getfd", 438, (0, 0, 0)), ("fsopen", 430, (0, 0)),
    ("move_mount", 429, (0, 0, 0, 0, 0)), ("clone3", 435, (0, 0)), ("pivot_root", 155, (0, 0)),
    ("sched_setscheduler", 144, (1, 5, BUFFER)), ("sched_setparam", 142, (1, BUFFER)),
    ("sched_setattr", 314, (1, BUFFER, 0)), ("sched_setaffinity", 203, (1, 8, MASK)),
    ("setpriority", 141, (0, 1, 19)), ("setpriority group", 141, (1, 0, 19)),
    ("setpriority user", 141, (2, 0, 19)), ("ioprio_set", 251, (1, 1, 3 << 13)),
    ("prlimit64", 302, (1, 7, LIMITS, 0)),
    ("control sched_setscheduler", 144, (0, 3, BUFFER)), ("control setpriority", 141, (0, 0, 19)),
]:
    call(case, number, *args)
for case, family, kind in [("vsock", 40, 1), ("packet", 17, 3), ("netlink", 16, 3), ("alg", 38, 5), ("xdp", 44, 3)]:
    attempt(case, lambda: (socket.socket(family, kind), True)[1])
import fcntl, termios
attempt("TIOCSTI", lambda: (fcntl.ioctl(0, termios.TIOCSTI, b"x"), True)[1])
attempt("x32", lambda: (lambda r: r >= 0 or (_ for _ in ()).throw(OSError(ctypes.get_errno(), "")))(libc.syscall(ctypes.c_long(0x40000000 + 39))))
call("control getpid", 39)
attempt("control inet", lambda: (socket.socket(socket.AF_INET, socket.SOCK_STREAM), True)[1])
"#;

#[test]
fn dangerous_system_calls_are_refused() {
    each_wall(&[28], |who, wall| {
        let net = TestNet::new(who, &[]);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.manifest(&hosts(&["allowed.example.com"]));
        project.lock();
        project.trust();
        let cases = project.agent(CALLS);
        for case in cases.names() {
            match case.starts_with("control") {
                true => cases.happened(case),
                false => cases.refused(case),
            }
        }
        assert!(cases.names().count() >= 40);
    });
}

/// Waits for a process to be gone, for two seconds at most.
fn gone(pid: i32) -> bool {
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().starts_with('Z'));
        if state.unwrap_or(true) {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// The processes whose command line is this, on this machine.
fn processes(line: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let named = numbers.filter(|pid| {
        let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        text == line.as_bytes()
    });
    named.collect()
}

/// Whose death a case is about.
#[derive(Debug, Clone, Copy)]
enum Killed {
    Supervisor,
    Sidecar,
    Engine,
}

const TIMES: u32 = 50;

/// Kills one of them at moments spread over a run's life; the agent must be gone within two seconds, and
/// nothing may be left after `clean`.
fn killed_at_random_moments(killed: Killed, wall: Wall) {
    assert!(Who::suite_is_root(), "an engine is root's to start");
    let (_net, engine, project) = ready(Who::Itself, wall, &hosts(&["allowed.example.com"]));
    let mut engine = engine.expect("it has an engine");
    // How long a start takes here, so that the moments are spread over it.
    let began = Instant::now();
    project.run(&["true"]).ok().done();
    let whole = began.elapsed();
    let mut hit = 0;
    for time in 0..TIMES {
        // A number of its own by which its process is known.
        let mark = format!("{}", 100_000 + time);
        let run = project.start(&["run", "--sandbox", wall.name(), "--", "sleep", &mark]);
        let moment = whole.mul_f64(f64::from(time) / f64::from(TIMES) * 1.2);
        let began = Instant::now();
        let line = format!("sleep\0{mark}\0");
        while began.elapsed() < moment {
            std::thread::yield_now();
        }
        let victim = match killed {
            Killed::Supervisor => i32::try_from(run.pid()).ok(),
            Killed::Engine => {
                engine.kill();
                None
            }
            Killed::Sidecar => {
                // Other tests have theirs.
                processes("/ringfence-sidecar\0").into_iter().find(|pid| engine.holds(*pid))
            }
        };
        let pid = victim.and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        if !matches!(killed, Killed::Engine) && victim.is_none() {
            // There was none yet: it is the run that is to end then, by hand.
            run.signal(Signal::TERM);
        }
        let agents = processes(&line);
        hit += u32::from(!agents.is_empty());
        for agent in agents {
            assert!(gone(agent), "{killed:?} {time}: the agent lives on");
        }
        let output = run.finish();
        // One that was started meanwhile would be alive now.
        assert!(processes(&line).is_empty(), "{killed:?} {time}: {}", output.stderr);
        if matches!(killed, Killed::Engine) {
            engine.up();
        }
        project.ringfence(&["clean"]).ok().done();
        assert_eq!(engine.left(), Vec::<String>::new(), "{killed:?} {time}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it is there");
        assert!(!mounts.contains(&project.state().display().to_string()), "{killed:?} {time}");
        if project.last_run().join("events.jsonl").exists() {
            project.ringfence(&["audit", "verify"]).ok().done();
        }
    }
    assert!(hit >= TIMES / 10, "of {TIMES} moments only {hit} were in the agent's life");
    // And it still works. An engine that was killed fifty times in the middle of its own work may not, and
    // then a run is refused before anything of the agent has started.
    let output = project.run(&["true"]);
    if !matches!(killed, Killed::Engine) || output.status == 0 {
        output.ok().done();
    } else {
        assert!(!output.stderr.contains("ENFORCED"), "{}", output.stderr);
        project.ringfence(&["clean"]).ok().done();
        assert_eq!(engine.left(), Vec::<String>::new());
    }
    held(&[36], wall);
}

#[test]
fn killed_supervisor_of_a_container_at_any_moment() {
    killed_at_random_moments(Killed::Supervisor, Wall::Docker);
}

#[test]
fn killed_sidecar_at_any_moment() {
    killed_at_random_moments(Killed::Sidecar, Wall::Lockdown);
}

#[test]
fn killed_engine_at_any_moment() {
    killed_at_random_moments(Killed::Engine, Wall::Docker);
}
