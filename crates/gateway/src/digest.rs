//! Digests of JSON values.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// `sha256:…` over the value with its keys in the order of RFC 8785 (UTF-16 code units). Numbers
/// stay as they are written, unlike there: two that a double cannot tell apart are told apart.
pub(crate) fn of(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
            text.push('{');
            for (nth, key) in keys.into_iter().enumerate() {
                if nth > 0 {
                    text.push(',');
                }
                write(&Value::String(key.clone()), text);
                text.push(':');
                write(&map[key], text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        leaf => {
            let _ = write!(text, "{leaf}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::of;

    #[test]
    fn order_of_keys_does_not_matter_and_everything_else_does() {
        let one: Value = serde_json::from_str(r#"{"b":{"y":1,"x":[1,2]},"a":"é"}"#).unwrap();
        let same: Value = serde_json::from_str(r#"{"a":"é","b":{"x":[1,2],"y":1}}"#).unwrap();
        assert_eq!(of(&one), of(&same));
        for other in [
            json!({"a": "é", "b": {"x": [2, 1], "y": 1}}),
            json!({"a": "e", "b": {"x": [1, 2], "y": 1}}),
            json!({"a": "é", "b": {"x": [1, 2], "y": "1"}}),
            json!({"a": "é", "b": {"x": [1, 2], "y": 1}, "c": null}),
        ] {
            assert_ne!(of(&one), of(&other), "{other}");
        }
        assert_ne!(of(&json!(9_007_199_254_740_992_u64)), of(&json!(9_007_199_254_740_993_u64)));
        assert_eq!(
            of(&json!({})),
            "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }
}
