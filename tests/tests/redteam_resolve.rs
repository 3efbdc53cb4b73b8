//! Row 22: an allowed name that leads somewhere it must not. Resolved once, that address dialled, one
//! bad address refuses the whole answer, and no variable relaxes it.

use ringfence_tests::{Project, TestNet, each_user, each_wall};
use serde_json::json;

use crate::bundles::hosts;

/// Name, answers. All of them are allowed by name.
fn traps() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("private.example.com", json!([TestNet::PRIVATE])),
        ("mixed.example.com", json!([TestNet::PUBLIC, TestNet::PRIVATE])),
        ("mixed6.example.com", json!([TestNet::PUBLIC, "fd00::44"])),
        ("metadata.example.com", json!([TestNet::METADATA])),
        ("loopback.example.com", json!(["127.0.0.1"])),
        ("zero.example.com", json!(["0.0.0.0"])),
        ("shared.example.com", json!(["100.64.0.1"])),
        ("benchmark.example.com", json!(["198.18.0.1"])),
        ("documentation.example.com", json!(["192.0.2.1"])),
        ("multicast.example.com", json!(["224.0.0.1"])),
        ("broadcast.example.com", json!(["255.255.255.255"])),
        ("reserved.example.com", json!(["240.0.0.1"])),
        ("side.example.com", json!([TestNet::SIDE])),
        ("loopback6.example.com", json!(["::1"])),
        ("mapped.example.com", json!(["::ffff:10.66.0.44"])),
        ("compatible.example.com", json!(["::10.66.0.44"])),
        ("nat64.example.com", json!(["64:ff9b::a42:2c"])),
        ("nat64local.example.com", json!(["64:ff9b:1::a42:2c"])),
        ("sixtofour.example.com", json!(["2002:a42:2c::1"])),
        ("teredo.example.com", json!(["2001:0:a42:2c::1"])),
        ("unique.example.com", json!(["fd00::44"])),
        ("linklocal.example.com", json!(["fe80::1"])),
        ("side6.example.com", json!(["2a00:1234::1"])),
        ("empty.example.com", json!([])),
        ("broken.example.com", json!(["SERVFAIL"])),
    ]
}

#[test]
fn an_allowed_name_never_leads_to_an_address_that_is_not_public() {
    each_wall(&[22], |who, wall| {
        let mut zone = traps();
        zone.push(("control.example.com", json!([TestNet::PUBLIC, TestNet::PUBLIC6])));
        zone.push(("six.example.com", json!([TestNet::PUBLIC6])));
        let net = TestNet::new(who, &zone);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        let mut names: Vec<&str> = zone.iter().map(|(n, _)| *n).collect();
        names.push("missing.example.com");
        project.manifest(&hosts(&names));
        // None of these is a way to relax it.
        for name in [
            "NO_PROXY",
            "no_proxy",
            "RINGFENCE_ALLOW_PRIVATE",
            "RINGFENCE_INSECURE",
            "RES_OPTIONS",
            "LOCALDOMAIN",
        ] {
            project.env(name, "*");
        }
        project.lock();
        project.trust();
        // Control of the probe: the private host does answer on the supervisor's side.
        let direct = project
            .shell(&["curl", "-sS", "--noproxy", "*", &format!("http://{}/", TestNet::PRIVATE)])
            .ok();
        assert!(direct.stdout.contains("plain host"));
        let seen_before = net.sightings().len();

        let mut script = String::from(
            "https('control', 'control.example.com:443')\nhttps('control six', 'six.example.com:443')\n",
        );
        let bad: Vec<&str> = names
            .iter()
            .copied()
            .filter(|n| !n.starts_with("control") && !n.starts_with("six."))
            .collect();
        for name in &bad {
            script += &format!("try_connect('{name}', '{name}:443')\n");
            script += &format!(
                "raw_proxy('plain {name}', b'GET http://{name}/ HTTP/1.1\\r\\nHost: {name}\\r\\nProxy-Authorization: Basic {{login}}\\r\\nConnection: close\\r\\n\\r\\n')\n"
            );
        }
        let cases = project.agent(&script);
        // A container's networks have no IPv6.
        let controls = &["control", "control six"][..if wall.is_container() { 1 } else { 2 }];
        for case in controls {
            assert!(cases.body(case).contains("tls host"), "{case}: {}", cases.get(case));
        }
        for name in &bad {
            for case in [(*name).to_owned(), format!("plain {name}")] {
                assert!(cases.status(&case) >= 400, "{case} must be refused: {}", cases.get(&case));
            }
        }
        for seen in &net.sightings()[seen_before..] {
            let fine = seen.kind == "dns"
                || seen.name.starts_with("control.")
                || seen.name.starts_with("six.");
            assert!(fine, "dialled: {seen:?}");
        }
        project
            .events()
            .has("egress_decided", &[("host", "private.example.com"), ("outcome", "refused")]);
    });
}

#[test]
fn the_address_that_was_checked_is_the_one_that_is_dialled() {
    each_wall(&[22], |who, wall| {
        // Public when asked first, private from then on.
        let turning = json!([[TestNet::PUBLIC], [TestNet::PRIVATE]]);
        let net = TestNet::new(who, &[("turn.example.com", turning)]);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.manifest(&hosts(&["turn.example.com"]));
        project.lock();
        project.trust();
        let cases = project.agent(
            "https('first', 'turn.example.com:443')\n\
             https('second', 'turn.example.com:443')\n",
        );
        assert!(cases.body("first").contains("tls host"), "{}", cases.get("first"));
        assert!(!cases.body("second").contains("tls host"), "{}", cases.get("second"));
        let dialled: Vec<_> = net.sightings().into_iter().filter(|s| s.kind == "tls").collect();
        assert_eq!(dialled.len(), 1, "{dialled:?}");
        assert!(dialled[0].at.starts_with(TestNet::PUBLIC), "{dialled:?}");
        let events = project.events();
        let allowed = events.has("egress_decided", &[("outcome", "allowed")]);
        assert!(
            allowed["address"].as_str().is_some_and(|a| a.contains(TestNet::PUBLIC)),
            "{allowed}"
        );
    });
}

#[test]
fn a_search_domain_never_completes_a_name() {
    each_user(|who| {
        // resolv.conf says `search example.com`: `short` must not become `short.example.com`.
        let net = TestNet::new(who, &[("short.example.com", json!([TestNet::PUBLIC]))]);
        let mut project = Project::new(who);
        project.manifest(&hosts(&["short.example.com", "short"]));
        net.host(&mut project);
        project.lock();
        project.trust();
        let cases = project.agent(
            "https('control', 'short.example.com:443')\n\
             try_connect('short', 'short:443')\n",
        );
        assert!(cases.body("control").contains("tls host"));
        assert!(cases.status("short") >= 400, "{}", cases.get("short"));
        net.saw("dns", "short.example.com");
        let asked = net
            .sightings()
            .iter()
            .filter(|s| s.kind == "dns" && s.name == "short.example.com")
            .count();
        assert!(asked <= 2, "asked {asked} times: A and AAAA of the control are all there may be");
    });
}
