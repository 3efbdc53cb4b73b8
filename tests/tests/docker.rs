//! The sandboxes `docker` and `lockdown`: what is theirs alone, on a real engine.

use std::time::{Duration, Instant};

use ringfence_tests::{Engine, Project, TestNet, Wall, Who, each_user, eventually, held};
use rustix::process::Signal;
use serde_json::json;

use crate::bundles::hosts;

/// A network with one allowed host, and a project behind a wall in it.
fn ready(who: Who, wall: Wall, manifest: &str) -> (TestNet, Option<Engine>, Project) {
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
fn nothing_of_a_secret_is_in_what_an_engine_tells_of_a_container() {
    each_user(|who| {
        let mut manifest = hosts(&["allowed.example.com"]);
        manifest.push_str("\n[sandbox]\ncredentials = [\"CASE_KEY\"]\n");
        let zone = [("allowed.example.com", json!([TestNet::PUBLIC]))];
        let net = TestNet::new(who, &zone);
        let mut project = Project::new(who);
        let engine = Wall::Docker.around(&mut project, &net).expect("it has an engine");
        project.env("CASE_KEY", "value-of-the-key-5f2b");
        project.manifest(&manifest);
        project.lock();
        project.trust();
        // It waits for a line, so that the engine can be asked meanwhile.
        let script = "echo \"$CASE_KEY\"; echo \"$HTTPS_PROXY\"; echo up > /tmp/up; sleep 60";
        let run = project.start(&["run", "--sandbox", "docker", "--", "sh", "-c", script]);
        eventually("the agent's start", || {
            !project.runs().is_empty() && project.events_text().contains("sandbox_started")
        });
        let names = engine.docker(&["ps", "--all", "--quiet", "--filter=label=dev.ringfence.run"]);
        let mut told = String::new();
        for name in names.lines() {
            told.push_str(&engine.docker(&["inspect", name]));
        }
        let networks = engine.docker(&["network", "ls", "--quiet"]);
        for name in networks.lines() {
            told.push_str(&engine.docker(&["network", "inspect", name]));
        }
        assert!(told.contains("ringfence-sidecar"), "the control: it tells of both");
        run.signal(Signal::TERM);
        let output = run.finish();
        assert!(output.stdout.contains("value-of-the-key-5f2b"), "the control: the agent has it");
        let proxy = output.stdout.lines().find(|line| line.contains("@")).expect("it has a token");
        let token = proxy.split(':').nth(2).and_then(|rest| rest.split('@').next()).unwrap();
        for secret in ["value-of-the-key-5f2b", token] {
            assert!(!told.contains(secret), "{secret} is in what the engine tells");
        }
        assert!(engine.left().is_empty());
    });
    held(&[30], Wall::Docker);
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
    let all = std::fs::read_dir("/proc").unwrap().flatten();
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
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&project.state().display().to_string()), "{killed:?} {time}");
        if project.last_run().join("events.jsonl").exists() {
            project.ringfence(&["audit", "verify"]).ok().done();
        }
    }
    assert!(hit >= TIMES / 10, "of {TIMES} moments only {hit} were in the agent's life");
    // And it still works.
    project.run(&["true"]).ok().done();
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
