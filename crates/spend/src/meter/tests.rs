use proptest::prelude::*;
use serde_json::json;

use super::*;

fn price(per_unit: &str) -> Price {
    Price::new([("result.usage.tokens", per_unit)], None).unwrap()
}

fn used(text: &str) -> Value {
    serde_json::from_str(&format!("{{\"result\":{{\"usage\":{{\"tokens\":{text}}}}}}}")).unwrap()
}

#[test]
fn meters_add_up_and_each_is_rounded_up() {
    let price = Price::new(
        [("result.usage.in", "0.000003"), ("result.usage.out", "0.000015"), ("result.n.1", "0.01")],
        Some("0.05"),
    )
    .unwrap();
    let reply = json!({"result": {"usage": {"in": 1000, "out": 200}, "n": [7, 2]}});
    assert_eq!(price.cost(&reply).unwrap().to_string(), "0.026");
    assert_eq!(price.max_per_call, Usd::parse("0.05"));
    let least = price_of("0.00000001", "0.1");
    assert_eq!(least.unwrap().units(), 1, "up to the next unit");
    assert_eq!(price_of("0.00000001", "0").unwrap().units(), 0);
    assert_eq!(price_of("0.00000003", "2.5").unwrap().units(), 8);
    assert_eq!(price_of("0.00000001", "1e3").unwrap().units(), 1000);
    assert_eq!(
        price_of("0.00000001", "18446744073709551").unwrap().units(),
        18_446_744_073_709_551
    );
}

fn price_of(per_unit: &str, usage: &str) -> Result<Usd, String> {
    price(per_unit).cost(&used(usage))
}

#[test]
fn usage_that_is_not_known_is_not_guessed() {
    assert!(price_of("0.01", "5").is_ok());
    for (usage, why) in [
        ("-1", "negative"),
        ("-0", "negative"),
        ("-0.5", "negative"),
        ("\"5\"", "not a number"),
        ("null", "not a number"),
        ("true", "not a number"),
        ("[5]", "not a number"),
        ("{}", "not a number"),
        ("0.1234567890123456", "exactly"),
        ("9007199254740993.0", "exactly"),
        ("18446744073709551616", "exactly"),
        ("1e300", "exactly"),
        ("1e-300", "exactly"),
        ("9223372036854775808", "too much"),
    ] {
        let error = price_of("0.01", usage).expect_err(usage);
        assert!(error.contains(why) && error.contains("`result.usage.tokens`"), "{usage}: {error}");
    }
    for reply in [json!({}), json!({"error": {}}), json!({"result": []}), json!([]), json!(null)] {
        assert!(price("0.01").cost(&reply).unwrap_err().contains("missing"), "{reply}");
    }
    let lists = Price::new([("result.01", "1")], None).unwrap();
    assert!(lists.cost(&json!({"result": [1, 2]})).is_err(), "a place is written in one way");
    assert!(lists.cost(&json!({"result": {"01": 2}})).is_ok());
}

#[test]
fn a_price_that_is_none_is_refused() {
    assert_eq!(Price::new([], None), Err(PriceError::NoMeter));
    for path in ["", ".", "a..b", "a.", ".a", "a b", "a/b", "*", "$.a", "ä"] {
        assert!(matches!(Price::new([(path, "1")], None), Err(PriceError::Path { .. })), "{path}");
    }
    for amount in ["", "-1", "1e-6", "0.000000001"] {
        let bad = Err(PriceError::Amount { amount: amount.to_owned() });
        assert_eq!(Price::new([("a", amount)], None), bad);
        assert_eq!(Price::new([("a", "1")], Some(amount)), bad);
    }
}

proptest! {
    /// Against whole numbers of any size: the cost is the next whole unit, never one less.
    #[test]
    fn the_cost_is_exact(whole in 0_u64..1 << 39, thousandths in 0_u64..1000, per_unit in 0_u64..1 << 20) {
        let usage = format!("{whole}.{thousandths:03}");
        let exact = (u128::from(whole) * 1000 + u128::from(thousandths)) * u128::from(per_unit);
        let cost = price_of(&Usd::from_units(per_unit).to_string(), &usage).unwrap();
        let up = u128::from(cost.units()) * 1000;
        prop_assert!(up >= exact && up < exact + 1000, "{up} {exact}");
    }

    /// Whatever stands there, it is an amount or a refusal.
    #[test]
    fn nothing_panics(usage in "[-0-9.eE]{1,24}", per_unit in 0..=u64::MAX) {
        let text = format!("{{\"result\":{{\"usage\":{{\"tokens\":{usage}}}}}}}");
        if let Ok(reply) = serde_json::from_str::<Value>(&text) {
            let _ = price(&Usd::from_units(per_unit).to_string()).cost(&reply);
        }
    }
}
