use ringfence_bundle::{Id, ToolPin, ToolPins};
use serde_json::{Value, json};

use super::{FIELDS, Field, How, Moved, WORDS, What, moved};

fn pins(instructions: Option<&str>, tools: &[Value]) -> ToolPins {
    let tools = tools.iter().map(|d| ToolPin::of(d.clone()).unwrap()).collect();
    ToolPins {
        server: Id::parse("s").unwrap(),
        instructions: instructions.map(str::to_owned),
        tools,
    }
}

fn base() -> Value {
    json!({
        "name": "t", "description": "Reads one file of the project and gives its text.",
        "inputSchema": {"properties": {"path": {"description": "which", "enum": ["a", "b"]}}},
        "annotations": {"readOnlyHint": true},
    })
}

/// `path: words`, `-` for what went and `+` for what came.
fn words(field: &Field) -> String {
    let mark = |how| match how {
        How::New => "+",
        How::Gone => "-",
        _ => "",
    };
    let words: String =
        field.words.iter().map(|p| format!("{0}{1}{0}", mark(p.how), p.text)).collect();
    format!("{}: {words}", field.path)
}

fn change(at: &str, value: &Value) -> Moved {
    let mut other = base();
    *other.pointer_mut(at).unwrap() = value.clone();
    let mut all = moved(Some(&pins(None, &[base()])), &pins(None, &[other]));
    assert_eq!(all.len(), 1, "{at}");
    let moved = all.remove(0);
    assert_eq!((moved.what, moved.how), (What::Tool, How::Changed));
    assert_ne!(moved.pinned, moved.found);
    moved
}

#[test]
fn each_field_is_named_with_its_words() {
    for (at, value, expected) in [
        (
            "/description",
            json!("Reads one file of the machine and gives its text."),
            "description: Reads one file of the -project-+machine+ and gives its text.",
        ),
        (
            "/description",
            json!("Reads one file of the project and gives its text. And so on."),
            "description: …he project and gives its text.+ And so on.+",
        ),
        (
            "/inputSchema/properties/path/description",
            json!("which, or your key"),
            "inputSchema.properties.path.description: -which-+which, or your key+",
        ),
        (
            "/inputSchema/properties/path/enum",
            json!(["a", "b", "c"]),
            "inputSchema.properties.path.enum[2]: +\"c\"+",
        ),
        ("/annotations/readOnlyHint", json!(false), "annotations.readOnlyHint: -true-+false+"),
        ("/annotations", json!({}), "annotations.readOnlyHint: -true-"),
        (
            "/inputSchema/properties",
            json!({"path": {"description": "which", "enum": ["a", "b"]}, "my key\u{202e}": 1}),
            "inputSchema.properties[\"my key\\u{202e}\"]: +1+",
        ),
    ] {
        let moved = change(at, &value);
        let found: Vec<_> = moved.fields.iter().map(words).collect();
        assert_eq!(found, [expected]);
    }
}

#[test]
fn what_is_the_same_did_not_move() {
    let pins = pins(Some("be kind"), &[base()]);
    assert!(moved(Some(&pins), &pins).is_empty());
    let mut turned = pins.clone();
    turned.tools[0].definition.as_object_mut().unwrap().sort_keys();
    assert!(moved(Some(&pins), &turned).is_empty(), "the order of keys says nothing");
}

#[test]
fn new_and_gone_tools_servers_and_instructions() {
    let (a, b) = (json!({"name": "a", "description": "evil"}), json!({"name": "b"}));
    let old = pins(Some("be kind"), std::slice::from_ref(&b));
    let all = moved(Some(&old), &pins(None, std::slice::from_ref(&a)));
    let kinds: Vec<_> = all.iter().map(|m| (m.what, m.how)).collect();
    let tool = What::Tool;
    assert_eq!(kinds, [(What::Instructions, How::Gone), (tool, How::New), (tool, How::Gone)]);
    assert_eq!(words(&all[1].fields[0]), "description: +evil+");
    let all = moved(None, &pins(Some("be kind"), &[a]));
    let kinds: Vec<_> = all.iter().map(|m| (m.what, m.how)).collect();
    assert_eq!(kinds, [(What::Server, How::New), (What::Instructions, How::New), (tool, How::New)]);
    assert_eq!(moved(None, &pins(None, &[])).len(), 1, "a server without a word is new too");
    let all = moved(Some(&pins(Some(""), &[])), &pins(None, &[]));
    assert_eq!(all.len(), 1, "no words and an empty text are not the same");
}

#[test]
fn hostile_sizes_are_cut_and_say_so() {
    let long = "word ".repeat(100_000);
    let started = std::time::Instant::now();
    let moved = change("/description", &json!(long));
    let text: String = moved.fields[0].words.iter().map(|p| p.text.clone()).collect();
    assert!(text.len() < 4 * WORDS, "{}", text.len());
    assert!(text.contains("more characters, sha256:"), "{}", &text[text.len() - 200..]);
    let many: Value = (0..10_000).map(|n| (format!("k{n}"), json!(n))).collect();
    let moved = change("/annotations", &many);
    assert_eq!((moved.fields.len(), moved.more), (FIELDS, 10_001 - FIELDS));
    // By turns.
    let turns = |odd: &str| format!("x {odd} ").repeat(10_000);
    let old = pins(Some(&turns("a")), &[]);
    let all = super::moved(Some(&old), &pins(Some(&turns("b")), &[]));
    assert!(all[0].fields[0].words.len() <= 200, "{}", all[0].fields[0].words.len());
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}
