//! A small MCP server over stdio: one tool that does no harm, and one that would.

use std::future::ready;
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_mcp::{Answer, Asker, Backend, Boxed, Client, RpcError, code};
use serde_json::{Value, json};

use crate::commands::Done;
use crate::failure::Failure;

struct Demo;

impl Backend for Demo {
    fn request<'a>(
        &'a self,
        _asker: &'a Asker,
        _client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        Box::pin(ready(answer(method, &params.unwrap_or_default())))
    }
}

fn answer(method: &str, params: &Value) -> Answer {
    match method {
        "initialize" | "server/discover" => Ok(json!({
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "ringfence-example", "version": env!("CARGO_PKG_VERSION") },
        })),
        "tools/list" => Ok(json!({ "tools": [
            tool("greet", "Greets somebody", json!({ "name": { "type": "string" } })),
            tool("delete_everything", "Deletes everything there is", json!({})),
        ] })),
        "tools/call" => call(params),
        _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("no method {method}"))),
    }
}

fn tool(name: &str, description: &str, properties: Value) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": properties },
    })
}

fn call(params: &Value) -> Answer {
    let text = match params["name"].as_str() {
        Some("greet") => {
            let name: String = params["arguments"]["name"]
                .as_str()
                .unwrap_or("stranger")
                .chars()
                .take(80)
                .collect();
            format!("Hello, {name}!")
        }
        Some("delete_everything") => "Everything is gone.".to_owned(),
        _ => return Err(RpcError::new(code::INVALID_PARAMS, "no such tool")),
    };
    Ok(json!({ "content": [{ "type": "text", "text": text }] }))
}

pub(crate) fn run() -> Done {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::user(e.to_string()))?;
    runtime
        .block_on(ringfence_mcp::serve_stdio(
            Arc::new(Demo),
            tokio::io::stdin(),
            tokio::io::stdout(),
        ))
        .map_err(|e| Failure::user(e.to_string()))?;
    // A read of stdin that nobody can cancel must not hold the program.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
