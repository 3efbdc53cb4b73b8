//! The MCP conformance suites against our own end of the protocol, without the gateway.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use ringfence_tests::conformance::{Fixture, Suite, server};
use serde_json::{Value, json};

/// Runs a suite whole: each scenario that it lists, and no other.
fn passes(suite: Suite, scored: usize) {
    let fixture = Fixture::start(&[]);
    let found = server(fixture.url(), suite);
    assert_eq!(found.failures(), Vec::<String>::new());
    assert_eq!(found.scenarios(), suite.scenarios());
    assert_eq!(found.passed(), scored);
}

#[test]
fn conformance_active_suite_passes_whole() {
    passes(Suite::ACTIVE, 30);
}

#[test]
fn conformance_of_2025_11_25_passes_whole() {
    passes(Suite::REQUIRED_2025_11_25, 30);
}

#[test]
fn conformance_of_2026_07_28_passes_whole() {
    passes(Suite::REQUIRED_2026_07_28, 37);
}

#[test]
fn conformance_counts_what_fails() {
    // A door that knows no such path answers nothing that the suite wants.
    let fixture = Fixture::start(&[]);
    let found = server(&format!("{}2", fixture.url()), Suite::REQUIRED_2026_07_28);
    assert!(found.failures().len() > 30, "{:?}", found.failures());
}

#[test]
fn conformance_server_speaks_both_ways_over_stdio() {
    let mut child = Command::new(Fixture::program())
        .arg("--stdio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut say = |message: Value| writeln!(input, "{message}").unwrap();
    let mut hear = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let call = |id: u32, extra: Value| {
        let mut params = json!({
            "name": "test_input_required_result_elicitation", "arguments": {}, "_meta": meta,
        });
        params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    say(call(1, json!({})));
    let asked = hear();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    say(call(
        2,
        json!({
            "requestState": asked["result"]["requestState"],
            "inputResponses": {
                "user_name": { "action": "accept", "content": { "name": "Alice" } },
            },
        }),
    ));
    let done = hear();
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Alice!", "{done}");
    // The same connection in the older way.
    say(json!({ "jsonrpc": "2.0", "id": 3, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": { "sampling": {} },
        "clientInfo": { "name": "test", "version": "1" },
    } }));
    assert_eq!(hear()["result"]["protocolVersion"], "2025-11-25");
    say(json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {
        "name": "test_sampling", "arguments": { "prompt": "Well?" },
    } }));
    let question = hear();
    assert_eq!(question["method"], "sampling/createMessage", "{question}");
    say(json!({ "jsonrpc": "2.0", "id": question["id"], "result": {
        "role": "assistant", "model": "m", "content": { "type": "text", "text": "Indeed" },
    } }));
    assert_eq!(hear()["result"]["content"][0]["text"], "LLM response: Indeed");
    drop(input);
    assert!(child.wait().unwrap().success());
}
