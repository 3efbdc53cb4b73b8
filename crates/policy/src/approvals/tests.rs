use ringfence_bundle::{ApprovalRule, Id, Manifest, Predicate, PredicateTest, ToolName};
use serde_json::{Value, json};

use crate::{Error, MachinePolicy, Ruleset};

fn compile(server: Option<&str>, when: Option<(&str, PredicateTest)>) -> Result<Ruleset, Error> {
    let mut manifest = Manifest::default();
    manifest.approvals.require.push(ApprovalRule {
        server: server.map(|id| Id::parse(id).unwrap()),
        tool: ToolName::parse("pay").unwrap(),
        when: when.map(|(pointer, test)| Predicate { pointer: pointer.to_owned(), test }),
    });
    Ruleset::compile(&MachinePolicy::default(), &manifest)
}

fn needed(test: PredicateTest, args: &Value) -> bool {
    let ruleset = compile(None, Some(("/amount", test))).unwrap();
    let server = Id::parse("bank").unwrap();
    let rule = ruleset.approval_needed(&server, "pay", args);
    // Through the serialised form it is the same.
    let again = Ruleset::from_json(&ruleset.to_json()).unwrap();
    assert_eq!(again.approval_needed(&server, "pay", args), rule);
    rule.is_some()
}

#[test]
fn server_and_tool_are_exact() {
    let (bank, shop) = (Id::parse("bank").unwrap(), Id::parse("shop").unwrap());
    let one = compile(Some("bank"), None).unwrap();
    assert_eq!(
        one.approval_needed(&bank, "pay", &json!({})).as_deref(),
        Some("ringfence.toml [[approvals.require]] server = \"bank\" tool = \"pay\"")
    );
    assert_eq!(one.approval_needed(&shop, "pay", &json!({})), None);
    assert_eq!(one.approval_needed(&bank, "Pay", &json!({})), None);
    assert!(compile(None, None).unwrap().approval_needed(&shop, "pay", &Value::Null).is_some());
}

#[test]
fn greater_than_is_exact() {
    let over = |args: Value| needed(PredicateTest::GreaterThan("100.00".into()), &args);
    assert!(!over(json!({"amount": 100})));
    assert!(!over(json!({"amount": 99.99})));
    assert!(!over(json!({"amount": -1e300})));
    assert!(over(json!({"amount": 100.01})));
    assert!(over(json!({"amount": 1e300})));
    assert!(over(json!({"amount": "1"})), "an amount as a string");
    assert!(over(json!({"amount": null})));
    assert!(over(json!({"amount": [1]})));
    assert!(over(json!({})), "left out");
    assert!(over(Value::Null), "no arguments at all");
    let big = PredicateTest::GreaterThan("9007199254740992".into());
    assert!(needed(big.clone(), &json!({"amount": 9_007_199_254_740_993_u64})));
    assert!(!needed(big, &json!({"amount": 9_007_199_254_740_992_u64})));
}

#[test]
fn the_other_tests() {
    let equals = |v| PredicateTest::Equals(v);
    assert!(needed(equals(json!("EUR")), &json!({"amount": "EUR"})));
    assert!(!needed(equals(json!("EUR")), &json!({"amount": "USD"})));
    assert!(needed(equals(json!("EUR")), &json!({"amount": 1})), "another type");
    assert!(needed(equals(json!(1)), &json!({"amount": 1.0})));
    assert!(!needed(equals(json!(1)), &json!({"amount": 2})));
    assert!(needed(equals(json!({"a": 1, "b": [2]})), &json!({"amount": {"b": [2.0], "a": 1}})));
    assert!(!needed(equals(json!({"a": 1})), &json!({"amount": {"a": 1, "b": 2}})));

    let prefix = || PredicateTest::Prefix("/etc".into());
    assert!(needed(prefix(), &json!({"amount": "/etc/shadow"})));
    assert!(!needed(prefix(), &json!({"amount": "/tmp"})));
    assert!(needed(prefix(), &json!({"amount": 7})));

    let matches = || PredicateTest::Matches("^DE[0-9]+$".into());
    assert!(needed(matches(), &json!({"amount": "DE12"})));
    assert!(!needed(matches(), &json!({"amount": "FR12"})));
    assert!(needed(matches(), &json!({"amount": ["FR12"]})));

    let one_of = || PredicateTest::OneOf(vec![json!("a"), json!(2)]);
    assert!(needed(one_of(), &json!({"amount": "a"})));
    assert!(needed(one_of(), &json!({"amount": 2.0})));
    assert!(!needed(one_of(), &json!({"amount": "b"})));
    assert!(needed(one_of(), &json!({"amount": true})), "a type that the list has not");
}

#[test]
fn a_rule_that_cannot_be_asked_is_refused_when_compiled() {
    for (pointer, test) in [
        ("amount", PredicateTest::GreaterThan("1".into())),
        ("/amount", PredicateTest::GreaterThan("much".into())),
        ("/amount", PredicateTest::Matches("(".into())),
        ("/amount", PredicateTest::Matches("(a{1000}){1000}".into())),
    ] {
        let result = compile(None, Some((pointer, test)));
        assert!(matches!(result, Err(Error::Exceeds(found)) if found.len() == 1));
    }
}
