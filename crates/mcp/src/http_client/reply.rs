//! What a server sends back to a POST: nothing, one JSON text, or an event stream.

use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use rmcp::service::RxJsonRpcMessage;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::lines::{lenient, to_model};
use crate::role::RawClient;
use crate::strict;
use crate::upstream::{UpstreamError, UpstreamLimits};
use crate::{Id, Message};

type Queue = mpsc::Sender<RxJsonRpcMessage<RawClient>>;

fn nonsense(reason: impl Into<String>) -> UpstreamError {
    UpstreamError::Nonsense { reason: reason.into() }
}

/// The HTTP client's error, without the address.
pub(super) fn failure(error: reqwest::Error) -> UpstreamError {
    let reason = if error.is_timeout() {
        "it did not answer in time"
    } else if error.is_connect() {
        "no connection could be made"
    } else {
        "the connection broke"
    };
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        detail.push_str(": ");
        detail.push_str(&cause.to_string());
        source = cause.source();
    }
    UpstreamError::Down { reason: reason.into(), detail }
}

/// Reads a reply and queues its messages. `id` is that of the request it answers, if it was one.
pub(super) async fn read(
    response: reqwest::Response,
    id: Option<&str>,
    limits: UpstreamLimits,
    queue: &Queue,
) -> Result<(), UpstreamError> {
    let status = response.status();
    if status.is_redirection() {
        return Err(nonsense("it answered with a redirect, which is not followed"));
    }
    if response.headers().contains_key(CONTENT_ENCODING) {
        return Err(nonsense("its answer is compressed, which was not asked for"));
    }
    let Some(id) = id else {
        return if status.is_success() { Ok(()) } else { Err(refused(status)) };
    };
    let media = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = media.and_then(|text| text.split(';').next()).unwrap_or("").trim();
    let json = media.eq_ignore_ascii_case("application/json");
    if !status.is_success() {
        // The stateless revision gives some errors with 400 and 404.
        let answered = json && answer(response, id, limits, queue).await.is_ok();
        return if answered { Ok(()) } else { Err(refused(status)) };
    }
    if json {
        answer(response, id, limits, queue).await
    } else if media.eq_ignore_ascii_case("text/event-stream") {
        stream(response, id, limits, queue).await
    } else {
        Err(nonsense("its answer is neither JSON nor an event stream"))
    }
}

fn refused(status: StatusCode) -> UpstreamError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            UpstreamError::Unauthorized { status: status.as_u16() }
        }
        _ => UpstreamError::Status { status: status.as_u16() },
    }
}

fn too_large(limits: UpstreamLimits) -> UpstreamError {
    nonsense(format!("its answer is larger than {} bytes", limits.message))
}

async fn answer(
    mut response: reqwest::Response,
    id: &str,
    limits: UpstreamLimits,
    queue: &Queue,
) -> Result<(), UpstreamError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failure)? {
        if body.len() + chunk.len() > limits.message {
            return Err(too_large(limits));
        }
        body.extend_from_slice(&chunk);
    }
    if deliver(&body, id, limits, queue).await? {
        Ok(())
    } else {
        Err(nonsense("it did not answer"))
    }
}

/// Queues one message. True when it is the answer.
async fn deliver(
    text: &[u8],
    id: &str,
    limits: UpstreamLimits,
    queue: &Queue,
) -> Result<bool, UpstreamError> {
    if strict::values(text) > limits.values {
        return Err(nonsense(format!("its answer holds more than {} values", limits.values)));
    }
    let value: Value =
        serde_json::from_slice(text).map_err(|_| nonsense("its answer is not JSON"))?;
    let message =
        Message::from_value(lenient(value)).map_err(|error| nonsense(error.to_string()))?;
    let answers = match &message {
        Message::Response { id: Some(Id::Number(found)), .. } => Some(found.to_string() == id),
        Message::Response { id: Some(Id::Text(found)), .. } => Some(found == id),
        // An error without an id, in the reply to this request, can only be about it.
        Message::Response { id: None, answer } => {
            let answer = answer.clone();
            let number = id.parse().map_err(|_| nonsense("its answer has no id"))?;
            let message = Message::Response { id: Some(Id::Number(number)), answer };
            return queue_up(message, queue).await.map(|()| true);
        }
        _ => None,
    };
    match answers {
        Some(false) => Err(nonsense("it answered another request than the one it was sent")),
        answered => queue_up(message, queue).await.map(|()| answered.is_some()),
    }
}

async fn queue_up(message: Message, queue: &Queue) -> Result<(), UpstreamError> {
    let closed = || UpstreamError::Closed { reason: "the connection was given up".into() };
    match to_model(message) {
        Some(message) => queue.send(message).await.map_err(|_| closed()),
        None => Ok(()),
    }
}

/// Reads events until the one with the answer (HTML, server-sent events; only `data` matters).
async fn stream(
    mut response: reqwest::Response,
    id: &str,
    limits: UpstreamLimits,
    queue: &Queue,
) -> Result<(), UpstreamError> {
    let mut events = Events::new(limits.message);
    while let Some(chunk) = response.chunk().await.map_err(failure)? {
        for byte in chunk {
            let event = events.push(byte).map_err(|()| too_large(limits))?;
            if let Some(data) = event
                && deliver(&data, id, limits, queue).await?
            {
                return Ok(());
            }
        }
    }
    Err(nonsense("it ended its event stream without an answer"))
}

/// Splits an event stream. Lines end in CR, LF or both; an empty line ends an event.
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    after_cr: bool,
    limit: usize,
}

impl Events {
    pub(super) fn new(limit: usize) -> Self {
        Self { line: Vec::new(), data: Vec::new(), after_cr: false, limit }
    }

    /// Takes one byte. Gives an event's data when it ends one that has any.
    pub(super) fn push(&mut self, byte: u8) -> Result<Option<Vec<u8>>, ()> {
        if std::mem::take(&mut self.after_cr) && byte == b'\n' {
            return Ok(None);
        }
        if byte != b'\n' && byte != b'\r' {
            if self.line.len() + self.data.len() >= self.limit {
                return Err(());
            }
            self.line.push(byte);
            return Ok(None);
        }
        self.after_cr = byte == b'\r';
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            // A priming event has an empty `data`.
            return Ok((!data.trim_ascii().is_empty()).then_some(data));
        }
        if let Some(value) = line.strip_prefix(b"data:") {
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.data.push(b'\n');
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::Events;

    fn split(text: &str) -> Vec<String> {
        let mut events = Events::new(64);
        let found = text.bytes().filter_map(|byte| events.push(byte).unwrap());
        found.map(|data| String::from_utf8(data).unwrap()).collect()
    }

    #[test]
    fn splits_events() {
        assert_eq!(split("data: {}\n\n"), ["{}\n"]);
        assert_eq!(
            split("id: 1\r\nevent: message\r\ndata:{\"a\":1}\r\n\r\ndata: 2\r\n\r\n"),
            ["{\"a\":1}\n", "2\n"]
        );
        assert_eq!(split("data: a\rdata: b\r\r"), ["a\nb\n"]);
        assert_eq!(split(": keep-alive\n\nid: 0\ndata:\n\nretry: 3\n\n"), [""; 0]);
        assert_eq!(split("data: unfinished\n"), [""; 0]);
    }

    #[test]
    fn bounds_an_event() {
        let mut events = Events::new(64);
        assert!((0..64).all(|_| events.push(b'x').is_ok()));
        assert!(events.push(b'x').is_err());
    }
}
