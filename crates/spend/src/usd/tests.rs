use proptest::prelude::*;

use super::*;

#[test]
fn only_a_plain_decimal_of_eight_places_is_money() {
    for (text, units) in [
        ("0", 0),
        ("0.00000001", 1),
        ("0.5", 50_000_000),
        ("12.34", 1_234_000_000),
        ("92233720368.54775807", i64::MAX.unsigned_abs()),
    ] {
        assert_eq!(Usd::parse(text).map(Usd::units), Some(units), "{text}");
    }
    for text in [
        "",
        ".",
        ".5",
        "1.",
        "01",
        "00",
        "-1",
        "+1",
        "1e3",
        "1E3",
        "0x1",
        " 1",
        "1 ",
        "1,0",
        "1_0",
        "٣",
        "NaN",
        "inf",
        "0.000000001",
        "92233720368.54775808",
        "99999999999999999999999",
        "1.2.3",
        "0.-1",
    ] {
        assert_eq!(Usd::parse(text), None, "{text}");
    }
}

#[test]
fn sums_end_at_the_most_and_never_wrap() {
    let one = Usd::from_units(1);
    assert_eq!(Usd::MAX.checked_add(one), None);
    assert_eq!(Usd::MAX.saturating_add(one), Usd::MAX);
    assert_eq!(Usd::from_units(u64::MAX), Usd::MAX);
    assert_eq!(one.saturating_sub(Usd::MAX), Usd::ZERO);
    assert!(Usd::MAX.reaches(100, Usd::MAX) && !one.reaches(1, Usd::MAX));
    assert!(Usd::from_units(80).reaches(80, Usd::from_units(100)));
    assert!(!Usd::from_units(79).reaches(80, Usd::from_units(100)));
}

proptest! {
    #[test]
    fn what_is_printed_is_read_as_the_same(units in 0..=i64::MAX.unsigned_abs()) {
        let amount = Usd::from_units(units);
        prop_assert_eq!(Usd::parse(&amount.to_string()), Some(amount));
    }

    #[test]
    fn sums_are_exact(a in 0..=u64::MAX >> 2, b in 0..=u64::MAX >> 2) {
        let sum = Usd::from_units(a).checked_add(Usd::from_units(b)).map(Usd::units);
        prop_assert_eq!(sum, Some(a + b));
    }
}
