//! Tools.

mod rounds;

use std::time::Duration;

use ringfence_mcp::{Answer, Client, RpcError, code};
use serde_json::{Value, json};

use crate::fixture::{Change, Fixture};
use crate::questions::{choices, defaults, elicit, sample};
use crate::resources::{PNG, WAV};

/// Between two signs of life.
const STEP: Duration = Duration::from_millis(50);

fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
}

fn taking(name: &str, description: &str, argument: &str) -> Value {
    let mut tool = tool(name, description);
    tool["inputSchema"]["properties"] = json!({ argument: { "type": "string" } });
    tool["inputSchema"]["required"] = json!([argument]);
    tool
}

/// All tools, always in this order.
pub(crate) fn list() -> Vec<Value> {
    let mut tools = vec![
        tool("test_simple_text", "Gives a text"),
        tool("test_image_content", "Gives an image"),
        tool("test_audio_content", "Gives a sound"),
        tool("test_embedded_resource", "Gives a resource"),
        tool("test_multiple_content_types", "Gives a text, an image and a resource"),
        tool("test_tool_with_logging", "Logs three times while it works"),
        tool("test_tool_with_progress", "Tells how far it is"),
        tool("test_error_handling", "Fails"),
        taking("test_sampling", "Asks the client's model", "prompt"),
        taking("test_elicitation", "Asks the user", "message"),
        tool("test_elicitation_sep1034_defaults", "Asks with defaults of all kinds"),
        tool("test_elicitation_sep1330_enums", "Asks with choices of all kinds"),
        tool("test_reconnection", "Takes a while"),
        tool("test_missing_capability", "Cannot do without the client's model"),
        tool("test_streaming_elicitation", "Tells how far it is, then asks the user"),
        tool("test_logging_tool", "Logs once"),
        tool("test_trigger_tool_change", "Says that the tools have changed"),
        tool("test_trigger_prompt_change", "Says that the prompts have changed"),
        taking("test_trigger_resource_update", "Says that a resource has changed", "uri"),
        json!({
            "name": "test_custom_header",
            "description": "Has an argument that stands in a header too",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "region": { "type": "string", "x-mcp-header": "Region" },
                    "query": { "type": "string" },
                },
                "required": ["region"],
            },
        }),
        json!({
            "name": "json_schema_2020_12_tool",
            "description": "Has a schema of many keywords",
            "inputSchema": schema_2020_12(),
        }),
    ];
    tools.extend(rounds::NAMES.iter().map(|(name, description)| tool(name, description)));
    tools
}

fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"],
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

fn content(content: Value) -> Answer {
    Ok(json!({ "content": [content] }))
}

fn text(text: impl Into<String>) -> Answer {
    content(json!({ "type": "text", "text": text.into() }))
}

fn failed(error: &RpcError) -> Answer {
    Ok(json!({
        "isError": true,
        "content": [{ "type": "text", "text": error.message }],
    }))
}

fn resource(uri: &str, media: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": media, "text": text } })
}

async fn log(client: &dyn Client, words: &str) {
    let params = json!({ "level": "info", "logger": "fixture", "data": words });
    client.notify("notifications/message", Some(params)).await;
}

async fn progress(client: &dyn Client, params: &Value, progress: u64) {
    let token = &params["_meta"]["progressToken"];
    if !token.is_null() {
        let params = json!({ "progressToken": token, "progress": progress, "total": 100 });
        client.notify("notifications/progress", Some(params)).await;
    }
}

pub(crate) async fn call(fixture: &Fixture, client: &dyn Client, params: &Value) -> Answer {
    let argument = |name: &str| params["arguments"][name].as_str().unwrap_or_default().to_owned();
    let name = params["name"].as_str().unwrap_or_default();
    match name {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => {
            content(json!({ "type": "image", "data": PNG, "mimeType": "image/png" }))
        }
        "test_audio_content" => {
            content(json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" }))
        }
        "test_embedded_resource" => {
            let words = "This is an embedded resource content.";
            content(resource("test://embedded-resource", "text/plain", words))
        }
        "test_multiple_content_types" => Ok(json!({ "content": [
            { "type": "text", "text": "Multiple content types test:" },
            { "type": "image", "data": PNG, "mimeType": "image/png" },
            resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            ),
        ] })),
        "test_tool_with_logging" => {
            log(client, "Tool execution started").await;
            tokio::time::sleep(STEP).await;
            log(client, "Tool processing data").await;
            tokio::time::sleep(STEP).await;
            log(client, "Tool execution completed").await;
            text("Tool with logging executed successfully")
        }
        "test_tool_with_progress" => {
            progress(client, params, 0).await;
            tokio::time::sleep(STEP).await;
            progress(client, params, 50).await;
            tokio::time::sleep(STEP).await;
            progress(client, params, 100).await;
            text("Tool with progress executed successfully")
        }
        "test_error_handling" => Ok(json!({
            "isError": true,
            "content": [{
                "type": "text",
                "text": "This tool intentionally returns an error for testing",
            }],
        })),
        "test_sampling" => match sample(client, "sampling", &argument("prompt")).await {
            Ok(answer) => {
                let said = answer["content"]["text"].as_str().unwrap_or("No response");
                text(format!("LLM response: {said}"))
            }
            Err(error) => failed(&error),
        },
        "test_elicitation" => {
            let field = |what: &str| json!({ "type": "string", "description": what });
            let question = json!({
                "message": argument("message"),
                "requestedSchema": {
                    "type": "object",
                    "properties": {
                        "username": field("User's response"),
                        "email": field("User's email address"),
                    },
                    "required": ["username", "email"],
                },
            });
            said(elicit(client, "elicitation", question).await, "User response: ")
        }
        "test_elicitation_sep1034_defaults" => {
            said(elicit(client, "defaults", defaults()).await, "Elicitation completed: ")
        }
        "test_elicitation_sep1330_enums" => {
            said(elicit(client, "choices", choices()).await, "Elicitation completed: ")
        }
        "test_reconnection" => {
            log(client, "Taking a while").await;
            tokio::time::sleep(2 * STEP).await;
            text("Reconnection test completed successfully")
        }
        "test_missing_capability" => {
            sample(client, "needed", "Say something").await?;
            text("The client's model was there")
        }
        "test_streaming_elicitation" => {
            progress(client, params, 10).await;
            let question = crate::questions::form("How shall it go on?", "way", "string");
            elicit(client, "way", question).await?;
            text("It went on")
        }
        "test_logging_tool" => {
            log(client, "Something happened").await;
            text("It was logged")
        }
        "test_trigger_tool_change" => changed(fixture, Change::Tools),
        "test_trigger_prompt_change" => changed(fixture, Change::Prompts),
        "test_trigger_resource_update" => changed(fixture, Change::Resource(argument("uri"))),
        "test_custom_header" => text(format!("Region: {}", argument("region"))),
        "json_schema_2020_12_tool" => text("It has the schema"),
        _ if rounds::NAMES.iter().any(|(known, _)| *known == name) => {
            rounds::call(client, name).await
        }
        _ => {
            let words = format!("Unknown tool: {}", name.escape_debug());
            Err(RpcError::new(code::INVALID_PARAMS, words))
        }
    }
}

fn changed(fixture: &Fixture, change: Change) -> Answer {
    // Nobody may be listening.
    let _ = fixture.changes.send(change);
    text("It has changed")
}

fn said(answer: Answer, before: &str) -> Answer {
    match answer {
        Ok(answer) => text(format!(
            "{before}action={}, content={}",
            answer["action"].as_str().unwrap_or_default(),
            answer["content"]
        )),
        Err(error) => failed(&error),
    }
}
