//! `@modelcontextprotocol/conformance` against the gateway's upstream side as the client.

use std::collections::BTreeMap;
use std::process::Command;

use ringfence_tests::repository;

const OLD: &str = "0.1.16";
const NEW: &str = "0.2.0-alpha.12";
const CLIENT: &str = env!("CARGO_BIN_EXE_ringfence-conformance-client");

/// How one scenario went.
#[derive(Debug, PartialEq)]
struct Outcome {
    passed: usize,
    failed: usize,
    /// What the suite itself says.
    good: bool,
}

/// Runs the client scenarios of a suite with `client` and gives each one's outcome by its name.
fn suite(version: &str, client: &str, which: &[&str]) -> BTreeMap<String, Outcome> {
    let tools = repository().join("target/tools");
    let entry = format!(
        "conformance-{version}/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    );
    let (node, entry) = (tools.join("node22/bin/node"), tools.join(entry));
    for needed in [&node, &entry] {
        assert!(needed.exists(), "{} is missing: `cargo xtask test` gets it", needed.display());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(node)
        .arg(entry)
        .args(["client", "--command", client])
        .args(which)
        .arg("--output-dir")
        .arg(folder.path())
        .current_dir(folder.path())
        .output()
        .expect("node runs");
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both);
    let outcomes: BTreeMap<_, _> = text.lines().filter_map(outcome).collect();
    assert!(!outcomes.is_empty(), "no scenario was run:\n{text}");
    outcomes
}

/// Reads `✓ tools_call: 2 passed, 0 failed`.
fn outcome(line: &str) -> Option<(String, Outcome)> {
    let good = line.starts_with('✓');
    let rest = line.strip_prefix('✓').or_else(|| line.strip_prefix('✗'))?.trim();
    let (name, counts) = rest.split_once(": ")?;
    let (passed, failed) = counts.split_once(" passed, ")?;
    let failed = failed.split(' ').next()?.parse().ok()?;
    Some((name.to_owned(), Outcome { passed: passed.parse().ok()?, failed, good }))
}

/// Each of these scenarios was run, and each of its checks passed; so many there are.
fn whole(version: &str, which: &[&str], scenarios: &[(&str, usize)]) {
    let outcomes = suite(version, CLIENT, which);
    let others = outcomes.iter().filter(|(name, _)| !name.starts_with("auth/"));
    let found: Vec<_> = others.map(|(name, outcome)| (name.as_str(), outcome)).collect();
    let mut expected: Vec<_> = scenarios
        .iter()
        .map(|(name, passed)| (*name, Outcome { passed: *passed, failed: 0, good: true }))
        .collect();
    expected.sort_by_key(|(name, _)| *name);
    let expected: Vec<_> = expected.iter().map(|(name, outcome)| (*name, outcome)).collect();
    assert_eq!(found, expected, "{version} {which:?}");
}

#[test]
fn the_client_suite_of_2025_passes() {
    whole(
        OLD,
        &["--suite", "all"],
        &[
            ("initialize", 1),
            ("tools_call", 1),
            ("elicitation-sep1034-client-defaults", 5),
            ("sse-retry", 3),
        ],
    );
}

#[test]
fn the_client_requirements_of_2025_11_25_pass() {
    whole(
        NEW,
        &["--requirements", "2025-11-25"],
        &[
            ("initialize", 1),
            ("tools_call", 2),
            ("elicitation-sep1034-client-defaults", 5),
            ("sse-retry", 3),
            ("json-schema-2020-12-preservation", 9),
        ],
    );
}

#[test]
fn the_client_requirements_of_2026_07_28_pass() {
    whole(
        NEW,
        &["--requirements", "2026-07-28"],
        &[
            ("tools_call", 2),
            ("request-metadata", 7),
            ("sep-2322-client-request-state", 6),
            ("http-standard-headers", 9),
            ("http-custom-headers", 18),
            ("http-invalid-tool-headers", 12),
            ("json-schema-ref-no-deref", 1),
            ("json-schema-2020-12-preservation", 9),
        ],
    );
}

/// Sign-in without a person, or with proof of possession: extensions, that no revision asks for.
const EXTENSIONS: [&str; 7] = [
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/cross-app-access-complete-flow",
    "auth/enterprise-managed-authorization",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
];

/// So many scenarios of sign-in were run, and each passed whole, the extensions apart.
fn signs_in(version: &str, which: &[&str], count: usize) {
    let outcomes = suite(version, CLIENT, which);
    let ours = |name: &&String| name.starts_with("auth/") && !EXTENSIONS.contains(&name.as_str());
    let found: Vec<_> = outcomes.iter().filter(|(name, _)| ours(name)).collect();
    assert_eq!(found.len(), count, "{version} {which:?}: {found:?}");
    for (name, outcome) in found {
        assert!(outcome.good && outcome.failed == 0, "{version} {name}: {outcome:?}");
    }
}

#[test]
fn sign_in_passes_every_suite() {
    signs_in(OLD, &["--suite", "all"], 19);
    signs_in(NEW, &["--suite", "all"], 27);
    signs_in(NEW, &["--requirements", "2025-11-25"], 14);
    signs_in(NEW, &["--requirements", "2026-07-28"], 25);
}

/// The control: a client that does nothing passes nothing that asks something of it.
#[test]
fn a_client_that_does_nothing_fails_the_suite() {
    let outcomes = suite(NEW, "/bin/true", &["--requirements", "2026-07-28"]);
    for name in ["tools_call", "request-metadata", "http-custom-headers", "auth/iss-supported"] {
        assert!(!outcomes[name].good, "{name}: {:?}", outcomes[name]);
    }
}
