use proptest::prelude::*;

use super::{Alphabet, Language, Within};
use crate::filesystem::Deny;
use crate::glob;
use crate::pattern::parse_deny;

const ABC: Alphabet<'_> = Alphabet::Only("abc");

/// Every text over these letters up to a length, not the empty one.
fn words(letters: &str, most: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..most {
        last = last
            .iter()
            .flat_map(|word| letters.chars().map(move |c| format!("{word}{c}")))
            .collect();
        all.extend(last.iter().cloned());
    }
    all.remove(0);
    all
}

fn within(one: &str, others: &[&str]) -> Within {
    let others: Vec<Language> = others.iter().map(|glob| Language::of_name(glob)).collect();
    let others: Vec<&Language> = others.iter().collect();
    Language::of_name(one).within(&others, ABC)
}

#[test]
fn known_answers() {
    for (one, others) in [
        ("a", &["*"][..]),
        ("a*", &["*"]),
        ("a*b", &["a*"]),
        ("*", &["?*"]),
        ("*?*", &["?*"]),
        ("a*", &["a", "a?*"]),
        ("?", &["a", "b", "c"]),
        ("*a*b*", &["*a*", "c"]),
        ("d", &[]),
    ] {
        assert_eq!(within(one, others), Within::Yes, "{one} in {others:?}");
    }
    for (one, others) in [
        ("*", &["a*"][..]),
        ("a*", &["a", "a?"]),
        ("?", &["a", "b"]),
        ("*a", &["a*"]),
        ("*ab*", &["*a?b*", "a"]),
        ("a", &[]),
    ] {
        assert!(matches!(within(one, others), Within::No(_)), "{one} in {others:?}");
    }
    let other = |name: &str| Language::of_name(name);
    assert!(other("a*").meets(&other("*b"), ABC));
    assert!(!other("a*").meets(&other("b*"), ABC));
    assert!(other("d*").is_empty(ABC) && !other("*").is_empty(ABC));
}

#[test]
fn a_pattern_made_to_be_hard_is_bounded() {
    let one = Language::of_name(&format!("{}*", "*a?".repeat(150)));
    let hard = Language::of_name(&format!("*a{}", "?".repeat(400)));
    let began = std::time::Instant::now();
    assert_ne!(one.within(&[&hard], ABC), Within::Yes);
    assert!(began.elapsed().as_secs() < 60);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// A yes is held against every text of up to seven letters; a no names a text, which is held
    /// against the matcher.
    #[test]
    fn within_is_what_the_matcher_says(
        one in "[ab*?]{1,5}",
        others in prop::collection::vec("[ab*?]{1,5}", 0..4),
    ) {
        let in_others = |word: &str| others.iter().any(|glob| glob::matches(glob, word));
        let texts: Vec<&str> = others.iter().map(String::as_str).collect();
        match within(&one, &texts) {
            Within::Yes => {
                for word in words("abc", 7) {
                    prop_assert!(!glob::matches(&one, &word) || in_others(&word), "{}", word);
                }
            }
            Within::No(word) => {
                prop_assert!(!word.is_empty());
                prop_assert!(glob::matches(&one, &word) && !in_others(&word), "{}", word);
            }
            Within::Unknown => prop_assert!(false, "these are small"),
        }
    }

    #[test]
    fn meeting_is_what_the_matcher_says(one in "[ab*?]{1,5}", other in "[ab*?]{1,5}") {
        let meets = Language::of_name(&one).meets(&Language::of_name(&other), ABC);
        // Two globs of five meet, if at all, in a text of ten or fewer.
        let found = words("abc", 8)
            .iter()
            .any(|word| glob::matches(&one, word) && glob::matches(&other, word));
        prop_assert!(meets || !found);
        let short = !one.contains('*') || !other.contains('*') || one.len() + other.len() <= 8;
        prop_assert!(!short || meets == found);
    }

    /// The same over the paths that a denial covers.
    #[test]
    fn denials_within_denials(
        one in crate::properties::generate::PATH,
        others in prop::collection::vec(crate::properties::generate::PATH, 1..3),
    ) {
        let deny = |text: &String| Deny::new(&parse_deny(text).unwrap());
        let (first, rest) = (deny(&one), others.iter().map(deny).collect::<Vec<_>>());
        let covered = |deny: &Deny, path: &str| deny.covers(Some(path), &format!("p/{path}"));
        let language = first.language();
        let languages: Vec<Language> = rest.iter().map(Deny::language).collect();
        let languages: Vec<&Language> = languages.iter().collect();
        let plain = |path: &String| path.split('/').all(|part| !part.is_empty());
        match language.within(&languages, Alphabet::Every) {
            Within::Yes => {
                for path in words("ab/", 7).iter().filter(|path| plain(path)) {
                    let inside = rest.iter().any(|deny| covered(deny, path));
                    prop_assert!(!covered(&first, path) || inside, "{}", path);
                }
            }
            Within::No(path) => {
                // The witness may be no plain path; then another that is must not be claimed.
                if plain(&path) {
                    prop_assert!(covered(&first, &path), "{}", path);
                    prop_assert!(!rest.iter().any(|deny| covered(deny, &path)), "{}", path);
                }
            }
            Within::Unknown => prop_assert!(false, "these are small"),
        }
    }
}
