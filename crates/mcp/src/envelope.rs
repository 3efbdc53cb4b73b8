//! JSON-RPC 2.0 messages as MCP uses them: single, with object parameters, and nothing else on top.

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::{Map, Value, json};

/// Error codes used here (JSON-RPC 2.0, section 5.1; MCP 2026-07-28).
pub mod code {
    /// Not JSON.
    pub const PARSE: i64 = -32700;
    /// Not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Wrong parameters.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something broke.
    pub const INTERNAL: i64 = -32603;
    /// A header says other than the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs something of the client that it has not declared.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The revision is not spoken here.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The asker cancelled.
    pub const CANCELLED: i64 = -32800;
}

/// A request's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Id {
    /// An integer.
    Number(i64),
    /// A string of at most 256 bytes.
    Text(String),
}

impl Id {
    /// Reads an id. `None` for what cannot be one.
    #[must_use]
    pub fn from_value(id: &Value) -> Option<Self> {
        match id {
            Value::Number(number) => number.as_i64().map(Self::Number),
            Value::String(text) if text.len() <= 256 => Some(Self::Text(text.clone())),
            _ => None,
        }
    }

    /// As JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Number(number) => json!(number),
            Self::Text(text) => json!(text),
        }
    }
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// See [`code`].
    pub code: i64,
    /// For people.
    pub message: String,
    /// For programs.
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }

    pub(crate) fn into_model(self) -> ErrorData {
        let code = i32::try_from(self.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
        ErrorData::new(ErrorCode(code), self.message, self.data)
    }
}

impl From<ErrorData> for RpcError {
    fn from(error: ErrorData) -> Self {
        Self { code: error.code.0.into(), message: error.message.into_owned(), data: error.data }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// Its id.
        id: Id,
        /// Method.
        method: String,
        /// An object, when there are any.
        params: Option<Value>,
    },
    /// Wants none.
    Notification {
        /// Method.
        method: String,
        /// An object, when there are any.
        params: Option<Value>,
    },
    /// An answer.
    Response {
        /// Absent when the other side could not read the request's id.
        id: Option<Id>,
        /// `result` or `error`.
        answer: Result<Value, RpcError>,
    },
}

/// Why a JSON value is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON-RPC 2.0 message: {0}")]
pub struct EnvelopeError(pub &'static str);

impl Message {
    /// Reads a message from a value that [`crate::strict::parse`] gave.
    ///
    /// # Errors
    /// [`EnvelopeError`]: a batch, another version, a member that does not belong, an id that is
    /// neither integer nor string, a method name that is not 1 to 128 printable characters,
    /// parameters that are not an object, both or neither of method and result.
    pub fn from_value(value: Value) -> Result<Self, EnvelopeError> {
        let mut object = match value {
            Value::Object(object) => object,
            Value::Array(_) => return Err(EnvelopeError("batches are not accepted")),
            _ => return Err(EnvelopeError("it is not an object")),
        };
        if object.remove("jsonrpc") != Some(Value::from("2.0")) {
            return Err(EnvelopeError("\"jsonrpc\" must be \"2.0\""));
        }
        let id = object.remove("id");
        let message = if let Some(method) = object.remove("method") {
            let method = method_name(method)?;
            let params = parameters(&mut object)?;
            match id {
                None => Self::Notification { method, params },
                Some(id) => Self::Request { id: read_id(id)?, method, params },
            }
        } else {
            let id = match id {
                None | Some(Value::Null) => None,
                Some(id) => Some(read_id(id)?),
            };
            let answer = match (object.remove("result"), object.remove("error")) {
                (Some(result), None) if id.is_some() => Ok(result),
                (None, Some(error)) => Err(read_error(error)?),
                (Some(_), None) => return Err(EnvelopeError("a result needs an \"id\"")),
                _ => return Err(EnvelopeError("expected one of method, result and error")),
            };
            Self::Response { id, answer }
        };
        if object.is_empty() {
            Ok(message)
        } else {
            Err(EnvelopeError("a member does not belong there"))
        }
    }
}

/// The text of an answer.
pub(crate) fn response(id: Option<&Id>, answer: &Result<Value, RpcError>) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    text.extend_from_slice(br#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        member(&mut text, r#","id":"#, &id.to_value());
    }
    match answer {
        Ok(result) => member(&mut text, r#","result":"#, result),
        Err(error) => member(&mut text, r#","error":"#, &error.to_value()),
    }
    text.push(b'}');
    text
}

/// The text of a request of ours, or of a notification when there is no id.
pub(crate) fn call(id: Option<i64>, method: &str, params: Option<&Value>) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    text.extend_from_slice(br#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        member(&mut text, r#","id":"#, &Value::from(id));
    }
    member(&mut text, r#","method":"#, &Value::from(method));
    if let Some(params) = params {
        member(&mut text, r#","params":"#, params);
    }
    text.push(b'}');
    text
}

fn member(text: &mut Vec<u8>, name: &str, value: &Value) {
    text.extend_from_slice(name.as_bytes());
    // A JSON value can always be written into memory.
    let _ = serde_json::to_writer(text, value);
}

fn read_id(id: Value) -> Result<Id, EnvelopeError> {
    Id::from_value(&id)
        .ok_or(EnvelopeError("\"id\" must be an integer or a string of at most 256 bytes"))
}

fn method_name(method: Value) -> Result<String, EnvelopeError> {
    match method {
        Value::String(name)
            if (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) =>
        {
            Ok(name)
        }
        _ => Err(EnvelopeError("\"method\" must be 1 to 128 printable ASCII characters")),
    }
}

fn parameters(object: &mut Map<String, Value>) -> Result<Option<Value>, EnvelopeError> {
    match object.remove("params") {
        None => Ok(None),
        Some(params) if params.is_object() => Ok(Some(params)),
        Some(_) => Err(EnvelopeError("\"params\" must be an object")),
    }
}

fn read_error(error: Value) -> Result<RpcError, EnvelopeError> {
    let code = error.get("code").and_then(Value::as_i64);
    let message = error.get("message").and_then(Value::as_str);
    match (code, message) {
        (Some(code), Some(message)) => {
            Ok(RpcError { code, message: message.to_owned(), data: error.get("data").cloned() })
        }
        _ => Err(EnvelopeError("\"error\" needs a code and a message")),
    }
}

#[cfg(test)]
mod tests;
