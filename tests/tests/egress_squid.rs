//! Squid as the engine of a run: the same rules, the same answers, and what is its own.

use ringfence_tests::{Project, TestNet, Who, each_user};
use serde_json::json;

use crate::bundles::SMALL;

/// [`SMALL`] with Squid, and these hosts for the agent.
fn hosts(list: &[&str]) -> String {
    format!("{SMALL}\n[sandbox.network]\nengine = \"squid\"\nallowed_hosts = {list:?}\n")
}

fn world(who: Who, list: &[&str]) -> (TestNet, Project) {
    let public = json!([TestNet::PUBLIC]);
    let zone = ["allowed.example.com", "refused.example.com", "fronted.example.com"];
    let zone = zone.map(|name| (name, public.clone()));
    let net = TestNet::new(who, &zone);
    let mut project = Project::new(who);
    project.manifest(&hosts(list));
    net.host(&mut project);
    project.lock();
    project.trust();
    (net, project)
}

#[test]
fn a_run_with_squid_reaches_what_is_allowed_and_nothing_else() {
    each_user(|who| {
        let (net, project) = world(who, &["allowed.example.com"]);
        let cases = project.agent(
            "https('control', 'allowed.example.com:443')\n\
             raw_proxy('control plain', b'GET http://allowed.example.com/ HTTP/1.1\\r\\nHost: allowed.example.com\\r\\nProxy-Authorization: Basic {login}\\r\\n\\r\\n')\n\
             try_connect('refused', 'refused.example.com:443')\n\
             try_connect('port', 'allowed.example.com:8443')\n\
             try_connect('no login', 'allowed.example.com:443', login=False)\n\
             https('fronted', 'allowed.example.com:443', sni='fronted.example.com')\n",
        );
        assert!(cases.body("control").contains("tls host"), "{}", cases.get("control"));
        assert!(cases.body("control plain").contains("plain host"), "{:?}", cases.output);
        assert_eq!(cases.status("refused"), 403);
        assert_eq!(cases.status("port"), 403);
        assert_eq!(cases.status("no login"), 407);
        assert!(!cases.body("fronted").contains("host"), "{}", cases.get("fronted"));
        net.saw("dns", "allowed.example.com");
        net.saw_no("dns", "refused");
        net.saw_no("tls", "fronted");
        let events = project.events();
        let decided =
            |host, outcome| events.with("egress_decided", &[("host", host), ("outcome", outcome)]);
        // The tunnel, the plain request and the one whose hello is another's.
        assert_eq!(decided("allowed.example.com", "allowed").len(), 3, "{events:#?}");
        let refused = decided("refused.example.com", "refused")[0];
        assert!(refused["steps"].to_string().contains("not listed"), "{refused}");
        assert_eq!(decided("allowed.example.com", "refused").len(), 2, "{events:#?}");
        let ends: Vec<_> = events
            .with("egress_closed", &[])
            .iter()
            .map(|event| ringfence_tests::field(event, "reason"))
            .collect();
        for reason in
            ["closed; 11.22.33.44", "closed", "sni-mismatch: fronted.example.com; 11.22.33.44"]
        {
            assert!(ends.iter().any(|end| end == reason), "no {reason:?} in {ends:?}");
        }
        let plain = events.has("egress_decided", &[("method", "GET")]);
        assert_eq!(plain["address"], "11.22.33.44");
        gone(&project.runs().pop().expect("a run"));
    });
}

/// Processes whose parent or name is a run's Squid, by the folder in their command line.
fn squids(run: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(run) && (line.contains("squid.conf") || line.contains("passwords")) {
            found.push(pid);
        }
    }
    found
}

