//! The conformance suites through the gateway, in every pairing: a client of either era, and behind the
//! gateway a server that speaks the revisions of one era alone, over HTTP and over stdio.

use ringfence_tests::behind::{Gateway, Speaks};
use ringfence_tests::conformance::{Fixture, Suite, server};

/// Runs every suite against the server with this flag.
fn whole(speaks: &Speaks) {
    let gateway = Gateway::start(speaks);
    for suite in Suite::ALL {
        let start = std::time::Instant::now();
        let found = server(gateway.url(), suite);
        eprintln!(
            "{suite:?} {:?} {:#?} {}/{}",
            start.elapsed(),
            found.failures(),
            found.passed(),
            found.scored.len()
        );
        assert_eq!(found.scenarios(), suite.scenarios());
    }
    gateway.end();
    panic!("x");
}

fn over_stdio(flag: &str) -> Speaks {
    let program = Fixture::program().display().to_string();
    Speaks::Stdio(vec![program, "--stdio".to_owned(), flag.to_owned()])
}

#[test]
fn conformance_through_the_gateway_to_a_stateless_server_over_http() {
    let fixture = Fixture::start(&["--stateless"]);
    whole(&Speaks::There(fixture.url().to_owned()));
}

#[test]
fn conformance_through_the_gateway_to_a_stateless_server_over_stdio() {
    whole(&over_stdio("--stateless"));
}

#[test]
fn conformance_through_the_gateway_to_a_server_with_a_handshake_over_http() {
    let fixture = Fixture::start(&["--handshake"]);
    whole(&Speaks::There(fixture.url().to_owned()));
}

#[test]
fn conformance_through_the_gateway_to_a_server_with_a_handshake_over_stdio() {
    whole(&over_stdio("--handshake"));
}
