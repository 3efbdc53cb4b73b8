use proptest::prelude::{any, proptest};

use super::{Hidden, Reading, Scanner};

/// What is found in a text, read in pieces of this many bytes.
fn scan(bytes: &[u8], reading: Reading, size: usize) -> Option<(u64, Hidden)> {
    let mut scanner = Scanner::new(reading);
    let mut kept = Vec::new();
    for piece in bytes.chunks(size) {
        kept.extend_from_slice(piece);
        let left = scanner.piece(&kept);
        kept.drain(..kept.len() - left);
    }
    scanner.finish(kept.len())
}

fn found(text: &str) -> Option<(u64, char)> {
    let whole = scan(text.as_bytes(), Reading::Prose, 1 << 20);
    for size in 1..6 {
        assert_eq!(scan(text.as_bytes(), Reading::Prose, size), whole, "{text:?} by {size}");
    }
    whole.map(|(at, hidden)| match hidden {
        Hidden::Character(c) => (at, c),
        Hidden::NotText => panic!("{text:?} is text"),
    })
}

#[test]
fn emoji_as_people_write_them_pass() {
    for text in [
        "✔️ done, ⚠️ mind, ❤️ ✈️ ☎︎ ™️ ©️ ↔️ ▶️ ㊗️",
        "👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 👩🏽‍🚀 ❤️‍🔥 🧔‍♂️ 🏃🏻‍♀️‍➡️ 👁️‍🗨️ 🐻‍❄️ 😶‍🌫️",
        "1️⃣ #️⃣ *️⃣",
        "🇩🇪 🇯🇵",
        "# Heading ✅\n\n- **Fast** 🚀\n",
    ] {
        assert_eq!(found(text), None, "{text}");
    }
}

#[test]
fn scripts_that_need_joiners_pass() {
    for text in [
        "می‌خواهم کتاب‌ها را",
        "क्‍ष र्‍य न्‌न",
        "ශ්‍රී ලංකාව",
        "ക്‍ മലയാളം",
        "ভারতের র‍্যাব",
        "ខ្ញុំ\u{200b}ចង់\u{200b}រៀន",
        "ภาษา\u{200b}ไทย",
        "葛󠄀城市",
        "ᠮᠣᠩᠭᠣᠯ᠋ᠢ",
        "⠓⠑⠇⠇⠕⠀⠺",
        "גרסה (C++)\u{200f} היא",
        "\u{200f}שלום",
        "العربية\u{200e} 123",
        "Grüße, 日本語, Ελληνικά, Ўзбек, 한국어",
        "tab\tand\r\nform feed\u{c}",
        "twice mangled\r\r\n",
        "",
    ] {
        assert_eq!(found(text), None, "{text}");
    }
}

#[test]
fn what_hides_text_is_found_where_it_stands() {
    for (text, c) in [
        ("a\u{200b}b", '\u{200b}'),
        ("a\u{200c}b", '\u{200c}'),
        ("a\u{200d}b", '\u{200d}'),
        ("a\u{2060}b", '\u{2060}'),
        ("a\u{feff}b", '\u{feff}'),
        ("a\u{ad}b", '\u{ad}'),
        ("a\u{202e}b", '\u{202e}'),
        ("a\u{2066}b\u{2069}", '\u{2066}'),
        ("a\u{200e}b", '\u{200e}'),
        ("a\u{200f}b", '\u{200f}'),
        ("a\u{61c}b", '\u{61c}'),
        ("a\u{e0041}\u{e0042}", '\u{e0041}'),
        ("🏴\u{e0067}\u{e0062}\u{e007f}", '\u{e0067}'),
        // Bytes smuggled in variation selectors.
        ("😊\u{e0145}\u{e0101}", '\u{e0145}'),
        ("😊\u{fe0f}\u{fe0f}", '\u{fe0f}'),
        ("😊\u{fe00}", '\u{fe00}'),
        ("a\u{fe0f}", '\u{fe0f}'),
        ("1\u{fe0f}", '\u{fe0f}'),
        ("1\u{fe0f}2", '\u{fe0f}'),
        ("葛\u{e0100}\u{e0101}", '\u{e0101}'),
        // Joiners where nothing is joined.
        ("👩\u{200d}", '\u{200d}'),
        ("👩\u{200d}a", '\u{200d}'),
        ("👩\u{200d}\u{200d}💻", '\u{200d}'),
        ("م\u{200c}\u{200c}ی", '\u{200c}'),
        ("م\u{200c}a", '\u{200c}'),
        ("a\u{200c}م", '\u{200c}'),
        ("ខ\u{200b}a", '\u{200b}'),
        ("ខ\u{200b}\u{200b}ខ", '\u{200b}'),
        ("ש\u{200f}\u{200f}", '\u{200f}'),
        ("ש\nab\u{200f}", '\u{200f}'),
        ("a\u{2028}b", '\u{2028}'),
        ("a\u{3164}b", '\u{3164}'),
        ("a\u{115f}b", '\u{115f}'),
        ("a\u{34f}b", '\u{34f}'),
        ("a\u{1d173}b", '\u{1d173}'),
        ("a\u{9b}31m", '\u{9b}'),
        ("a\u{1b}[8m", '\u{1b}'),
        ("a\u{8}b", '\u{8}'),
        ("a\0b", '\0'),
        ("a\u{7f}", '\u{7f}'),
        ("Run rm -rf.\rBe kind.   \n", '\r'),
        ("a\r\rb\n", '\r'),
        ("a\r", '\r'),
        ("\u{200b}", '\u{200b}'),
        ("\u{feff}\u{feff}", '\u{feff}'),
    ] {
        let at = match found(text) {
            Some((at, found)) if found == c => at,
            other => panic!("{text:?}: {other:?}"),
        };
        let at = usize::try_from(at).expect("short");
        assert!(text[at..].starts_with(c), "{text:?} at {at}");
    }
    assert_eq!(found("\u{feff}# with a byte order mark"), None);
}

