use super::{display_line, first_bidi, first_invisible, shown};

#[test]
fn names_each_kind_of_invisible_character_and_passes_plain_text() {
    for c in [
        '\u{200b}',
        '\u{202e}',
        '\u{2066}',
        '\u{feff}',
        '\u{e0041}',
        '\u{fe0f}',
        '\u{1b}',
        '\0',
        '\u{ad}',
    ] {
        assert_eq!(first_invisible(&format!("ab{c}")), Some((2, c)), "{c:?}");
    }
    assert_eq!(first_invisible("plain, Grüße, 日本語\tand\r\nlines"), None);
}

#[test]
fn bidi_is_a_narrower_kind() {
    assert_eq!(first_bidi("x\u{202e}y"), Some((1, '\u{202e}')));
    assert_eq!(first_bidi("x\u{200d}y"), None);
}

#[test]
fn shown_escapes_and_cuts() {
    assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
    assert_eq!(shown(&"x".repeat(100)).chars().count(), 81);
}

#[test]
fn a_displayed_line_keeps_its_columns() {
    let line = "a\tb\u{1b}[0m\u{202e}c";
    let shown = display_line(line);
    assert_eq!(shown.chars().count(), line.chars().count());
    assert_eq!(first_invisible(&shown), None);
}
