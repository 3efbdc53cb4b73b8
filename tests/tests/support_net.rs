//! The test network itself: the controls that the network cases lean on.

use ringfence_tests::{Project, TestNet, each_user};
use serde_json::json;

#[test]
fn every_kind_of_host_answers_on_the_supervisors_side() {
    each_user(|who| {
        let zone = [
            ("allowed.example.com", json!([TestNet::PUBLIC, TestNet::PUBLIC6])),
            ("turn.example.com", json!([[TestNet::PUBLIC], ["127.0.0.1"]])),
        ];
        let net = TestNet::new(who, &zone);
        let mut project = Project::new(who);
        net.host(&mut project);
        let cert = net.certificate().display().to_string();
        let https =
            project.shell(&["curl", "-sS", "--cacert", &cert, "https://allowed.example.com/"]).ok();
        assert!(https.stdout.contains("sni=allowed.example.com"), "{}", https.stdout);
        for address in [
            TestNet::PUBLIC,
            TestNet::OTHER,
            TestNet::PRIVATE,
            TestNet::METADATA,
            "[2a00:1234::44]",
        ] {
            let url = format!("http://{address}/");
            let plain = project.shell(&["curl", "-sS", &url]).ok();
            assert!(plain.stdout.contains("plain host"), "{address}");
        }
        net.saw("dns", "allowed.example.com");
        net.saw("tls", "allowed.example.com");
        net.saw("http", TestNet::PRIVATE);
        let first = project.shell(&["getent", "ahostsv4", "turn.example.com"]).ok();
        let second = project.shell(&["getent", "ahostsv4", "turn.example.com"]).ok();
        assert!(first.stdout.contains(TestNet::PUBLIC) && second.stdout.contains("127.0.0.1"));
        assert_ne!(project.shell(&["getent", "hosts", "missing.example.org"]).status, 0);
        let probes = project.outside("raw_udp('udp', '11.22.33.44', 443)\nraw_udp('dns', '11.22.33.53', 53, dns_query('probe.example.com'))\nraw_tcp('tcp6', '2a00:1234::44', 80)");
        probes.happened("udp");
        probes.happened("dns");
        probes.happened("tcp6");
        net.saw("dns", "probe.example.com");
    });
}
