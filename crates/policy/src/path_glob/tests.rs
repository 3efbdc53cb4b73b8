use proptest::prelude::*;

use super::PathGlob;

/// The grammar said again, by recursion. `fresh` says whether a component begins here.
pub(crate) fn naive(pattern: &[char], text: &[char], fresh: bool) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', '*', rest @ ..] => {
            let stars = rest.iter().take_while(|c| **c == '*').count();
            let rest = &rest[stars..];
            match rest {
                ['/', rest @ ..] if fresh => {
                    naive(rest, text, true)
                        || text
                            .iter()
                            .enumerate()
                            .any(|(n, c)| *c == '/' && naive(rest, &text[n + 1..], true))
                }
                _ => (0..=text.len()).any(|n| naive(rest, &text[n..], false)),
            }
        }
        ['*', rest @ ..] => {
            let end = text.iter().position(|c| *c == '/').unwrap_or(text.len());
            (0..=end).any(|n| naive(rest, &text[n..], false))
        }
        ['?', rest @ ..] => {
            text.first().is_some_and(|c| *c != '/') && naive(rest, &text[1..], false)
        }
        [c, rest @ ..] => text.first() == Some(c) && naive(rest, &text[1..], *c == '/'),
    }
}

#[test]
fn spelled_out() {
    let m = |pattern: &str, path: &str| PathGlob::new(pattern).matches(path);
    assert!(m("src/*.rs", "src/a.rs"));
    assert!(!m("src/*.rs", "src/a/b.rs"), "`*` stays within a component");
    assert!(m("src/**.rs", "src/a/b.rs"));
    assert!(m("**/id_rsa", "id_rsa"), "`**/` may be no folder");
    assert!(m("**/id_rsa", "a/b/id_rsa"));
    assert!(!m("**/id_rsa", "a/not_id_rsa"));
    assert!(m("a/**/b", "a/b"));
    assert!(m(".env*", ".env.local"));
    assert!(!m(".env*", "x/.env"));
    assert!(!m("a?b", "a/b"), "`?` is no `/`");
}

#[test]
fn a_hostile_pattern_is_bounded() {
    let pattern = format!("{}**z", "**a*".repeat(100));
    let path = "a/".repeat(2048);
    assert!(!PathGlob::new(&pattern).matches(&path));
    assert!(PathGlob::new(&pattern).matches(&format!("{path}z")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8192))]
    #[test]
    fn same_as_the_grammar(pattern in "[ab/*?]{0,7}", path in "[ab/]{0,9}") {
        let p: Vec<char> = pattern.chars().collect();
        let t: Vec<char> = path.chars().collect();
        prop_assert_eq!(PathGlob::new(&pattern).matches(&path), naive(&p, &t, true));
    }
}
