use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Scrubber;
use crate::Secret;

const VALUE: &str = "p@ss/w\"örd+\\~?";

fn scrubber(values: &[(&str, &str)]) -> Scrubber {
    let secrets: Vec<(&str, Secret)> =
        values.iter().map(|(name, value)| (*name, Secret::new((*value).to_owned()))).collect();
    Scrubber::new(secrets.iter().map(|(name, secret)| (*name, secret)))
}

fn percent(value: &str, all: bool, upper: bool) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match (plain && !all, upper) {
            (true, _) => text.push(char::from(byte)),
            (false, true) => write!(text, "%{byte:02X}").unwrap(),
            (false, false) => write!(text, "%{byte:02x}").unwrap(),
        }
        text
    })
}

fn spelled(value: &str) -> Vec<String> {
    let json = serde_json::to_string(value).unwrap();
    let twice = serde_json::to_string(&json).unwrap();
    let escaped = value.encode_utf16().fold(String::new(), |mut text, unit| {
        write!(text, "\\u{unit:04x}").unwrap();
        text
    });
    vec![
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        twice[1..twice.len() - 1].to_owned(),
        escaped,
        percent(value, false, true),
        percent(value, false, false),
        percent(value, true, true),
        STANDARD.encode(value),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        percent(&STANDARD.encode(value), false, true),
    ]
}

#[test]
fn every_spelling_is_taken_out() {
    let scrubber = scrubber(&[("TOKEN", VALUE)]);
    for text in spelled(VALUE) {
        let whole = format!("before {text} after");
        let clean = scrubber.text(&whole);
        assert!(clean.contains("[redacted:TOKEN]"), "{text} -> {clean}");
        let rest = clean.replace("[redacted:TOKEN]", "");
        let rest = rest.strip_prefix("before ").and_then(|r| r.strip_suffix(" after")).unwrap();
        assert!(rest.len() <= 6, "{text} left {rest}: only quotes and padding may stay");
    }
}

