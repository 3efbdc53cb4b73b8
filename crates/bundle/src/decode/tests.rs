use std::path::Path;

use super::closest;
use crate::{Diagnostic, Document, Isolation, policy_tables};

fn document(text: &str) -> Document {
    Document::parse(Path::new("machine.toml"), text).with_next("ringfence policy check")
}

fn brief(findings: &[Diagnostic]) -> Vec<String> {
    findings
        .iter()
        .map(|f| format!("{}:{}", f.at.as_ref().map_or(0, |at| at.line), f.rule))
        .collect()
}

#[test]
fn another_file_with_the_same_tables_reads_alike() {
    let document = document(
        "[policy]\nisolation = \"netwrok\"\nmax_duration_seconds = 60\nallow_proced = true\n\
         [policy.tools]\nmail = [\n  \"*\",\n  \"!send\",\n]\n[policy.egress]\nagent = [\"!*\"]\n\
         [policy.filesystem]\nread = []\nwrite = [1]\n",
    );
    let root = document.root();
    let policy = root.table("policy").expect("a table");
    let words = Isolation::ALL.map(|level| (level.as_str(), level));
    assert_eq!(policy.get("isolation").and_then(|v| v.choice(&words)), None);
    assert_eq!(policy.get("max_duration_seconds").and_then(|v| v.integer(1..=100)), Some(60));
    assert!(!policy.has("allow_proceed"));
    let tables = policy_tables(&policy, &|_, _| Ok(()));
    policy.finish();
    root.finish();
    let lines: Vec<usize> = tables.tools["mail"].iter().map(|pattern| pattern.line).collect();
    assert_eq!(lines, [7, 8]);
    assert_eq!(tables.egress["agent"][0].text, "!*");
    assert_eq!(tables.filesystem.read, Some(Vec::new()));
    let findings = document.into_findings();
    assert_eq!(brief(&findings), ["2:bad-value", "4:unknown-key", "14:wrong-type"]);
    assert_eq!(findings[0].help.as_deref(), Some("did you mean `network`?"));
    assert_eq!(findings[1].help.as_deref(), Some("did you mean `allow_proceed`?"));
    assert_eq!(findings[2].next.as_deref(), Some("ringfence policy check"));
}

#[test]
fn the_bound_on_lists_is_the_callers() {
    let text = format!("[p]\na = [{}]\n", "1,".repeat(2000));
    let ask = |document: Document| {
        let root = document.root();
        let p = root.table("p").expect("a table");
        let count = p.get("a").and_then(|v| v.list()).map(|list| list.len());
        p.finish();
        root.finish();
        (count, brief(&document.into_findings()))
    };
    assert_eq!(ask(document(&text)), (None, vec!["2:too-many".to_owned()]));
    assert_eq!(ask(document(&text).with_max_items(2000)), (Some(2000), Vec::new()));
    assert_eq!(ask(document(&text).with_max_items(1999)), (None, vec!["2:too-many".to_owned()]));
    let names: String = (0..30).map(|n| format!("n{n} = 1\n")).collect();
    let entries = |max| {
        let document = document(&names).with_max_items(max);
        let root = document.root();
        let count = root.entries().len();
        root.finish();
        (count, document.into_findings().len())
    };
    assert_eq!((entries(30), entries(29)), ((30, 0), (29, 1)));
}

#[test]
fn a_wrong_type_names_both_types() {
    let document = document("a = 1\nb = \"x\"\nc = [1]\nd = {}\ne = 1.5\nf = true\n");
    let root = document.root();
    assert_eq!(root.get("a").and_then(|v| v.text()), None);
    assert_eq!(root.get("b").and_then(|v| v.integer(0..=1)), None);
    assert!(root.get("c").and_then(|v| v.table()).is_none());
    assert!(root.get("d").and_then(|v| v.list()).is_none());
    assert_eq!(root.get("e").and_then(|v| v.boolean()), None);
    assert_eq!(root.get("f").and_then(|v| v.number(0.0..=1.0)), None);
    root.finish();
    let messages: Vec<String> = document.into_findings().into_iter().map(|f| f.message).collect();
    assert_eq!(
        messages,
        [
            "expected a string, found an integer",
            "expected an integer, found a string",
            "expected a table, found an array",
            "expected an array, found a table",
            "expected `true` or `false`, found a float",
            "expected a number, found a boolean",
        ]
    );
}

#[test]
fn numbers_stay_in_their_range() {
    let document =
        document("a = -1\nb = 99999999999999999999\nc = nan\nd = inf\ne = 0x10\nf = 2\n");
    let root = document.root();
    assert_eq!(root.get("a").and_then(|v| v.integer(0..=5)), None);
    assert_eq!(root.get("b").and_then(|v| v.integer(0..=5)), None);
    assert_eq!(root.get("c").and_then(|v| v.number(0.0..=5.0)), None);
    assert_eq!(root.get("d").and_then(|v| v.number(0.0..=5.0)), None);
    assert_eq!(root.get("e").and_then(|v| v.integer(0..=16)), Some(16));
    assert_eq!(root.get("f").and_then(|v| v.number(0.0..=5.0)), Some(2.0));
    let rules = brief(&document.into_findings());
    assert_eq!(rules, ["1:out-of-range", "2:out-of-range", "3:out-of-range", "4:out-of-range"]);
}

#[test]
fn json_is_exact_or_refused() {
    let document = document("a = { x = [1, \"y\", true] }\nb = 1.5\nc = 1979-05-27\nd = nan\n");
    let root = document.root();
    let a = root.get("a").and_then(|v| v.json(false)).expect("exact");
    assert_eq!(a, serde_json::json!({ "x": [1, "y", true] }));
    let b = root.get("b").expect("there");
    assert_eq!(b.json(true), Some(serde_json::json!(1.5)));
    assert_eq!(b.json(false), None);
    assert_eq!(root.get("c").and_then(|v| v.json(true)), None);
    assert_eq!(root.get("d").and_then(|v| v.json(true)), None);
    let rules = brief(&document.into_findings());
    assert_eq!(rules, ["2:bad-value", "3:bad-value", "4:bad-value"]);
}

#[test]
fn errors_are_placed_at_the_nearest_thing_that_is_there() {
    let document = document("[a]\nb = [1, 2]\n");
    let root = document.root();
    let list = root.table("a").and_then(|a| a.get("b")).and_then(|b| b.list());
    assert_eq!(list.map(|list| list.len()), Some(2));
    document.error_at("a.b[1]", "here", String::new(), None);
    document.error_at("a.c.d", "around", String::new(), None);
    let findings = document.into_findings();
    let columns: Vec<(usize, usize)> =
        findings.iter().filter_map(|f| f.at.as_ref()).map(|at| (at.line, at.column)).collect();
    assert_eq!(columns, [(1, 2), (2, 9)]);
}

#[test]
fn the_closest_word_is_near_enough_to_be_meant() {
    let words = ["servers", "sandbox", "limits"];
    for (given, near) in [
        ("server", Some("servers")),
        ("sevrers", Some("servers")),
        ("sandboxes", Some("sandbox")),
        ("limit", Some("limits")),
        ("quota", None),
        ("", None),
    ] {
        assert_eq!(closest(given, words.into_iter()), near, "{given}");
    }
}
