//! Row 29: the policy file, the name server or the sandbox is not to be had. The run is refused, or the
//! connection; a failed reload keeps the rules that a run started with.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use ringfence_tests::{Project, Started, TestNet, Who, each_user};
use serde_json::json;

use crate::bundles::{MIRROR, SMALL, files, hosts};

const GOOD: &str = "[policy]\nmax_duration_seconds = 60\n";

/// Puts something in the place of the file.
type Make<'a> = Box<dyn Fn() + 'a>;

/// A run that would show, were it to start.
fn run(project: &Project) -> ringfence_tests::Output {
    project.run(&["echo", "STARTED"])
}

#[track_caller]
fn refused(project: &Project, what: &str) {
    let before = project.runs().len();
    let output = run(project);
    let said = format!("{what}: {}\n{}{}", output.status, output.stdout, output.stderr);
    assert!([1, 3, 255].contains(&output.status), "{said}");
    assert!(!output.stdout.contains("STARTED"), "{said}");
    let folder = project.state().display().to_string();
    assert!(["machine.toml", &folder].iter().any(|name| output.stderr.contains(name)), "{said}");
    assert_eq!(project.runs().len(), before, "{said}");
}

#[track_caller]
fn control(project: &Project) {
    let output = run(project).ok();
    assert!(output.stdout.contains("STARTED"), "control: {}", output.stderr);
}

#[test]
fn a_policy_file_that_is_not_to_be_had_refuses_the_run() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        let file = project.state().join("machine.toml");
        control(&project);
        let elsewhere = project.root().join("elsewhere.toml");
        fs::write(&elsewhere, GOOD).expect("our own file");
        who.own(&elsewhere);
        let mode = |bits| {
            fs::write(&file, GOOD).expect("our own file");
            fs::set_permissions(&file, fs::Permissions::from_mode(bits)).expect("our own file");
        };
        let make: Vec<(&str, Make<'_>)> = vec![
            ("a folder", Box::new(|| fs::create_dir(&file).expect("our own"))),
            ("a pipe that nobody writes to", Box::new(|| pipe(&file))),
            ("a socket", Box::new(|| drop(UnixListener::bind(&file).expect("our own")))),
            ("a link out", Box::new(|| symlink(&elsewhere, &file).expect("our own"))),
            ("a link to nothing", Box::new(|| symlink("nowhere", &file).expect("our own"))),
            ("a link to itself", Box::new(|| symlink("machine.toml", &file).expect("our own"))),
            ("a link to a device", Box::new(|| symlink("/dev/zero", &file).expect("our own"))),
            (
                "a link to a process's file",
                Box::new(|| symlink("/proc/self/environ", &file).expect("our own")),
            ),
            ("everybody writes it", Box::new(|| mode(0o666))),
            ("the group writes it", Box::new(|| mode(0o620))),
            (
                "too large",
                Box::new(|| fs::write(&file, "#".repeat((1 << 20) + 1)).expect("our own")),
            ),
            ("cut in the middle", Box::new(|| fs::write(&file, &GOOD[..20]).expect("our own"))),
            ("not text", Box::new(|| fs::write(&file, b"[policy]\n# \xff\n").expect("our own"))),
            ("zeros, as after a crash", Box::new(|| fs::write(&file, [0; 64]).expect("our own"))),
            (
                "a byte order mark",
                Box::new(|| fs::write(&file, format!("\u{feff}{GOOD}")).expect("our own")),
            ),
            (
                "nested without end",
                Box::new(|| {
                    fs::write(&file, "guard = ".to_owned() + &"[".repeat(90_000)).expect("our own")
                }),
            ),
            (
                "a conflict of git",
                Box::new(|| {
                    fs::write(&file, format!("<<<<<<< ours\n{GOOD}=======\n>>>>>>> theirs\n"))
                        .expect("our own")
                }),
            ),
        ];
        for (what, make) in make {
            make();
            if fs::symlink_metadata(&file).is_ok_and(|m| !m.is_dir()) {
                who.own(&file);
            }
            refused(&project, what);
            if file.is_dir() {
                fs::remove_dir(&file).expect("our own folder");
            } else {
                fs::remove_file(&file).expect("our own file");
            }
            control(&project);
        }
        // Readable by nobody; root reads it all the same.
        mode(0);
        who.own(&file);
        if who.is_root() {
            control(&project)
        } else {
            refused(&project, "unreadable")
        }
        fs::remove_file(&file).expect("our own file");
        project.machine(GOOD);
        control(&project);
    });
}

