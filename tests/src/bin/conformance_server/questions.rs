//! What the tools ask the client.

use ringfence_mcp::{Answer, Client};
use serde_json::{Value, json};

/// A form with one field that must be filled in.
pub(crate) fn form(message: &str, field: &str, kind: &str) -> Value {
    json!({
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { field: { "type": kind } },
            "required": [field],
        },
    })
}

/// A prompt for the client's model.
pub(crate) fn prompt(text: &str) -> Value {
    json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
        "maxTokens": 100,
    })
}

pub(crate) async fn elicit(client: &dyn Client, key: &str, params: Value) -> Answer {
    client.ask_as(key, "elicitation/create", Some(params)).await
}

pub(crate) async fn sample(client: &dyn Client, key: &str, text: &str) -> Answer {
    client.ask_as(key, "sampling/createMessage", Some(prompt(text))).await
}

pub(crate) async fn roots(client: &dyn Client, key: &str) -> Answer {
    client.ask_as(key, "roots/list", None).await
}

/// A form with a default for every kind of field (SEP-1034).
pub(crate) fn defaults() -> Value {
    json!({
        "message": "Please review and update the form fields with defaults",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "User name", "default": "John Doe" },
                "age": { "type": "integer", "description": "User age", "default": 30 },
                "score": { "type": "number", "description": "User score", "default": 95.5 },
                "status": {
                    "type": "string",
                    "description": "User status",
                    "enum": ["active", "inactive", "pending"],
                    "default": "active",
                },
                "verified": {
                    "type": "boolean",
                    "description": "Verification status",
                    "default": true,
                },
            },
            "required": [],
        },
    })
}

/// A form with every kind of choice (SEP-1330).
pub(crate) fn choices() -> Value {
    let titled = |kind: &str| {
        json!([
            { "const": "value1", "title": format!("First {kind}") },
            { "const": "value2", "title": format!("Second {kind}") },
            { "const": "value3", "title": format!("Third {kind}") },
        ])
    };
    let plain = ["option1", "option2", "option3"];
    json!({
        "message": "Please select options from the enum fields",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "untitledSingle": { "type": "string", "enum": plain },
                "titledSingle": { "type": "string", "oneOf": titled("Option") },
                "legacyEnum": {
                    "type": "string",
                    "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"],
                },
                "untitledMulti": {
                    "type": "array",
                    "items": { "type": "string", "enum": plain },
                },
                "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
            },
            "required": [],
        },
    })
}
