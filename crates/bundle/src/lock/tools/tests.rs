use std::path::Path;

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Map, Value, json};

use super::{ToolPin, ToolPins, json_digest, tool_digest};
use crate::{Id, Lock};

fn lock(instructions: Option<&str>, definitions: Vec<Value>) -> Lock {
    let tools = definitions.into_iter().map(|d| ToolPin::of(d).expect("a fit name")).collect();
    let server = Id::parse("s").expect("fit");
    let pins = ToolPins { server, instructions: instructions.map(str::to_owned), tools };
    Lock { version: 1, pins: Vec::new(), tools: vec![pins] }
}

fn parse(text: &str) -> Result<Lock, String> {
    Lock::parse(Path::new("ringfence.lock"), text.as_bytes())
        .map_err(|found| found.into_iter().map(|f| f.message).collect())
}

fn goes_round(lock: &Lock) {
    let text = lock.render();
    let parsed = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(&parsed, lock, "{text}");
    assert_eq!(parsed.render(), text);
}

fn tool(more: &Value) -> Value {
    json!({ "name": "t", "more": more })
}

#[test]
fn what_a_server_says_goes_round() {
    for odd in [
        json!("''' ends a literal"),
        json!("'"),
        json!("\"quotes\" and \\ and \\\\u0000"),
        json!("line\nends\r\nand\ttabs\u{0}\u{7f}\u{85}"),
        json!("\u{202e}bidi \u{200b}zero \u{feff}mark \u{e0041}tag ＡＢ é 你好 🧪"),
        json!({ "": "", "'''": "'''", "a\u{200b}b": [null, true, [], {}] }),
        json!("<<<<<<< ours\n=======\n>>>>>>> theirs"),
        json!([0, -1, u64::MAX, i64::MIN, 0.1, -0.0, 1e-300, 1.797e308, 2.5e-8, 5e-324]),
        json!("x".repeat(1 << 20)),
    ] {
        goes_round(&lock(odd.as_str(), vec![tool(&odd)]));
    }
    goes_round(&lock(Some(""), Vec::new()));
    goes_round(&lock(None, vec![json!({"name": "b"}), json!({"name": "c/d.e-F_1"})]));
}

#[test]
fn nothing_in_the_file_is_hidden() {
    let hidden = "\u{202e}a\u{200b}b\u{feff}\u{e0041}";
    let text = lock(Some(hidden), vec![tool(&json!({ hidden: hidden }))]).render();
    assert_eq!(crate::first_invisible(&text), None, "{text}");
    let text = lock(None, vec![tool(&json!(format!("{hidden}'''")))]).render();
    assert_eq!(crate::first_invisible(&text), None, "{text}");
}

#[test]
fn windows_line_ends_do_not_change_what_is_pinned() {
    let lock = lock(Some("a\nb"), vec![tool(&json!({"description": "one\ntwo"}))]);
    assert_eq!(parse(&lock.render().replace('\n', "\r\n")).expect("parses"), lock);
}

#[test]
fn a_definition_reads_one_way_or_not_at_all() {
    let good = lock(None, vec![tool(&json!({"description": "kind"}))]).render();
    parse(&good).expect("the control parses");
    for (from, to, words) in [
        // The last one counts, a person may read the first.
        ("\"name\": \"t\"", "\"name\": \"t\",\n  \"name\": \"t\"", "not spelled"),
        ("\"kind\"", "\"evil\",\n    \"description\": \"kind\"", "not spelled"),
        ("\"kind\"", "\"k\\u0069nd\"", "not spelled"),
        ("\"kind\"", "  \"kind\"", "not spelled"),
        ("}'''", "}\n'''", "not spelled"),
        ("}'''", "} {}'''", "trailing"),
        ("\"kind\"", "\"unkind\"", "its digest is not that of its definition"),
        ("name = \"t\"", "name = \"u\"", "another's definition"),
        ("\"name\": \"t\"", "\"name\": \"u\"", "another's definition"),
        ("\"name\": \"t\"", "\"name\": 1", "another's definition"),
        ("name = \"t\"", "name = \"t t\"", "tool name"),
        ("server = \"s\"", "server = \"S\"", "name"),
        ("server = \"s\"", "server = \"s\"\nmore = 1", "more"),
        ("digest =", "more = 1\ndigest =", "more"),
    ] {
        assert!(good.contains(from), "{from} is not in\n{good}");
        let error = parse(&good.replace(from, to)).expect_err(to);
        assert!(error.contains(words), "{to}: {error}");
    }
    let twice = format!("{good}{}", good.split_once("\n\n").expect("rows").1);
    assert!(parse(&twice).expect_err("two rows").contains("two rows"));
    let row = good.find("\n[[tools.tool]]").expect("a row");
    assert!(parse(&format!("{good}{}", &good[row..])).expect_err("twice").contains("two rows"));
}

#[test]
fn a_lock_may_be_large_and_has_an_end() {
    let big = |mib: usize| lock(None, vec![tool(&json!("x".repeat(mib << 20)))]);
    goes_round(&big(15));
    let error = parse(&big(17).render()).expect_err("too large");
    assert!(error.contains("16 MiB"), "{error}");
}

#[test]
fn every_field_is_in_the_digest_and_the_order_of_keys_is_not() {
    let base = json!({
        "name": "t", "title": "T", "description": "d",
        "inputSchema": {"type": "object", "properties": {"p": {"enum": ["a", "b"], "default": "a"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true, "destructiveHint": false},
        "_meta": {"k": 1}, "own": [1, 2],
    });
    let digest = tool_digest(&base);
    let mut turned = Map::new();
    base.as_object().expect("it is").iter().rev().for_each(|(k, v)| {
        turned.insert(k.clone(), v.clone());
    });
    assert_eq!(tool_digest(&Value::Object(turned)), digest);
    for (at, value) in [
        ("/name", json!("u")),
        ("/title", json!("U")),
        ("/description", json!("d ")),
        ("/inputSchema/properties/p/enum/1", json!("c")),
        ("/inputSchema/properties/p/default", json!("b")),
        ("/inputSchema/properties/p", json!({"enum": ["b", "a"], "default": "a"})),
        ("/outputSchema", json!({})),
        ("/annotations/readOnlyHint", json!(false)),
        ("/annotations/destructiveHint", json!(null)),
        ("/_meta/k", json!("1")),
        ("/_meta/k", json!(1.0)),
        ("/own", json!([2, 1])),
    ] {
        let mut other = base.clone();
        *other.pointer_mut(at).expect(at) = value.clone();
        assert_ne!(tool_digest(&other), digest, "{at} {value}");
    }
    let digests = [json!(9_007_199_254_740_992_u64), json!(9_007_199_254_740_993_u64)];
    assert_ne!(json_digest(&digests[0]), json_digest(&digests[1]));
    assert_ne!(tool_digest(&base), json_digest(&base), "the purposes are apart");
    assert_eq!(
        json_digest(&json!({})).to_string(),
        "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    );
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |n| n.is_finite().then(|| Value::from(n))),
        any::<String>().prop_map(Value::from),
        "['\"\\\\\n\r]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_a_server_says_goes_round(value in values(), said in any::<Option<String>>()) {
        goes_round(&lock(said.as_deref(), vec![tool(&value)]));
    }
}