fn pipe(path: &Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).expect("our own FIFO");
}

#[test]
fn a_folder_that_others_can_write_refuses_the_run() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        let mode = |bits| {
            fs::set_permissions(project.state(), fs::Permissions::from_mode(bits))
                .expect("our own");
        };
        // With a policy file and without one: who can take it away can lift its rules.
        for with in [true, false] {
            if with {
                project.machine(GOOD);
            } else {
                fs::remove_file(project.state().join("machine.toml")).expect("our own file");
            }
            for bits in [0o777, 0o770, 0o707, 0o1777] {
                mode(bits);
                refused(&project, &format!("mode {bits:o}"));
            }
            for bits in [0o755, 0o700] {
                mode(bits);
                control(&project);
            }
        }
        if Who::suite_is_root() {
            std::os::unix::fs::chown(project.state(), Some(1234), None).expect("root may");
            let output = run(&project);
            assert!(output.status != 0 && !output.stdout.contains("STARTED"), "{}", output.stderr);
            std::os::unix::fs::chown(project.state(), Some(who.uid()), None).expect("root may");
            control(&project);
        }
    });
}

#[test]
fn a_running_run_keeps_its_rules_when_the_policy_breaks() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&format!("{MIRROR}[policy.filesystem]\nwrite = [\"out/**\"]\n"));
        project.machine("[policy.tools]\nmirror = [\"*\", \"!environment\"]\n");
        project.python();
        project.lock();
        project.trust();
        project.shell(&["sh", "-c", "mkdir -p out && mkfifo out/up out/go"]).ok().done();
        project.file(
            "case.py",
            "from agent import *\n\
             m = Mcp('mirror')\n\
             m.call('allowed before', 'raw')\nm.call('refused before', 'environment')\n\
             for n in range(3):\n    open('out/up', 'w').write('up\\n')\n    open('out/go').read()\n    \
             m.call(f'allowed {n}', 'raw')\n    m.call(f'refused {n}', 'environment')\n",
        );
        let mut running = project.start(&["run", "--", ringfence_tests::PYTHON, "-B", "case.py"]);
        let steps = [
            // Broken, taken away, and made wider: none of it reaches a run that is under way.
            Some("[policy"),
            None,
            Some("[policy.tools]\nmirror = [\"*\"]\n"),
        ];
        for (n, text) in steps.into_iter().enumerate() {
            wait_for(&project, &mut running);
            match text {
                Some(text) => drop(project.machine(text)),
                None => fs::remove_file(project.state().join("machine.toml")).expect("our own"),
            }
            if n == 0 {
                // A new run is refused, and says where.
                let new = run(&project).expect(1).says(&["machine.toml:1"]);
                assert!(!new.stdout.contains("STARTED"));
            }
            let mut go = fs::OpenOptions::new()
                .write(true)
                .open(project.path().join("out/go"))
                .expect("the agent has it open");
            go.write_all(b"go\n").expect("the agent reads it");
        }
        let cases = Project::cases(running.finish().ok());
        for when in ["before", "0", "1", "2"] {
            cases.answered(&format!("allowed {when}"));
            cases.not_answered(&format!("refused {when}"));
        }
        // Control: a new run has the new, wider rules.
        let cases = project.agent("m = Mcp('mirror')\nm.call('wider', 'environment')\n");
        cases.answered("wider");
    });
}