fn gone(run: &str) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while !squids(run).is_empty() {
        assert!(std::time::Instant::now() < until, "{:?}", squids(run));
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    let left: Vec<_> = ["/run", "/dev/shm"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| {
            let plain: String = run.chars().filter(char::is_ascii_alphanumeric).collect();
            let name = path.to_string_lossy().into_owned();
            name.contains(run) || name.contains(&plain)
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn each_principal_has_its_own_token_and_its_own_rules() {
    each_user(|who| {
        let public = json!([TestNet::PUBLIC]);
        let net =
            TestNet::new(who, &[("agent.example.com", public.clone()), ("up.example.com", public)]);
        let mut project = Project::new(who);
        project.python();
        project.manifest(&format!(
            "{}\n[sandbox.network]\nengine = \"squid\"\nallowed_hosts = [\"agent.example.com\"]\n",
            crate::bundles::MIRROR.replace(
                "tools = [\"raw\", \"environment\"]",
                "tools = [\"raw\", \"environment\"]\nallowed_hosts = [\"up.example.com\"]"
            )
        ));
        net.host(&mut project);
        project.lock();
        project.trust();
        let cases = project.agent(
            "https('own', 'agent.example.com:443')\n\
             try_connect('of the server', 'up.example.com:443')\n\
             m = Mcp('mirror')\n\
             m.send('environment', b'{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"environment\",\"arguments\":{}}}')\n\
             import base64, re\n\
             try_connect('as the server', 'up.example.com:443', login=b'Basic ' + base64.b64encode(b'mirror:' + proxy()[1].encode()))\n",
        );
        assert!(cases.body("own").contains("tls host"), "{}", cases.get("own"));
        assert_eq!(cases.status("of the server"), 403);
        assert_eq!(cases.status("as the server"), 407);
        cases.answered("environment");
        assert!(
            cases.body("environment").contains("http://mirror:"),
            "{}",
            cases.get("environment")
        );
        let events = project.events();
        events.has(
            "egress_decided",
            &[("principal", "agent"), ("host", "agent.example.com"), ("outcome", "allowed")],
        );
        net.saw_no("dns", "up.example.com");
        gone(&project.runs().pop().expect("a run"));
    });
}

#[test]
fn when_squid_dies_nothing_goes_out_and_the_run_ends() {
    each_user(|who| {
        let (net, project) = world(who, &["allowed.example.com"]);
        project.python();
        project.file(
            "case.py",
            "from agent import *\n\
             https('control', 'allowed.example.com:443')\n\
             sys.stdin.readline()\n\
             while True: time.sleep(1)\n",
        );
        let run = project.start(&["run", "--", ringfence_tests::PYTHON, "-B", "case.py"]);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !net.sightings().iter().any(|seen| seen.kind == "tls") {
            assert!(std::time::Instant::now() < deadline, "the control did not arrive");
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
        let id = project.runs().pop().expect("a run");
        let pids = squids(&id);
        assert!(!pids.is_empty(), "there is a Squid");
        for pid in pids {
            // Ours by its folder, which is named after the run.
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("an id"));
            let _ =
                rustix::process::kill_process(pid.expect("an id"), rustix::process::Signal::KILL);
        }
        let output = run.finish();
        assert_eq!(output.status, 255, "{output:?}");
        let events = project.events();
        let ended = events.has("run_finished", &[("ended_by", "error")]);
        let detail = ended["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("the proxy failed: Squid ended"), "{ended}");
        gone(&id);
    });
}

#[test]
fn a_killed_supervisor_leaves_no_squid_behind() {
    each_user(|who| {
        let (net, project) = world(who, &["allowed.example.com"]);
        project.python();
        project.file(
            "case.py",
            "from agent import *\nhttps('control', 'allowed.example.com:443')\nwhile True: time.sleep(1)\n",
        );
        let run = project.start(&["run", "--", ringfence_tests::PYTHON, "-B", "case.py"]);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !net.sightings().iter().any(|seen| seen.kind == "tls") {
            assert!(std::time::Instant::now() < deadline, "the control did not arrive");
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
        let id = project.runs().pop().expect("a run");
        assert!(!squids(&id).is_empty(), "there is a Squid");
        run.signal(rustix::process::Signal::KILL);
        let _ = run.finish();
        project.ringfence(&["clean"]).ok().done();
        gone(&id);
        assert!(!project.state().join("runs").join(&id).join("squid.json").exists());
    });
}

#[test]
fn without_a_squid_that_can_be_used_the_run_is_refused() {
    each_user(|who| {
        let mut project = Project::new(who);
        project.manifest(&hosts(&["allowed.example.com"]));
        project.lock();
        project.trust();
        let plan = project.ringfence(&["run", "--plan", "--", "true"]).ok();
        assert!(plan.stdout.contains("Squid"), "{}", plan.stdout);
        // Too old.
        let folder = project.root().join("old");
        std::fs::create_dir(&folder).expect("our own folder");
        let old = folder.join("squid");
        std::fs::write(&old, "#!/bin/sh\necho 'Squid Cache: Version 4.10'\n")
            .expect("our own file");
        use std::os::unix::fs::PermissionsExt as _;
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&folder, runs.clone()).expect("our own folder");
        std::fs::set_permissions(&old, runs).expect("our own file");
        project.env("PATH", &format!("{}:/usr/bin:/bin", folder.display()));
        let output = project.run(&["true"]);
        assert_eq!(output.status, 3, "{output:?}");
        assert!(
            output.stderr.contains("is version 4.10, and 5 or 6 is needed"),
            "{}",
            output.stderr
        );
        assert!(output.stderr.contains("apt-get install squid"), "{}", output.stderr);
        // Control: without the old one before it, the machine's own is found.
        project.env("PATH", "/usr/bin:/bin");
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn an_answer_that_changes_leads_to_no_other_address() {
    each_user(|who| {
        // Public when asked first, private from then on; and the other way round.
        let net = TestNet::new(
            who,
            &[
                ("turn.example.com", json!([[TestNet::PUBLIC], [TestNet::PRIVATE]])),
                ("back.example.com", json!([[TestNet::PRIVATE], [TestNet::PUBLIC]])),
            ],
        );
        let mut project = Project::new(who);
        project.manifest(&hosts(&["turn.example.com", "back.example.com"]));
        net.host(&mut project);
        project.lock();
        project.trust();
        let cases = project.agent(
            "for n in range(5): https(f'turn {n}', 'turn.example.com:443')\n\
             for n in range(5): try_connect(f'back {n}', 'back.example.com:443')\n",
        );
        for n in 0..5 {
            // Squid keeps an answer for a minute: what was checked is what is dialled.
            let turn = format!("turn {n}");
            assert!(cases.body(&turn).contains("tls host"), "{}", cases.get(&turn));
            assert_eq!(cases.status(&format!("back {n}")), 403);
        }
        for seen in net.sightings().iter().filter(|seen| seen.kind == "tls") {
            assert!(seen.at.starts_with(TestNet::PUBLIC), "{seen:?}");
        }
        let asked = net.sightings().iter().filter(|seen| seen.kind == "dns").count();
        assert!(asked <= 4, "asked {asked} times: A and AAAA of both are all there may be");
    });
}

#[test]
fn nothing_inside_resolves_and_the_proxy_only_what_it_allowed() {
    each_user(|who| {
        for engine in ["builtin", "squid"] {
            let public = json!([TestNet::PUBLIC]);
            let names = ["allowed.example.com", "refused.example.com", "inside.example.com"];
            let net = TestNet::new(who, &names.map(|name| (name, public.clone())));
            let mut project = Project::new(who);
            project.manifest(
                &hosts(&["allowed.example.com"]).replace("\"squid\"", &format!("{engine:?}")),
            );
            net.host(&mut project);
            project.lock();
            project.trust();
            let probe = "\
                def lookup(name):\n    \
                    return bool(socket.getaddrinfo(name, 443))\n\
                def ask():\n    \
                    query = b'\\x12\\x34\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x06inside\\x07example\\x03com\\x00\\x00\\x01\\x00\\x01'\n    \
                    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    \
                    sock.settimeout(2)\n    \
                    sock.sendto(query, ('11.22.33.53', 53))\n    \
                    return len(sock.recv(512)) > 20\n\
                attempt('getaddrinfo', lambda: lookup('inside.example.com'))\n\
                attempt('a question of its own', ask)\n";
            // Control: past the sandbox both are answered.
            let outside = project.outside(probe);
            outside.happened("getaddrinfo");
            outside.happened("a question of its own");
            net.saw("dns", "inside.example.com");
            let before = net.sightings().len();
            let cases = project.agent(&format!(
                "{probe}https('allowed', 'allowed.example.com:443')\n\
                 try_connect('refused', 'refused.example.com:443')\n"
            ));
            cases.refused("getaddrinfo");
            cases.refused("a question of its own");
            assert!(cases.body("allowed").contains("tls host"), "{}", cases.get("allowed"));
            assert_eq!(cases.status("refused"), 403);
            for seen in net.sightings()[before..].iter().filter(|seen| seen.kind == "dns") {
                assert_eq!(seen.name, "allowed.example.com", "{engine}");
            }
            assert!(net.sightings()[before..].iter().any(|seen| seen.kind == "dns"));
        }
    });
}
