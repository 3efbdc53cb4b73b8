use super::{is_decimal, parse_usd};

#[test]
fn amounts_are_exact() {
    for (text, units) in [
        ("0", 0),
        ("0.00000001", 1),
        ("0.000003", 300),
        ("5.00", 500_000_000),
        ("999999999999.99999999", 99_999_999_999_999_999_999),
    ] {
        assert_eq!(parse_usd(text), Some(units), "{text}");
    }
}

#[test]
fn anything_else_is_refused() {
    for text in [
        "",
        ".",
        "1.",
        ".5",
        "-1",
        "+1",
        "1e3",
        "00.5",
        "01",
        "0.000000001",
        "1,5",
        " 1",
        "1 ",
        "1_000",
        "0x10",
        "NaN",
        "inf",
        "1.2.3",
        "1000000000000",
        "１",
        "$1",
    ] {
        assert_eq!(parse_usd(text), None, "{text:?}");
    }
}

#[test]
fn predicate_decimals_may_be_negative() {
    assert!(is_decimal("-100.00") && is_decimal("0") && is_decimal("9007199254740993"));
    for text in ["", "-", "1.", ".1", "1e5", "--1", "NaN"] {
        assert!(!is_decimal(text), "{text}");
    }
}