/// Waits until the agent says that it is there. Opening the pipe waits for the agent to open it.
fn wait_for(project: &Project, running: &mut Started) {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    let mut up = options.read(true).open(project.path().join("out/up")).expect("our own FIFO");
    let mut word = [0; 3];
    while std::io::Read::read(&mut up, &mut word).unwrap_or(0) == 0 {
        assert!(!running.ends_within(Duration::from_millis(10)), "the agent ended early");
    }
}

#[test]
fn without_a_name_server_every_name_is_refused() {
    each_user(|who| {
        let net = TestNet::new(who, &[("api.example.com", json!([TestNet::PUBLIC]))]);
        let mut project = Project::new(who);
        project.manifest(&hosts(&["api.example.com"]));
        net.host(&mut project);
        project.lock();
        project.trust();
        let script = "https('host', 'api.example.com:443')\n";
        let reaches = || {
            let cases = project.agent(script);
            (cases.status("host"), cases.body("host").contains("tls host"))
        };
        assert_eq!(reaches(), (200, true), "control");
        let resolv = net.log().parent().expect("a folder").join("resolv.conf");
        let good = fs::read_to_string(&resolv).expect("it was written");
        for bad in [
            // Nobody is there, nobody listens, nothing is named, nothing can be read.
            "nameserver 11.22.33.99\noptions timeout:1 attempts:1\n".to_owned(),
            "nameserver 127.0.0.9\noptions timeout:1 attempts:1\n".to_owned(),
            String::new(),
            "nonsense\n\u{0}\n".to_owned(),
        ] {
            let dialled = net.sightings().iter().filter(|s| s.kind == "tls").count();
            fs::write(&resolv, &bad).expect("our own file");
            let cases = {
                project.python();
                project.file("case.py", format!("from agent import *\n{script}"));
                let words = [ringfence_tests::PYTHON, "-B", "case.py"];
                project.run(&words)
            };
            // The run is refused, or the connection is.
            if cases.status == 0 {
                let cases = Project::cases(cases);
                assert!(cases.status("host") >= 400, "{bad:?}: {}", cases.get("host"));
                project
                    .events()
                    .has("egress_decided", &[("host", "api.example.com"), ("outcome", "refused")]);
            }
            let now = net.sightings().iter().filter(|s| s.kind == "tls").count();
            assert_eq!(now, dialled, "{bad:?}: something was dialled");
        }
        fs::write(&resolv, good).expect("our own file");
        assert_eq!(reaches(), (200, true), "control");
    });
}

#[test]
fn without_namespaces_nothing_runs() {
    each_user(|who| {
        let project = Project::ready(who, &files("write = [\"out/**\"]"));
        control(&project);
        let inside = |how: &[&str], line: &str| {
            let program = project.program().display().to_string();
            let path = project.path().display().to_string();
            let text = format!("{line}; exec {program} -C {path} run -- echo STARTED");
            project.shell(&[&["unshare", "--user"], how, &["sh", "-c", &text]].concat())
        };
        let none = "echo 0 > /proc/sys/user/max_user_namespaces";
        let refused = if who.is_root() {
            // Root that is root alone has no id for the agent.
            inside(&["--map-root-user"], none)
        } else {
            // Control: inside of another user namespace it runs, while there may be more of them.
            let keep = ["--map-current-user", "--keep-caps"];
            let control = inside(&keep, "true").ok();
            assert!(control.stdout.contains("STARTED"), "{}", control.stderr);
            inside(&keep, none)
        };
        assert_ne!(refused.status, 0, "{}", refused.stdout);
        assert!(!refused.stdout.contains("STARTED"), "{}", refused.stdout);
        assert!(refused.stderr.contains("namespace"), "{}", refused.stderr);
        control(&project);
    });
}
