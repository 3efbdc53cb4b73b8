use serde_json::{Value, json};

use ringfence_bundle::{ServerId, ToolPin, ToolPins};

use super::{Frozen, Listed, MOST, Pin};

fn listed<'v>(tools: impl IntoIterator<Item = &'v Value>) -> Vec<Listed> {
    tools.into_iter().map(Listed::of).collect()
}

fn s() -> ServerId {
    ServerId::parse("s").unwrap()
}

fn pin(frozen: &Frozen, tool: &str) -> Pin {
    frozen.verdict(&s(), tool).pin
}

fn tools(names: &[&str]) -> Vec<Listed> {
    let tool = |name| Listed::of(&json!({"name": name, "description": "d"}));
    names.iter().map(tool).collect()
}

#[test]
fn what_changes_or_comes_later_is_not_the_first() {
    let (frozen, dropped) = Frozen::take(None, &tools(&["read", "write"]));
    assert!(dropped.is_empty());
    assert_eq!((pin(&frozen, "read"), pin(&frozen, "other")), (Pin::Same, Pin::Unknown));
    for change in [
        json!({"name": "read", "description": "other"}),
        json!({"name": "read", "description": "d", "inputSchema": {"enum": [1]}}),
        json!({"name": "read", "description": "d", "annotations": {"readOnlyHint": true}}),
        json!({"name": "read", "description": "d", "_meta": {"x": 1}}),
    ] {
        let mut seen = frozen.clone();
        assert!(seen.see(&s(), "read", &change, true).pin != Pin::Same);
        assert_eq!((pin(&seen, "read"), pin(&seen, "write")), (Pin::Changed, Pin::Same));
        let (later, _) =
            Frozen::take(Some(frozen.clone()), &listed(&[change, json!({"name": "new"})]));
        assert_eq!(pin(&later, "read"), Pin::Changed);
        assert_eq!(pin(&later, "write"), Pin::Gone);
        assert_eq!(pin(&later, "new"), Pin::Unknown);
        // Back to what it was.
        let (again, _) = Frozen::take(Some(later), &tools(&["read", "write"]));
        assert_eq!((pin(&again, "read"), pin(&again, "write")), (Pin::Same, Pin::Same));
    }
    let mut frozen = frozen;
    let same = json!({"description": "d", "name": "read"});
    assert_eq!(frozen.see(&s(), "read", &same, true).pin, Pin::Same);
    assert_eq!(frozen.see(&s(), "other", &json!({"name": "other"}), true).pin, Pin::Unknown);
    assert_eq!((pin(&frozen, "read"), pin(&frozen, "other")), (Pin::Same, Pin::Unknown));
}

#[test]
fn names_that_can_be_taken_for_others_are_dropped_both_named() {
    for (pair, good) in [
        (["read", "Read"], false),
        (["read_file", "read-file"], false),
        (["read.file", "read/file"], false),
        (["read", "read"], false),
        (["read", "write"], true),
    ] {
        let (frozen, dropped) = Frozen::take(None, &tools(&pair));
        assert_eq!(pin(&frozen, pair[0]) == Pin::Same, good, "{pair:?}");
        assert_eq!(dropped.is_empty(), good, "{pair:?}");
        assert!(good || dropped.iter().all(|d| pair.iter().all(|n| d.rule.contains(n))));
    }
    let bad = [
        "reаd",
        "ｒead",
        "re\u{200b}ad",
        "\u{202e}read",
        "a__b",
        "",
        "a b",
        "rea\u{301}d",
        &"x".repeat(129),
    ];
    let (frozen, dropped) = Frozen::take(None, &tools(&[&bad[..], &["fine"]].concat()));
    assert_eq!(dropped.len(), bad.len());
    assert!(dropped.iter().all(|d| !d.name.contains(['\u{200b}', '\u{202e}'])));
    assert_eq!(pin(&frozen, "fine"), Pin::Same);
    let odd = [json!(1), json!({"name": 1}), json!({"name": null})];
    assert_eq!(Frozen::take(None, &listed(&odd)).1.len(), 3);
}

