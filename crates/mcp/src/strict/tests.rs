use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use serde_json::{Value, json};

use super::{Limits, StrictError, fold, parse};

fn read(text: &str) -> Result<Value, StrictError> {
    parse(text.as_bytes(), Limits::default())
}

#[test]
fn reads_what_is_unambiguous() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2.5,-3,null,true]}}}"#,
        r#"{"b":1,"a":2}"#,
        r#"{"a":{"b":1},"c":{"b":2}}"#,
        r#"[{"k":1},{"k":2},{"K":3}]"#,
        r#""\u00e9\ud83d\ude00""#,
        "18446744073709551615",
        "-9223372036854775808",
        "0.1",
        "0",
        r#"{"a":"1e999","b":"12345678901234567890123"}"#,
        r#"{"a\"1":2,"\\":3}"#,
    ] {
        let value = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap(), "{text}");
        assert_eq!(read(&value.to_string()).unwrap(), value, "{text}");
    }
}

#[test]
fn keeps_the_order_of_keys() {
    assert_eq!(read(r#"{"z":1,"a":2,"m":3}"#).unwrap().to_string(), r#"{"z":1,"a":2,"m":3}"#);
}

#[test]
fn refuses_a_key_twice_at_any_level() {
    for text in [
        r#"{"method":"ping","method":"tools/call"}"#,
        r#"{"a":{"b":[{"c":1,"d":2,"c":3}]}}"#,
        r#"{"a":1,"\u0061":2}"#,
    ] {
        assert!(matches!(read(text), Err(StrictError::DuplicateKey { .. })), "{text}");
    }
}

#[test]
fn refuses_keys_that_differ_only_in_case() {
    for text in [
        r#"{"name":"read","Name":"write"}"#,
        r#"{"params":{"arguments":{},"ARGUMENTS":{}}}"#,
        r#"{"kind":1,"\u212Aind":2}"#,
        r#"{"params":1,"param\u017F":2}"#,
        r#"{"straße":1,"STRASSE":2}"#,
        r#"{"σ":1,"ς":2}"#,
        r#"{"straße":1,"STRAẞE":2}"#,
        r#"{"id":1,"\u0130d":2}"#,
        r#"{"id":1,"\u0131d":2}"#,
    ] {
        assert!(matches!(read(text), Err(StrictError::CollidingKey { .. })), "{text}");
    }
    assert!(read(r#"{"name":"read","names":"write"}"#).is_ok());
}

#[test]
fn folds_every_character_together_with_its_other_cases() {
    for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
        let own = fold(&c.to_string());
        assert_eq!(own, fold(&c.to_uppercase().to_string()), "{c:?}");
        assert_eq!(own, fold(&c.to_lowercase().to_string()), "{c:?}");
        assert_eq!(own, fold(&own), "{c:?}");
    }
}

#[test]
fn refuses_more_or_less_than_one_value() {
    for text in [
        "",
        " ",
        "{}{}",
        "{} {}",
        "{},",
        "[1,]",
        "{\"a\":1,}",
        "nul",
        "{\"a\":1}x",
        "'a'",
        "\u{feff}{}",
        "// c\n{}",
        "NaN",
        "Infinity",
        "+1",
        "01",
        "1.",
        ".5",
        "--1",
        "1e",
        "\"a\nb\"",
    ] {
        assert!(
            matches!(read(text), Err(StrictError::Syntax { .. })),
            "{text:?}: {:?}",
            read(text)
        );
    }
    assert!(read(" {} \r\n").is_ok());
}

#[test]
fn refuses_bytes_that_are_not_text() {
    for bytes in [&b"\"\xff\""[..], b"\"\xc0\xaf\"", b"\"\xed\xa0\x80\"", b"{\"a\xff\":1}"] {
        assert!(matches!(parse(bytes, Limits::default()), Err(StrictError::NotUtf8 { .. })));
    }
    for text in [r#""\ud800""#, r#""\udc00""#, r#""\ud800\u0041""#, r#"{"\ud800":1}"#] {
        assert!(matches!(read(text), Err(StrictError::Syntax { .. })), "{text}");
    }
    assert!(read("\"é\"").is_ok());
}

#[test]
fn refuses_numbers_that_would_change() {
    for text in [
        "12345678901234567890123",
        "18446744073709551616",
        "9007199254740993.0",
        "0.1000000000000000055511151231257827021181583404541015625",
        "100.00000000000000001",
        &"1".repeat(65),
        &format!("0.{}", "0".repeat(80)),
    ] {
        assert!(matches!(read(text), Err(StrictError::Number { .. })), "{text}");
        assert!(matches!(
            read(&format!("{{\"a\":[\"7\",{text}]}}")),
            Err(StrictError::Number { .. })
        ));
    }
    for text in ["1e400", "-1e400", "[1e999999999999999999999]"] {
        assert!(read(text).is_err(), "{text}");
    }
    for (text, written) in [
        ("1.10", "1.1"),
        ("1e2", "100.0"),
        ("9007199254740992.0", "9007199254740992.0"),
        ("-0", "-0.0"),
        ("100.00", "100.0"),
    ] {
        assert_eq!(read(text).unwrap().to_string(), written);
    }
}

#[test]
fn bounds_depth_and_size() {
    let nest = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(read(&nest(64)).is_ok());
    assert!(matches!(read(&nest(65)), Err(StrictError::TooDeep { limit: 64 })));
    assert!(read(&nest(100_000)).is_err());
    let limits = Limits { bytes: 10, ..Limits::default() };
    assert!(parse(b"\"12345678\"", limits).is_ok());
    assert_eq!(parse(b"\"123456789\"", limits), Err(StrictError::TooLarge { limit: 10 }));
}

#[test]
fn bounds_the_number_of_values() {
    let limits = Limits { values: 5, ..Limits::default() };
    for (text, ok) in [
        ("[1,2,3,4]", true),
        ("[1,2,3,4,5]", false),
        (r#"{"a":{"b":[1,2]}}"#, true),
        (r#"[[],[],[]]"#, false),
        (r#"["[[[[[,,,,,{{{{","\",\",","\\"]"#, true),
    ] {
        let read = parse(text.as_bytes(), limits);
        assert_eq!(read.is_ok(), ok, "{text}: {read:?}");
        assert!(ok || read == Err(StrictError::TooMany { limit: 5 }), "{text}");
    }
}

#[test]
fn errors_hold_no_long_or_raw_text() {
    let key = "\u{1b}[31m".repeat(1000);
    let text = json!({ key.clone(): 1 }).to_string().replace('}', &format!(",{}:2}}", json!(key)));
    let error = read(&text).unwrap_err().to_string();
    assert!(error.len() < 800 && !error.contains('\u{1b}'), "{error}");
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::hash_map(".{0,6}", inner, 0..8).prop_map(|map| {
                let mut seen = std::collections::HashSet::new();
                Value::Object(map.into_iter().filter(|(key, _)| seen.insert(fold(key))).collect())
            }),
        ]
    })
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

proptest! {
    #[test]
    fn values_are_never_counted_short(value in values()) {
        assert!(super::values(value.to_string().as_bytes()) >= count(&value));
    }

    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = parse(&bytes, Limits::default());
    }

    #[test]
    fn never_panics_on_text_that_looks_like_json(text in "[\\[\\]{}:,\"\\\\u0-9eE.+\\- a-zA-Zé]{0,64}") {
        if let Ok(value) = read(&text) {
            assert_eq!(serde_json::from_str::<Value>(&value.to_string()).unwrap(), read(&value.to_string()).unwrap());
        }
    }

    #[test]
    fn what_was_written_reads_back(value in values()) {
        assert_eq!(read(&value.to_string()).unwrap(), value);
    }
}
