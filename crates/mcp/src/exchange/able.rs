//! What a client can be asked, and what its answers look like. Pure.

use serde_json::{Value, json};

use crate::{RpcError, code};

/// What a client would have to declare.
#[derive(Debug)]
pub(crate) struct Lack {
    pub(super) words: String,
    required: Value,
}

impl Lack {
    /// As the stateless revision says it.
    pub(crate) fn into_error(self) -> RpcError {
        let data =
            (!self.required.is_null()).then(|| json!({ "requiredCapabilities": self.required }));
        let code = if data.is_some() { code::MISSING_CAPABILITY } else { code::METHOD_NOT_FOUND };
        RpcError { code, message: self.words, data }
    }
}

/// What of its declared capabilities a client lacks for this question.
pub(crate) fn lack(declared: &Value, method: &str, params: Option<&Value>) -> Option<Lack> {
    let param = |name: &str| params.and_then(|params| params.get(name));
    let has = |pointer: &str| declared.pointer(pointer).is_some_and(Value::is_object);
    let lack = |has: bool, name: &str, required: Value| {
        let words = format!("the client has not declared that it has {name}");
        (!has).then_some(Lack { words, required })
    };
    match method {
        "sampling/createMessage" if param("tools").is_some() || param("toolChoice").is_some() => {
            lack(has("/sampling/tools"), "sampling with tools", json!({"sampling": {"tools": {}}}))
        }
        "sampling/createMessage" => lack(has("/sampling"), "sampling", json!({"sampling": {}})),
        "elicitation/create" if param("mode").is_some_and(|mode| mode == "url") => {
            let required = json!({"elicitation": {"url": {}}});
            lack(has("/elicitation/url"), "elicitation by URL", required)
        }
        "elicitation/create" => {
            // Without a mode it means forms (2025-11-25, elicitation, capabilities).
            let only_url = has("/elicitation/url") && !has("/elicitation/form");
            lack(has("/elicitation") && !only_url, "elicitation", json!({"elicitation": {}}))
        }
        "roots/list" => lack(has("/roots"), "roots", json!({"roots": {}})),
        _ => {
            let words = format!("a client is not asked {}", method.escape_debug());
            Some(Lack { words, required: Value::Null })
        }
    }
}

/// Whether an answer has the form of this question's answers.
pub(super) fn fits(method: &str, answer: &Value) -> bool {
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    match method {
        "sampling/createMessage" => {
            let content = answer.get("content");
            text("role").is_some()
                && text("model").is_some()
                && content.is_some_and(|content| content.is_object() || content.is_array())
        }
        "elicitation/create" => {
            let action = text("action");
            action.is_some_and(|action| matches!(action, "accept" | "decline" | "cancel"))
                && answer
                    .get("content")
                    .is_none_or(|content| content.is_object() || content.is_null())
        }
        "roots/list" => {
            let roots = answer.get("roots").and_then(Value::as_array);
            roots.is_some_and(|roots| {
                roots.iter().all(|root| root.get("uri").is_some_and(Value::is_string))
            })
        }
        _ => answer.is_object(),
    }
}
