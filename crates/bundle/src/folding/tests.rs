use super::{collision, fold};

#[test]
fn names_that_are_one_elsewhere_are_found() {
    for (a, b) in [
        ("README.md", "readme.md"),
        ("caf\u{e9}", "cafe\u{301}"),
        ("CAF\u{c9}", "cafe\u{301}"),
        ("straße", "STRASSE"),
        ("\u{212a}", "k"),
        ("ſ", "S"),
        ("Σ", "ς"),
        ("\u{1e9b}\u{323}", "\u{1e61}\u{323}"),
        ("ﬁ", "FI"),
        ("a.", "a"),
        ("a ", "A"),
        ("İ", "i\u{307}"),
    ] {
        assert_eq!(fold(a), fold(b), "{a} {b}");
        let found = collision(&["z", a, "other", b]).expect("a collision");
        assert!([(a, b), (b, a)].contains(&found), "{found:?}");
    }
}

#[test]
fn other_names_stay_apart() {
    let names = ["a", "b", "ab", "a.b", ".a", "é", "e", "日本", "日木", "K2", "k3", "1", "2"];
    assert_eq!(collision(&names), None);
    assert_eq!(collision(&[]), None);
}
