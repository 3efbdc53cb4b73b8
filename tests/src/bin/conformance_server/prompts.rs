//! Prompts.

use ringfence_mcp::{Answer, Client, RpcError, code};
use serde_json::{Value, json};

use crate::questions::{elicit, form};
use crate::resources::PNG;

pub(crate) fn list() -> Value {
    let argument = |name: &str, description: &str| json!({ "name": name, "description": description, "required": true });
    json!([
        { "name": "test_simple_prompt", "description": "A prompt without arguments" },
        {
            "name": "test_prompt_with_arguments",
            "description": "A prompt with two arguments",
            "arguments": [argument("arg1", "First argument"), argument("arg2", "Second argument")],
        },
        {
            "name": "test_prompt_with_embedded_resource",
            "description": "A prompt that embeds a resource",
            "arguments": [argument("resourceUri", "URI of the resource to embed")],
        },
        { "name": "test_prompt_with_image", "description": "A prompt with an image" },
        {
            "name": "test_input_required_result_prompt",
            "description": "A prompt that needs something from the user first",
        },
    ])
}

fn messages(contents: &[Value]) -> Answer {
    let messages: Vec<_> =
        contents.iter().map(|content| json!({ "role": "user", "content": content })).collect();
    Ok(json!({ "messages": messages }))
}

fn text(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}

pub(crate) async fn get(client: &dyn Client, params: &Value) -> Answer {
    let argument = |name: &str| params["arguments"][name].as_str().unwrap_or_default().to_owned();
    match params["name"].as_str().unwrap_or_default() {
        "test_simple_prompt" => messages(&[text("This is a simple prompt for testing.")]),
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            messages(&[text(format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))])
        }
        "test_prompt_with_embedded_resource" => messages(&[
            json!({ "type": "resource", "resource": {
                "uri": argument("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            } }),
            text("Please process the embedded resource above."),
        ]),
        "test_prompt_with_image" => messages(&[
            json!({ "type": "image", "data": PNG, "mimeType": "image/png" }),
            text("Please analyze the image above."),
        ]),
        "test_input_required_result_prompt" => {
            let question = form("What context should the prompt use?", "context", "string");
            let answer = elicit(client, "user_context", question).await?;
            let context = answer["content"]["context"].as_str().unwrap_or("none").to_owned();
            messages(&[text(format!("The context is: {context}"))])
        }
        _ => Err(RpcError::new(code::INVALID_PARAMS, "there is no such prompt")),
    }
}
