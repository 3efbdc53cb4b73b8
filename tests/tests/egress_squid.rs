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
        println!("{:#?}", events.with("egress_decided", &[]));
        println!("{:#?}", events.with("egress_closed", &[]));
    });
}