#[test]
fn hexadecimal_and_broken_lines() {
    let scrubber = scrubber(&[("TOKEN", VALUE)]);
    let hex = |upper: bool| {
        VALUE.bytes().fold(String::new(), |mut text, byte| {
            if upper { write!(text, "{byte:02X}") } else { write!(text, "{byte:02x}") }.unwrap();
            text
        })
    };
    for text in [hex(false), hex(true), format!("0x{}ff", hex(false))] {
        let clean = scrubber.text(&text);
        assert!(clean.contains("[redacted:TOKEN]"), "{text} -> {clean}");
    }
    let long = STANDARD.encode(format!("user and more text:{VALUE}, and still more text after it"));
    for (end, escaped) in [
        ("\n", false),
        ("\r\n", false),
        ("\n  ", false),
        ("\n\t", false),
        ("\r", false),
        ("\n", true),
    ] {
        for width in [1, 2, 4, 10, 25, 64, 76] {
            let lines: Vec<&str> =
                long.as_bytes().chunks(width).map(|l| std::str::from_utf8(l).unwrap()).collect();
            let mut text = lines.join(end);
            if escaped {
                text = serde_json::to_string(&text).unwrap();
            }
            let clean = scrubber.text(&text);
            assert!(clean.contains("[redacted:TOKEN]"), "{width} {end:?}: {clean}");
        }
    }
    let wrapped = hex(true)
        .as_bytes()
        .chunks(6)
        .map(|l| String::from_utf8(l.to_vec()).unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(scrubber.text(&wrapped), "[redacted:TOKEN]");
    // Control: what is between the lines stays where nothing is found.
    assert!(matches!(scrubber.text("a\r\nb\n\tc"), Cow::Borrowed(_)));
}

#[test]
fn within_a_longer_base64_text() {
    let scrubber = scrubber(&[("TOKEN", VALUE)]);
    for before in ["", "u", "us", "use", "user:"] {
        for after in ["", "x", "xy", "xyz"] {
            for text in [
                STANDARD.encode(format!("{before}{VALUE}{after}")),
                URL_SAFE.encode(format!("{before}{VALUE}{after}")),
            ] {
                assert!(scrubber.text(&text).contains("[redacted:TOKEN]"), "{before} {after}");
            }
        }
    }
}

#[test]
fn nothing_found_is_nothing_copied() {
    let scrubber = scrubber(&[("TOKEN", VALUE)]);
    let text = "a reply with 100% of \\n nothing in it, p@ss/w and \"ord";
    assert!(matches!(scrubber.text(text), Cow::Borrowed(_)));
    assert!(matches!(scrubber.bytes(b"\xff%zz\\u12"), Cow::Borrowed(_)));
    let mut value = json!({"a": [1, null, text, {"b": 1.5}]});
    let before = value.clone();
    assert!(!scrubber.value(&mut value));
    assert_eq!(value, before);
}

#[test]
fn json_is_scrubbed_deep_and_stays_json() {
    let scrubber = scrubber(&[("TOKEN", VALUE), ("PIN", "1234567890")]);
    let nested = json!({ "inner": VALUE }).to_string();
    let mut value = json!({
        VALUE: 1,
        format!("{VALUE}{VALUE}"): 2,
        "deep": [{"x": [format!("Bearer {VALUE}")]}],
        "text": nested,
        "pin": 1_234_567_890,
        "kept": 12_345,
    });
    assert!(scrubber.value(&mut value));
    assert_eq!(
        value,
        json!({
            "[redacted:TOKEN]": 1,
            "[redacted:TOKEN][redacted:TOKEN]": 2,
            "deep": [{"x": ["Bearer [redacted:TOKEN]"]}],
            "text": "{\"inner\":\"[redacted:TOKEN]\"}",
            "pin": "[redacted:PIN]",
            "kept": 12_345,
        })
    );
}

#[test]
fn keys_that_become_equal_stay_apart() {
    let scrubber = scrubber(&[("A", "first-value")]);
    let mut value = json!({"first-value": 1, "first%2Dvalue": 2});
    scrubber.value(&mut value);
    assert_eq!(value, json!({"[redacted:A]": 1, "[redacted:A]#2": 2}));
}

#[test]
fn values_that_overlap_leave_nothing() {
    let scrubber = scrubber(&[("LONG", "abcdefgh-12345678"), ("SHORT", "abcdefgh")]);
    assert_eq!(scrubber.text("abcdefgh-12345678"), "[redacted:LONG]");
    assert_eq!(scrubber.text("abcdefgh-1234"), "[redacted:SHORT]-1234");
    let scrubber = self::scrubber(&[("A", "xxxxabcd1234"), ("B", "abcd1234yyyy")]);
    assert_eq!(scrubber.text("xxxxabcd1234yyyy"), "[redacted:A]", "one reaches into the other");
}

#[test]
fn short_values_are_named_and_not_searched_for() {
    let scrubber = scrubber(&[("SHORT", "abc"), ("TOKEN", VALUE)]);
    assert_eq!(scrubber.too_short(), ["SHORT"]);
    assert_eq!(scrubber.text("abc"), "abc");
    assert_eq!(self::scrubber(&[]).text("abc \\n %20"), "abc \\n %20");
}

#[test]
fn never_printed() {
    let scrubber = scrubber(&[("TOKEN", VALUE)]);
    let printed = format!("{scrubber:?}");
    assert!(printed.contains("TOKEN") && !printed.contains("p@ss"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]
    #[test]
    fn no_spelling_survives(
        value in "[ -~äß€🦀]{8,24}",
        // An escape that was begun before the value takes the value's first characters with it.
        before in "[ -$&-\\[\\]-~é]{0,12}",
        after in "[ -~é]{0,12}",
        which in 0usize..12,
    ) {
        let scrubber = scrubber(&[("TOKEN", &value)]);
        let text = &spelled(&value)[which];
        let whole = format!("{before}{text}{after}");
        let clean = scrubber.text(&whole);
        prop_assert!(clean.contains("[redacted:TOKEN]"));
        // Scrubbing is finished: a second pass finds nothing.
        prop_assert!(matches!(scrubber.text(&clean), Cow::Borrowed(_)));
    }

    #[test]
    fn hostile_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let scrubber = scrubber(&[("TOKEN", VALUE)]);
        prop_assert!(matches!(scrubber.bytes(&bytes), Cow::Borrowed(_)));
        if let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) {
            scrubber.value(&mut value);
        }
    }
}
