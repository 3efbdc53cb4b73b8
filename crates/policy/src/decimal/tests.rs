use proptest::prelude::*;

use super::Decimal;

fn d(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

#[test]
fn what_a_double_cannot_tell_apart() {
    assert!(d("100.000000000000000001") > d("100.00"));
    assert!(d("9007199254740993") > d("9007199254740992"));
    assert_eq!(d("100"), d("1.00e2"));
    assert_eq!(d("-0"), d("0.000"));
    assert!(d("1e999999999") > d("9e99"));
    assert!(d("-1e999999999") < d("-9e99"));
    assert!(d("0") > d("-1e-9") && d("0") < d("1e-9"));
}

#[test]
fn not_numbers() {
    for bad in
        ["", "-", ".5", "5.", "1e", "1e+", "0x10", "1,0", " 1", "+1", "1e9999999999999999999"]
    {
        assert_eq!(Decimal::parse(bad), None, "{bad}");
    }
    assert!(Decimal::parse("1e+5").is_some());
}

proptest! {
    #[test]
    fn same_order_as_integers(a in any::<i64>(), b in any::<i64>(), shift in 0u32..4) {
        let scaled = |n: i64| d(&format!("{n}{}e-{shift}", "0".repeat(shift as usize)));
        prop_assert_eq!(scaled(a).cmp(&d(&b.to_string())), a.cmp(&b));
    }
}
