use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringfence_bundle::ServerId;
use serde_json::{Value, json};

use super::{Index, for_words};
use crate::catalog::{Shown, Tools};

fn id(name: &str) -> ServerId {
    ServerId::parse(name).unwrap()
}

fn index(servers: &[(&str, Vec<Value>)]) -> Index {
    let mut all: BTreeMap<ServerId, Tools> = BTreeMap::new();
    for (server, tools) in servers {
        let mut tools: Vec<_> =
            tools.iter().map(|tool| Shown::new(tool["name"].as_str().unwrap(), tool)).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        all.insert(id(server), tools.into());
    }
    Index::new(&all)
}

fn tool(name: &str, title: &str, description: &str, parameters: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        parameters.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({"name": name, "title": title, "description": description,
        "inputSchema": {"type": "object", "properties": properties}})
}

fn some() -> Index {
    index(&[
        (
            "github",
            vec![
                tool(
                    "create_issue",
                    "Create issue",
                    "Opens an issue in a repository.",
                    &["repo", "title"],
                ),
                tool("list_issues", "List issues", "Lists issues.", &["repo", "state"]),
                tool("getPullRequest", "", "Reads a pull request.", &["repo", "number"]),
            ],
        ),
        (
            "bank",
            vec![
                tool("pay_invoice", "Pay", "Sends money for an invoice.", &["amount", "iban"]),
                tool("list_invoices", "", "Lists invoices. An issue may be noted.", &[]),
            ],
        ),
    ])
}

fn names(index: &Index, query: &str) -> Vec<String> {
    index.search(query, None, 10).0.into_iter().map(|found| found.name).collect()
}

#[test]
fn words_are_parted_where_people_part_them() {
    let words = |text: &str| {
        let mut words = Vec::new();
        for_words(text, |word| words.push(word.to_owned()));
        words
    };
    assert_eq!(
        words("getPullRequest2 a_b-c/d É"),
        ["get", "pull", "request2", "a", "b", "c", "d", "é"]
    );
    assert_eq!(words("HTTPServer"), ["httpserver"]);
    assert_eq!(words(&"x".repeat(100)), ["x".repeat(40)]);
}

#[test]
fn names_count_more_than_descriptions_and_all_that_was_read_is_found() {
    let index = some();
    assert_eq!(names(&index, "issue")[0], "github__create_issue");
    assert!(names(&index, "issue").contains(&"bank__list_invoices".to_owned()));
    assert_eq!(names(&index, "pull request"), ["github__getPullRequest"]);
    assert_eq!(names(&index, "iban"), ["bank__pay_invoice"]);
    assert_eq!(names(&index, "money"), ["bank__pay_invoice"]);
    assert_eq!(names(&index, "LIST_INVOICES")[0], "bank__list_invoices");
    assert_eq!(names(&index, "github__list_issues")[0], "github__list_issues");
    assert_eq!(names(&index, "inv")[..], ["bank__list_invoices", "bank__pay_invoice"]);
    assert!(names(&index, "zebra").is_empty() && names(&index, "i").is_empty());
}

#[test]
fn a_server_a_limit_and_no_query_at_all() {
    let index = some();
    let (found, total) = index.search("list", Some(&id("bank")), 10);
    assert_eq!((found.len(), total, found[0].name.as_str()), (1, 1, "bank__list_invoices"));
    assert_eq!(index.search("list", Some(&id("none")), 10).1, 0);
    let (found, total) = index.search("list", None, 1);
    assert_eq!((found.len(), total), (1, 2));
    let (found, total) = index.search(" ", None, 2);
    assert_eq!((found[0].name.as_str(), total), ("bank__list_invoices", 5));
    assert_eq!(found[1].description, "Sends money for an invoice.");
}

#[test]
fn a_definition_is_given_whole_under_its_full_name() {
    let index = some();
    let given = index.definition("github__create_issue").unwrap();
    assert_eq!(given["name"], "github__create_issue");
    assert_eq!(given["inputSchema"]["properties"]["repo"]["type"], "string");
    for none in ["github__pay_invoice", "create_issue", "other__x", "github__", "github__create"] {
        assert!(index.definition(none).is_none(), "{none}");
    }
}

/// 1,000 servers with 100 tools each. The bound is for a build without optimisation on a busy
/// machine.
#[test]
fn a_hundred_thousand_tools_are_searched_in_little_time_and_always_the_same() {
    const VERBS: [&str; 10] =
        ["get", "list", "create", "update", "delete", "search", "send", "read", "write", "merge"];
    const THINGS: [&str; 10] = [
        "issue", "invoice", "file", "user", "message", "order", "branch", "event", "ticket", "page",
    ];
    let mut all: BTreeMap<ServerId, Tools> = BTreeMap::new();
    for server in 0..1_000 {
        let mut tools = Vec::new();
        for verb in VERBS {
            for thing in THINGS {
                let name = format!("{verb}_{thing}");
                let description = format!("{verb} one {thing} of the system number {server}");
                tools.push(Shown::new(&name, &tool(&name, "", &description, &["id", "filter"])));
            }
        }
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        all.insert(id(&format!("system-{server}")), tools.into());
    }
    let index = Index::new(&all);
    assert_eq!(index.tools.len(), 100_000);
    let first = names(&index, "create invoice 437");
    assert_eq!(first[0], "system-437__create_invoice");
    let mut took = Vec::new();
    for query in ["create invoice 437", "merge", "the system", "inv", "get user filter id"] {
        let begun = Instant::now();
        let found = names(&index, query);
        took.push(begun.elapsed());
        assert_eq!(found, names(&index, query));
        assert_eq!(found.len(), 10);
    }
    took.sort();
    assert!(took[0] < Duration::from_secs(1), "{took:?}");
    assert!(took[4] < Duration::from_secs(3), "{took:?}");
}
