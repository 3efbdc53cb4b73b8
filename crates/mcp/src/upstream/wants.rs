//! A result that is one, and a result that asks for input first.

use std::collections::BTreeMap;

use serde_json::Value;

use super::UpstreamError;
use super::questions::{Kind, declared};

/// Questions of one result, at most.
const QUESTIONS: usize = 16;
/// Bytes of one of its keys, at most.
const KEY: usize = 256;
/// Bytes of what it wants to be given back, at most.
const STATE: usize = 1024 * 1024;
/// Bytes of all its questions as JSON, at most.
const SIZE: usize = 1024 * 1024;

/// What a server answers to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The result.
    Done(Value),
    /// It needs answers from the client first (2026-07-28, multi-round-trip requests).
    Wants(Wants),
}

/// Questions of a server, and what it wants to be given back with their answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Wants {
    /// By the server's own keys: method and parameters of each question.
    pub requests: BTreeMap<String, (String, Option<Value>)>,
    /// Opaque; goes back to this server alone, never to a client.
    pub state: Option<String>,
}

impl Wants {
    /// The parameters of the next round: those of the first with the answers and the state.
    #[must_use]
    pub fn answered(self, params: Option<Value>, answers: BTreeMap<String, Value>) -> Value {
        let mut params = match params {
            Some(Value::Object(params)) => params,
            _ => serde_json::Map::new(),
        };
        let answers = answers.into_iter().collect();
        params.insert("inputResponses".into(), Value::Object(answers));
        params.shift_remove("requestState");
        if let Some(state) = self.state {
            params.insert("requestState".into(), Value::String(state));
        }
        Value::Object(params)
    }
}

/// Reads a result of the stateless revision. A server may ask for input in answer to three methods,
/// three kinds of it, and only for what the client declared.
pub(super) fn read(
    method: &str,
    mut result: Value,
    capabilities: &Value,
) -> Result<Reply, UpstreamError> {
    if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
        return Ok(Reply::Done(result));
    }
    if !matches!(method, "tools/call" | "prompts/get" | "resources/read") {
        return Err(nonsense("it asks for input in answer to a request that takes none"));
    }
    let requests = match result.get_mut("inputRequests").map(Value::take) {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(found) => questions(found, capabilities)?,
    };
    let state = match result.get_mut("requestState").map(Value::take) {
        None | Some(Value::Null) => None,
        Some(Value::String(state)) if state.len() <= STATE => Some(state),
        Some(_) => return Err(nonsense("its requestState is no text of at most 1 MiB")),
    };
    if requests.is_empty() && state.is_none() {
        return Err(nonsense("it asks for input and does not say which"));
    }
    Ok(Reply::Wants(Wants { requests, state }))
}

type Questions = BTreeMap<String, (String, Option<Value>)>;

fn questions(found: Value, capabilities: &Value) -> Result<Questions, UpstreamError> {
    let Value::Object(found) = found else {
        return Err(nonsense("its inputRequests are not an object"));
    };
    if found.len() > QUESTIONS {
        return Err(nonsense(format!("it asks more than {QUESTIONS} questions at once")));
    }
    let mut size = 0;
    let mut questions = BTreeMap::new();
    for (key, mut question) in found {
        size += question.to_string().len();
        if key.len() > KEY || size > SIZE {
            return Err(nonsense("its questions are too large"));
        }
        let method = question.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let params = question.get_mut("params").map(Value::take).filter(|v| !v.is_null());
        let well_formed = params.as_ref().is_none_or(Value::is_object);
        match Kind::of(&method) {
            Some(kind) if well_formed => {
                if let Err(error) = declared(kind, params.as_ref(), capabilities) {
                    let reason = format!("it asks for what was not offered to it: {error}");
                    return Err(nonsense(reason));
                }
            }
            _ => return Err(nonsense("it asks a question that no client can answer")),
        }
        questions.insert(key, (method, params));
    }
    Ok(questions)
}

fn nonsense(reason: impl Into<String>) -> UpstreamError {
    UpstreamError::Nonsense { reason: reason.into() }
}
