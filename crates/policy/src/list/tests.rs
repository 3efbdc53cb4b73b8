use proptest::prelude::*;

use super::{List, Query, Verdict};
use crate::glob;
use crate::pattern::{Kind, NamePattern};

/// The list read from the top.
fn naive(patterns: &[NamePattern], name: &str, port: u16) -> Verdict {
    let first = |negative: bool| {
        patterns.iter().position(|p| {
            p.negative == negative && p.ports.cover(port) && glob::matches(&p.glob, name)
        })
    };
    match (first(true), first(false)) {
        (Some(at), _) => Verdict::Denied(at),
        (None, Some(at)) => Verdict::Allowed(Some(at)),
        (None, None) if !patterns.is_empty() && patterns.iter().all(|p| p.negative) => {
            Verdict::Allowed(None)
        }
        (None, None) => Verdict::Unlisted,
    }
}

fn parse(kind: Kind, texts: &[&str]) -> Vec<NamePattern> {
    texts.iter().map(|t| NamePattern::parse(kind, t).unwrap()).collect()
}

fn verdict(texts: &[&str], name: &str) -> Verdict {
    List::new(parse(Kind::Tool, texts)).judge(&Query::new(name, 0))
}

#[test]
fn semantics_of_a_list() {
    assert_eq!(verdict(&["*", "!*_delete"], "row_delete"), Verdict::Denied(1));
    assert_eq!(verdict(&["*", "!*_delete"], "row_list"), Verdict::Allowed(Some(0)));
    assert_eq!(
        verdict(&["!*_delete", "*"], "row_delete"),
        Verdict::Denied(0),
        "order is no matter"
    );
    assert_eq!(verdict(&["list"], "pay"), Verdict::Unlisted);
    assert_eq!(verdict(&["!pay"], "list"), Verdict::Allowed(None), "negatives alone");
    assert_eq!(verdict(&["!pay"], "pay"), Verdict::Denied(0));
    assert_eq!(verdict(&["!*"], "list"), Verdict::Denied(0), "`!*` denies all");
    assert_eq!(verdict(&[], "list"), Verdict::Unlisted, "an empty list allows nothing");
}

#[test]
fn a_port_narrows_a_pattern() {
    let list = List::new(parse(Kind::Egress, &["*.x", "!*.x:22", "!b.x:80"]));
    assert_eq!(list.judge(&Query::new("a.x", 443)), Verdict::Allowed(Some(0)));
    assert_eq!(list.judge(&Query::new("a.x", 22)), Verdict::Denied(1));
    assert_eq!(list.judge(&Query::new("b.x", 80)), Verdict::Denied(2));
    assert_eq!(list.judge(&Query::new("b.x", 443)), Verdict::Allowed(Some(0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8192))]
    #[test]
    fn indexed_equals_read_from_the_top(
        patterns in prop::collection::vec("!?[ab*?]{1,5}", 0..12),
        name in "[ab]{1,6}",
    ) {
        let texts: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let parsed = parse(Kind::Tool, &texts);
        let expected = naive(&parsed, &name, 0);
        prop_assert_eq!(List::new(parsed).judge(&Query::new(&name, 0)), expected);
    }

    #[test]
    fn indexed_equals_read_from_the_top_with_ports(
        patterns in prop::collection::vec("!?[ab*?](\\.[ab*?]){0,3}(:1|:2)?", 0..12),
        name in "[ab](\\.[ab]){0,3}",
        port in 1u16..4,
    ) {
        let texts: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let parsed = parse(Kind::Egress, &texts);
        let expected = naive(&parsed, &name, port);
        prop_assert_eq!(List::new(parsed).judge(&Query::new(&name, port)), expected);
    }
}