#[test]
fn each_invisible_character_is_refused_between_latin_letters() {
    for c in ('\0'..=char::MAX).filter(|c| crate::text::is_invisible(*c)) {
        let text = format!("a{c}b");
        let fine = matches!(c, '\t' | '\n' | '\u{c}' | '\u{2800}');
        assert_eq!(found(&text).is_none(), fine, "U+{:04X}", u32::from(c));
    }
}

#[test]
fn what_unicode_says_is_ignored_does_not_show() {
    let (ignored, format) = (super::Set::of("Default_Ignorable_Code_Point"), super::Set::of("Cf"));
    assert!(ignored.holds('\u{200b}') && format.holds('\u{200b}'), "control");
    // Signs that stand before a number or a name, and are seen.
    let seen = |c: char| {
        matches!(
            c,
            '\u{600}'
                ..='\u{605}'
                    | '\u{6dd}'
                    | '\u{70f}'
                    | '\u{890}'
                    | '\u{891}'
                    | '\u{8e2}'
                    | '\u{110bd}'
                    | '\u{110cd}'
        )
    };
    for c in '\0'..=char::MAX {
        if (ignored.holds(c) || format.holds(c)) && !seen(c) {
            assert!(crate::text::is_invisible(c), "U+{:04X}", u32::from(c));
        }
    }
}

#[test]
fn prose_must_be_text_and_binary_files_are_left_alone() {
    let prose = |bytes: &[u8]| scan(bytes, Reading::Prose, 3);
    let any = |bytes: &[u8]| scan(bytes, Reading::Any, 3);
    assert_eq!(prose(b"caf\xe9"), Some((3, Hidden::NotText)));
    assert_eq!(prose(b"caf\xc3"), Some((3, Hidden::NotText)));
    assert_eq!(any(b"caf\xe9 and \xc3"), None);
    let hidden = "x\u{e0041}y".as_bytes();
    let broken = [b"\xff ".as_slice(), hidden].concat();
    assert_eq!(any(&broken), Some((3, Hidden::Character('\u{e0041}'))), "a bad byte hides nothing");
    assert_eq!(any(&[hidden, b"\0"].concat()), None, "binary");
    assert_eq!(any(b"\x1b[0m 10%\r20%"), None, "code may colour its words");
    assert_eq!(prose(&[hidden, b"\0"].concat()), Some((1, Hidden::Character('\u{e0041}'))));
}

#[test]
fn prose_is_known_by_its_name() {
    for (path, prose) in [
        ("SKILL.md", true),
        ("references/A.MD", true),
        ("a.b/notes.txt", true),
        ("a.md/run", false),
        ("run.py", false),
        ("md", false),
        ("logo.png", false),
    ] {
        assert_eq!(Reading::of(path) == Reading::Prose, prose, "{path}");
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter(bytes in any::<Vec<u8>>(), size in 1_usize..9) {
        for reading in [Reading::Prose, Reading::Any] {
            assert_eq!(scan(&bytes, reading, size), scan(&bytes, reading, 1 << 20));
        }
    }

    #[test]
    fn pieces_of_text_do_not_matter(text in any::<String>(), size in 1_usize..9) {
        assert_eq!(
            scan(text.as_bytes(), Reading::Any, size),
            scan(text.as_bytes(), Reading::Any, 1 << 20)
        );
    }
}
