//! Resources.

use ringfence_mcp::{Answer, RpcError, code};
use serde_json::{Value, json};

/// A picture of one red dot.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A sound of no length.
pub(crate) const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

pub(crate) fn list() -> Value {
    json!([
        {
            "uri": "test://static-text",
            "name": "Static text",
            "description": "A text that does not change",
            "mimeType": "text/plain",
        },
        {
            "uri": "test://static-binary",
            "name": "Static binary",
            "description": "A picture that does not change",
            "mimeType": "image/png",
        },
        {
            "uri": "test://watched-resource",
            "name": "Watched",
            "description": "A text that can be watched",
            "mimeType": "text/plain",
        },
    ])
}

pub(crate) fn templates() -> Value {
    json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "Template",
        "description": "Data of one id",
        "mimeType": "application/json",
    }])
}

pub(crate) fn read(params: &Value) -> Answer {
    let uri = params["uri"].as_str().unwrap_or_default();
    let text = |media: &str, text: &str| {
        Ok(json!({ "contents": [{ "uri": uri, "mimeType": media, "text": text }] }))
    };
    match uri {
        "test://static-text" => {
            text("text/plain", "This is the content of the static text resource.")
        }
        "test://static-binary" => {
            Ok(json!({ "contents": [{ "uri": uri, "mimeType": "image/png", "blob": PNG }] }))
        }
        "test://watched-resource" => text("text/plain", "Watched resource content"),
        _ => {
            let id = uri.strip_prefix("test://template/").and_then(|r| r.strip_suffix("/data"));
            match id.filter(|id| !id.is_empty() && !id.contains('/')) {
                Some(id) => {
                    let data = format!("Data for ID: {id}");
                    let data = json!({ "id": id, "templateTest": true, "data": data });
                    text("application/json", &data.to_string())
                }
                None => Err(RpcError {
                    code: code::INVALID_PARAMS,
                    message: "Resource not found".into(),
                    data: Some(json!({ "uri": uri })),
                }),
            }
        }
    }
}
