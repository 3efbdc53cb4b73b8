use proptest::prelude::*;

use super::{is_literal, matches};

/// The grammar said again, by recursion.
fn naive(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('*', rest)) => (0..=text.len()).any(|n| naive(rest, &text[n..])),
        Some(('?', rest)) => !text.is_empty() && naive(rest, &text[1..]),
        Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
    }
}

#[test]
fn spelled_out() {
    assert!(matches("*", ""));
    assert!(matches("*", "anything/at.all"));
    assert!(matches("a?c", "aäc"));
    assert!(!matches("a?c", "aääc"));
    assert!(matches("list_*", "list_"));
    assert!(!matches("list_*", "list"));
    assert!(matches("*.example.com", "a.b.example.com"));
    assert!(!matches("*.example.com", "example.com"));
    assert!(matches("[a-z]{2}", "[a-z]{2}"), "only `*` and `?` are special");
    assert!(!matches("[a-z]{2}", "ab"));
    assert!(!matches("", "a"));
    assert!(is_literal("[a]") && !is_literal("a?") && !is_literal("*"));
}

#[test]
fn a_hostile_pattern_costs_no_more_than_the_product() {
    // Exponential for a backtracking matcher: 2^60 steps.
    let pattern = format!("{}b", "a*".repeat(60));
    assert!(!matches(&pattern, &"a".repeat(4096)));
    assert!(matches(&pattern, &format!("{}b", "a".repeat(4096))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8192))]
    #[test]
    fn same_as_the_grammar(pattern in "[abä*?]{0,8}", text in "[abä]{0,10}") {
        let p: Vec<char> = pattern.chars().collect();
        let t: Vec<char> = text.chars().collect();
        prop_assert_eq!(matches(&pattern, &text), naive(&p, &t));
    }
}
