//! The conformance suites through the gateway, in every pairing: a client of either era, and behind the
//! gateway a server that speaks the revisions of one era alone, over HTTP and over stdio.

use std::collections::BTreeSet;

use ringfence_tests::behind::{Gateway, Speaks};
use ringfence_tests::conformance::{Fixture, Suite, Table, server};

/// What a server with a handshake cannot say to a client of 2026-07-28, check by check. The keys of
/// questions are the server's own there, and a server with a handshake has no word for one.
const NO_KEYS: [&str; 2] = [
    // Wants the question under the key `user_name`.
    "input-required-result-basic-elicitation: sep-2322-elicitation-incomplete: FAILURE",
    // Answers the question `user_name` before it was asked.
    "input-required-result-ignore-extra-params: sep-2322-ignore-unexpected-params: WARNING",
];

/// Which eras a server speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Stateless,
    Handshake,
}

impl Era {
    fn flag(self) -> &'static str {
        match self {
            Self::Stateless => "--stateless",
            Self::Handshake => "--handshake",
        }
    }

    /// As the table names it.
    fn name(self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
            Self::Handshake => "handshake",
        }
    }
}

/// What does not pass in this pairing, exactly.
fn exceptions(era: Era, suite: Suite) -> Vec<String> {
    let known: &[&str] = match (era, suite) {
        (Era::Handshake, Suite::REQUIRED_2026_07_28) => &NO_KEYS,
        _ => &[],
    };
    known.iter().map(|&check| check.to_owned()).collect()
}

fn row(suite: Suite, era: Era, over: &str) -> Vec<String> {
    [suite.version(), suite.revision(), era.name(), over].map(str::to_owned).into()
}

/// Runs every suite against such a server: each scenario that the suite lists and no other, and the
/// page says what is found here.
fn whole(speaks: &Speaks, era: Era, over: &str) {
    let table = Table::read("| suite | clients |");
    let gateway = Gateway::start(speaks);
    for suite in Suite::ALL {
        let found = server(gateway.url(), suite);
        assert_eq!(found.failures(), exceptions(era, suite), "{suite:?}");
        assert_eq!(found.scenarios(), suite.scenarios(), "{suite:?}");
        let failed = found.failures();
        let failed = failed.iter().filter_map(|check| check.split(':').next());
        let failed: BTreeSet<_> = failed.map(|scenario| format!("`{scenario}`")).collect();
        let failed = match failed.len() {
            0 => "-".to_owned(),
            _ => failed.into_iter().collect::<Vec<_>>().join(", "),
        };
        let told = [found.passed().to_string(), found.scored.len().to_string(), failed];
        assert_eq!(table.of(&row(suite, era, over)), told, "docs/conformance.md is another");
    }
    gateway.end();
}

fn over_http(era: Era) {
    let fixture = Fixture::start(&[era.flag()]);
    whole(&Speaks::There(fixture.url().to_owned()), era, "HTTP");
}

fn over_stdio(era: Era) {
    let program = Fixture::program().display().to_string();
    let words = vec![program, "--stdio".to_owned(), era.flag().to_owned()];
    whole(&Speaks::Stdio(words), era, "stdio");
}

#[test]
fn conformance_through_the_gateway_to_a_stateless_server_over_http() {
    over_http(Era::Stateless);
}

#[test]
fn conformance_through_the_gateway_to_a_stateless_server_over_stdio() {
    over_stdio(Era::Stateless);
}

#[test]
fn conformance_through_the_gateway_to_a_server_with_a_handshake_over_http() {
    over_http(Era::Handshake);
}

#[test]
fn conformance_through_the_gateway_to_a_server_with_a_handshake_over_stdio() {
    over_stdio(Era::Handshake);
}

#[test]
fn conformance_page_has_a_row_for_each_pairing_and_no_other() {
    let table = Table::read("| suite | clients |");
    let mut rows = BTreeSet::new();
    for suite in Suite::ALL {
        for era in [Era::Stateless, Era::Handshake] {
            rows.extend(["HTTP", "stdio"].map(|over| row(suite, era, over)));
        }
    }
    assert_eq!(table.keys(4), rows);
}