#[test]
fn a_list_of_names_that_are_all_alike_costs_little() {
    let long = "a".repeat(100);
    let all: Vec<_> = (0..MOST).map(|n| if n % 2 == 0 { &*long } else { "b" }).collect();
    let (frozen, dropped) = Frozen::take(None, &tools(&all));
    assert_eq!(dropped.len(), MOST);
    assert_eq!((pin(&frozen, &long), pin(&frozen, "b")), (Pin::Unknown, Pin::Unknown));
    let bytes: usize = dropped.iter().map(|d| d.name.len() + d.rule.len()).sum();
    assert!(bytes < 1000 * MOST, "{bytes}");
    assert!(dropped[0].rule.contains("and 4997 more"), "{}", dropped[0].rule);
}

fn pinned(definitions: &[Value]) -> Frozen {
    let pins = definitions.iter().map(|d| ToolPin::of(d.clone()).unwrap()).collect();
    Frozen::by(&ToolPins { server: s(), instructions: None, tools: pins })
}

#[test]
fn with_pins_the_lock_is_the_first_list_and_both_digests_are_named() {
    let (a, b) = (json!({"name": "a"}), json!({"name": "b"}));
    let frozen = pinned(&[a.clone(), b.clone()]);
    assert_eq!(pin(&frozen, "a"), Pin::Gone, "nothing was listed yet");
    let now = [json!({"name": "a"}), json!({"name": "b", "x": 1}), json!({"name": "c"})];
    let (frozen, dropped) = Frozen::take(Some(frozen), &listed(&now));
    assert!(dropped.is_empty());
    let verdicts: Vec<_> = ["a", "b", "c"].map(|tool| frozen.verdict(&s(), tool)).into();
    let pins: Vec<_> = verdicts.iter().map(|verdict| verdict.pin).collect();
    assert_eq!(pins, [Pin::Same, Pin::Changed, Pin::Unknown]);
    assert_eq!(verdicts[0].rule, "lock: tool s/a");
    for digest in [ringfence_bundle::tool_digest(&b), ringfence_bundle::tool_digest(&now[1])] {
        assert!(verdicts[1].rule.contains(&digest.to_string()), "{}", verdicts[1].rule);
    }
    let found = ringfence_bundle::tool_digest(&now[2]).to_string();
    assert!(verdicts[2].rule.contains(&found), "{}", verdicts[2].rule);
    let moved = frozen.moved(&s(), None);
    assert_eq!(moved.iter().map(|d| &*d.name).collect::<Vec<_>>(), ["b", "c"]);
    assert!(moved.iter().all(|d| d.check == "pin" && d.rule.starts_with("lock: tool s/")));
    // What the declaration leaves out is not offered anyway.
    let only = ["a", "c"].map(|name| ringfence_bundle::ToolName::parse(name).unwrap());
    assert_eq!(frozen.moved(&s(), Some(&only)).len(), 1);
    // Whatever comes later, the lock stays the first list.
    let (frozen, _) = Frozen::take(Some(frozen), &listed(&[json!({"name": "b", "x": 1}), b]));
    assert_eq!((pin(&frozen, "a"), pin(&frozen, "b")), (Pin::Gone, Pin::Gone), "b is there twice");
    let (frozen, _) = Frozen::take(Some(frozen), &listed(&[a, json!({"name": "A"})]));
    assert_eq!((pin(&frozen, "a"), pin(&frozen, "A")), (Pin::Gone, Pin::Unknown));
}

#[test]
fn a_page_does_not_bring_back_what_the_whole_list_dropped() {
    let read = json!({"name": "read"});
    for frozen in [pinned(std::slice::from_ref(&read)), Frozen::take(None, &tools(&["read"])).0] {
        let definition =
            if frozen.pinned { read.clone() } else { json!({"name": "read", "description": "d"}) };
        let now = listed(&[definition.clone(), json!({"name": "READ"})]);
        let (mut frozen, dropped) = Frozen::take(Some(frozen), &now);
        assert_eq!(dropped.len(), 2);
        assert_eq!(frozen.see(&s(), "read", &definition, true).pin, Pin::Gone);
        assert_eq!(pin(&frozen, "read"), Pin::Gone);
        // Alone again, it is what it was.
        let (mut frozen, _) =
            Frozen::take(Some(frozen), &listed(std::slice::from_ref(&definition)));
        assert_eq!(frozen.see(&s(), "read", &definition, true).pin, Pin::Same);
    }
}
