//! The manifest's JSON Schema (2020-12), made from the table of fields.

use serde_json::{Map, Value, json};

use crate::fields::{Field, FieldType, fields};

#[cfg(test)]
mod tests;

/// The JSON Schema of `ringfence.toml`, for editors. Whatever the strict parse accepts is valid
/// under it; rules over several fields are left to `ringfence validate`.
#[must_use]
pub fn schema() -> Value {
    let mut root = object("", true);
    if let Some(map) = root.as_object_mut() {
        map.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        map.insert("title".to_owned(), json!("Ringfence manifest"));
    }
    root
}

/// The schema of the table at a path. An overlay's tables are partial, so that what a table needs is
/// told only where `complete`.
fn object(path: &str, complete: bool) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let mut others = json!(false);
    for (name, field) in children(path) {
        if name == "*" {
            others = one(field);
            continue;
        }
        properties.insert(name.to_owned(), one(field));
        if field.required && complete {
            required.push(name);
        }
    }
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": others,
    });
    if let Some(map) = schema.as_object_mut() {
        if !required.is_empty() {
            map.insert("required".to_owned(), json!(required));
        }
        for (key, value) in shape(path) {
            map.insert(key.to_owned(), value);
        }
    }
    schema
}

/// The fields directly in the table at a path, by their last key.
fn children(path: &str) -> impl Iterator<Item = (&'static str, &'static Field)> {
    fields().iter().filter_map(move |field| match field.path.rsplit_once('.') {
        Some((holder, name)) if holder == path => Some((name, field)),
        None if path.is_empty() => Some((field.path, field)),
        _ => None,
    })
}

fn one(field: &Field) -> Value {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let mut schema = match field.kind {
        FieldType::Table | FieldType::Names => object(field.path, true),
        FieldType::Tables => {
            json!({ "type": "array", "items": object(&format!("{}[]", field.path), true) })
        }
        FieldType::Text => json!({ "type": "string" }),
        FieldType::Texts => texts,
        FieldType::TextsOrTables => {
            let mut item = object(&format!("{}[]", field.path), true);
            item["type"] = json!(["string", "object"]);
            json!({ "type": "array", "items": item })
        }
        FieldType::Boolean => json!({ "type": "boolean" }),
        FieldType::BooleanOrTexts => json!({ "anyOf": [{ "type": "boolean" }, texts] }),
        FieldType::Integer(from, to) => {
            json!({ "type": "integer", "minimum": from, "maximum": to })
        }
        FieldType::Number(from, to) => json!({ "type": "number", "minimum": from, "maximum": to }),
        FieldType::Amount => {
            json!({ "type": "string", "pattern": r"^(0|[1-9][0-9]{0,11})(\.[0-9]{1,8})?$" })
        }
        FieldType::OneOf(words) => json!({ "enum": words }),
        FieldType::ManyOf(words) => {
            json!({ "type": "array", "items": { "enum": words }, "uniqueItems": true })
        }
        FieldType::Values => json!({ "type": "array", "minItems": 1 }),
        FieldType::Any => json!({}),
    };
    if let Some(map) = schema.as_object_mut() {
        let mut text = field.doc.to_owned();
        if let Some(default) = field.default {
            text.push_str(&format!(". Default: {default}"));
        }
        if !field.is_container() {
            text.push_str(&format!(". Label: {}", field.label));
        }
        map.insert("description".to_owned(), json!(text));
    }
    schema
}

/// What a table's keys demand of each other.
fn shape(path: &str) -> Vec<(&'static str, Value)> {
    let need = |keys: &[&str]| json!({ "required": keys });
    let never = |keys: &[&str]| {
        let keys: Map<String, Value> =
            keys.iter().map(|key| ((*key).to_owned(), json!(false))).collect();
        json!({ "properties": keys })
    };
    let is =
        |word: &str| json!({ "properties": { "type": { "const": word } }, "required": ["type"] });
    match path {
        "servers.*" => {
            let stdio = ["command", "args", "env", "allowed_hosts"];
            vec![(
                "allOf",
                json!([
                    { "if": is("http"), "then": { "allOf": [need(&["url"]), never(&stdio)] } },
                    { "if": is("stdio"), "then": { "allOf": [need(&["command"]), never(&["url", "headers"])] } },
                ]),
            )]
        }
        "servers.*.pricing" => vec![("required", json!(["meters"]))],
        "skills.*" | "instructions.*" | "extensions.*" | "workflows.*" => vec![
            ("oneOf", json!([need(&["path"]), need(&["git"]), need(&["library"])])),
            ("dependentRequired", json!({ "git": ["rev"], "rev": ["git"], "subpath": ["git"] })),
        ],
        "approvals.require[].when" => {
            let tests = ["equals", "prefix", "matches", "greater_than", "one_of"];
            vec![("oneOf", tests.iter().map(|test| need(&[test])).collect())]
        }
        _ => Vec::new(),
    }
}
