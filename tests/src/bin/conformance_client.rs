//! The client under test of `@modelcontextprotocol/conformance`: its scenarios, carried out over
//! `ringfence_mcp::Upstream`. The suite names the scenario in the environment and the server in the
//! last argument.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "what went wrong is for the suite's log")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ringfence_mcp::{
    Answer, Boxed, Client, HttpOptions, Reply, Revision, RpcError, Upstream, UpstreamLimits, Wants,
    code,
};
use ringfence_tests::conformance_auth;
use serde_json::{Map, Value, json};

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a server may ask for input before one call is done.
const ROUNDS: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").ok();
    let context = context.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let Some(url) = std::env::args().nth(1).and(std::env::args().next_back()) else {
        eprintln!("the last argument must be the server's URL");
        return ExitCode::from(2);
    };
    let done = if scenario.starts_with("auth/") {
        conformance_auth::run(&scenario, &url, &context).await
    } else {
        run(&scenario, &url, &context).await
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("{scenario}: {words}");
            ExitCode::FAILURE
        }
    }
}

async fn run(scenario: &str, url: &str, context: &Value) -> Result<(), String> {
    let client = Session::connect(url).await?;
    let tools = client.tools().await?;
    match scenario {
        "tools_call" => client.call("add_numbers", json!({"a": 5, "b": 3})).await.map(drop),
        "elicitation-sep1034-client-defaults" => {
            client.call("test_client_elicitation_defaults", json!({})).await.map(drop)
        }
        "sse-retry" => client.call("test_reconnection", json!({})).await.map(drop),
        "sep-2322-client-request-state" => rounds(&client).await,
        "http-standard-headers" => standard_headers(&client, &tools).await,
        "http-custom-headers" => {
            for call in context["toolCalls"].as_array().into_iter().flatten() {
                let name = call["name"].as_str().unwrap_or_default();
                client.call(name, call["arguments"].clone()).await?;
            }
            Ok(())
        }
        "http-invalid-tool-headers" => {
            for tool in &tools {
                let name = tool["name"].as_str().unwrap_or_default();
                client.call(name, json!({"region": "here", "value": "x"})).await?;
            }
            Ok(())
        }
        "json-schema-2020-12-preservation" => {
            let focal = tools.iter().find(|tool| tool["name"] != "json_schema_echo");
            let schema = focal.map(|tool| tool["inputSchema"].clone()).unwrap_or_default();
            client.call("json_schema_echo", json!({ "schema": schema })).await.map(drop)
        }
        "request-metadata" => client.call("any", json!({})).await.map(drop),
        _ => Ok(()),
    }
}

/// The rounds by hand, so that another call goes between two of one.
async fn rounds(client: &Session) -> Result<(), String> {
    let call = |name: &str| Some(json!({"name": name, "arguments": {}}));
    for name in ["test_mrtr_echo_state", "test_mrtr_no_state"] {
        let params = call(name);
        let Reply::Wants(wants) = client.ask("tools/call", params.clone()).await? else {
            return Err(format!("{name} did not ask for input"));
        };
        client.call("test_mrtr_unrelated", json!({})).await?;
        let again = client.answered(wants, params).await?;
        client.ask("tools/call", Some(again)).await?;
    }
    client.call("test_mrtr_no_result_type", json!({})).await.map(drop)
}

async fn standard_headers(client: &Session, tools: &[Value]) -> Result<(), String> {
    for tool in tools {
        client.call(tool["name"].as_str().unwrap_or_default(), json!({})).await?;
    }
    let resources = client.result("resources/list", None).await?;
    for resource in resources["resources"].as_array().into_iter().flatten() {
        client.result("resources/read", Some(json!({"uri": resource["uri"]}))).await?;
    }
    let prompts = client.result("prompts/list", None).await?;
    for prompt in prompts["prompts"].as_array().into_iter().flatten() {
        client.result("prompts/get", Some(json!({"name": prompt["name"]}))).await?;
    }
    Ok(())
}

/// A connection, and the person behind it.
struct Session {
    upstream: Upstream,
    person: Arc<dyn Client>,
}

impl Session {
    async fn connect(url: &str) -> Result<Self, String> {
        let prefer = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").ok();
        let prefer = prefer.and_then(|text| Revision::parse(&text));
        let options = HttpOptions { prefer, ..HttpOptions::default() };
        let upstream = Upstream::http(url, &options, UpstreamLimits::default(), PATIENCE).await;
        let upstream = upstream.map_err(|error| error.detail())?;
        Ok(Self { upstream, person: Arc::new(Person::default()) })
    }

    async fn ask(&self, method: &str, params: Option<Value>) -> Result<Reply, String> {
        let asked = self.upstream.request(&self.person, method, params, PATIENCE).await;
        asked.map_err(|error| format!("{method}: {error} {}", error.detail()))
    }

    /// The parameters of the next round.
    async fn answered(&self, wants: Wants, params: Option<Value>) -> Result<Value, String> {
        let mut answers = BTreeMap::new();
        for (key, (method, params)) in wants.requests.clone() {
            let answer = self.person.ask(&method, params).await;
            answers.insert(key, answer.map_err(|error| error.to_string())?);
        }
        Ok(wants.answered(params, answers))
    }

    async fn result(&self, method: &str, params: Option<Value>) -> Result<Value, String> {
        let mut next = params.clone();
        for _ in 0..ROUNDS {
            match self.ask(method, next).await? {
                Reply::Done(result) => return Ok(result),
                Reply::Wants(wants) => next = Some(self.answered(wants, params.clone()).await?),
            }
        }
        Err(format!("{method}: asked for input more than {ROUNDS} times"))
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<Value, String> {
        self.result("tools/call", Some(json!({"name": name, "arguments": arguments}))).await
    }

    async fn tools(&self) -> Result<Vec<Value>, String> {
        let mut page = self.result("tools/list", None).await?;
        Ok(page["tools"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }
}

/// Says yes to every form, with its defaults.
struct Person(Value);

impl Default for Person {
    fn default() -> Self {
        Self(json!({"elicitation": {"form": {}}, "roots": {}}))
    }
}

impl Client for Person {
    fn capabilities(&self) -> &Value {
        &self.0
    }

    fn notify<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn ask<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, Answer> {
        let answer = match method {
            "elicitation/create" => {
                Ok(json!({"action": "accept", "content": filled(&params.unwrap_or_default())}))
            }
            "roots/list" => Ok(json!({"roots": []})),
            _ => Err(RpcError::new(code::METHOD_NOT_FOUND, "is not offered")),
        };
        Box::pin(std::future::ready(answer))
    }
}

/// What a form is filled in with.
fn filled(form: &Value) -> Map<String, Value> {
    let fields = form["requestedSchema"]["properties"].as_object();
    let value = |field: &Value| match &field["default"] {
        Value::Null if field["type"] == "boolean" => json!(true),
        given => given.clone(),
    };
    let all = fields.into_iter().flatten().map(|(name, field)| (name.clone(), value(field)));
    all.filter(|(_, value)| !value.is_null()).collect()
}
