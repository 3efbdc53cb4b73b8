//! What a server sends back to a POST: nothing, one JSON text, or an event stream that may break and
//! be taken up again.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use super::events::{Events, Place};
use super::{Http, LAST_EVENT, On};
use crate::lines::messages;
use crate::replies::{BEGUN, REST};
use crate::upstream::listener::ACKNOWLEDGED;
use crate::upstream::mailbox::Told;
use crate::upstream::questions::Question;
use crate::upstream::{UpstreamError, UpstreamLimits, desk};
use crate::{Answer, Held, Id, Message, Share};

/// How often the rest of a stream is asked for without an event in between.
const TRIES: usize = 10;
/// And in all.
const TRIES_IN_ALL: usize = 1000;
/// Bytes that may come after an answer, so that the connection can be used again.
const AFTER: usize = 64 * 1024;
/// How long that may take.
const AFTER_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

pub(super) fn nonsense(reason: impl Into<String>) -> UpstreamError {
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

/// What is never read on.
pub(super) fn check(response: &reqwest::Response) -> Result<(), UpstreamError> {
    if response.status().is_redirection() {
        return Err(nonsense("it answered with a redirect, which is not followed"));
    }
    if response.headers().contains_key(CONTENT_ENCODING) {
        return Err(nonsense("its answer is compressed, which was not asked for"));
    }
    Ok(())
}

/// All of `WWW-Authenticate`.
pub(super) fn challenge(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<_> = all.collect();
    (!all.is_empty()).then(|| all.join(", "))
}

pub(super) fn refused(status: StatusCode) -> UpstreamError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            UpstreamError::Unauthorized { status: status.as_u16() }
        }
        _ => UpstreamError::Status { status: status.as_u16() },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Json,
    Events,
    Other,
}

pub(super) fn media(headers: &HeaderMap) -> Media {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let text = text.and_then(|text| text.split(';').next()).unwrap_or("").trim();
    if text.eq_ignore_ascii_case("application/json") {
        Media::Json
    } else if text.eq_ignore_ascii_case("text/event-stream") {
        Media::Events
    } else {
        Media::Other
    }
}

fn too_large(limits: UpstreamLimits) -> UpstreamError {
    nonsense(format!("its answer is larger than {} bytes", limits.message))
}

fn halting() -> UpstreamError {
    nonsense(format!("it did not go on with its answer for {} s", REST.as_secs()))
}

/// A stream as it comes in.
pub(super) struct Stream {
    response: reqwest::Response,
    events: Events,
    chunk: Bytes,
    replies: Share,
    /// The room for an event that is long, and when the rest of it must be there.
    begun: Option<(Held, Instant)>,
}

/// Why a stream gives no more events.
pub(super) enum Halt {
    /// It came to an end.
    Ended,
    /// It broke, and may be taken up again.
    Broke(UpstreamError),
    /// It is of no use.
    Useless(UpstreamError),
}

impl Stream {
    pub(super) fn new(response: reqwest::Response, limits: UpstreamLimits, replies: Share) -> Self {
        let events = Events::new(limits.message);
        Self { response, events, chunk: Bytes::new(), replies, begun: None }
    }

    /// The data of the next event, and what is held for it.
    pub(super) async fn next(
        &mut self,
        limits: UpstreamLimits,
        place: &mut Place,
    ) -> Result<(Vec<u8>, Option<Held>), Halt> {
        loop {
            let mut rest = self.chunk.as_ref();
            let found = self.events.take(&mut rest, place);
            let taken = self.chunk.len() - rest.len();
            let _ = self.chunk.split_to(taken);
            if let Some(data) = found.map_err(|_| Halt::Useless(too_large(limits)))? {
                let begun = self.begun.take().map(|(held, _)| held);
                let held = self.replies.whole(&data, begun).await;
                return Ok((data, held));
            }
            if self.events.pending() > BEGUN && self.begun.is_none() {
                let held = self.replies.begun(limits).await;
                self.begun = Some((held, Instant::now() + REST));
            }
            let due = self.begun.as_ref().map(|(_, due)| *due);
            let chunk = match due {
                None => self.response.chunk().await,
                Some(due) => match tokio::time::timeout_at(due, self.response.chunk()).await {
                    Ok(chunk) => chunk,
                    Err(_) => return Err(Halt::Useless(halting())),
                },
            };
            match chunk {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => return Err(Halt::Ended),
                Err(error) => return Err(Halt::Broke(failure(error))),
            }
        }
    }
}

impl Http {
    /// Reads a reply up to the answer to the request of this id.
    pub(super) async fn read(
        self: &Arc<Self>,
        response: reqwest::Response,
        id: i64,
        on: On<'_>,
    ) -> Result<Answer, UpstreamError> {
        let status = response.status();
        match media(response.headers()) {
            // The stateless revision gives some errors with 400 and 404.
            Media::Json if !status.is_success() => {
                self.read_json(response, id, on).await.map_err(|_| refused(status))
            }
            _ if !status.is_success() => Err(refused(status)),
            Media::Json => self.read_json(response, id, on).await,
            Media::Events => self.read_events(response, id, on).await,
            Media::Other => Err(nonsense("its answer is neither JSON nor an event stream")),
        }
    }

    async fn read_json(
        self: &Arc<Self>,
        mut response: reqwest::Response,
        id: i64,
        on: On<'_>,
    ) -> Result<Answer, UpstreamError> {
        let announced = response.content_length().unwrap_or(0);
        if announced > self.limits.message as u64 {
            return Err(too_large(self.limits));
        }
        let mut body = Vec::new();
        let mut begun: Option<(Held, Instant)> = None;
        loop {
            let chunk = match &begun {
                None => response.chunk().await,
                Some((_, due)) => {
                    let chunk = tokio::time::timeout_at(*due, response.chunk()).await;
                    chunk.map_err(|_| halting())?
                }
            };
            let Some(chunk) = chunk.map_err(failure)? else { break };
            if body.len() + chunk.len() > self.limits.message {
                return Err(too_large(self.limits));
            }
            body.extend_from_slice(&chunk);
            if body.len() > BEGUN && begun.is_none() {
                // What was announced is the most that comes.
                let most = usize::try_from(announced).ok().filter(|announced| *announced > 0);
                let message = most.unwrap_or(self.limits.message);
                let limits = UpstreamLimits { message, ..self.limits };
                let held = self.desk.replies.begun(limits).await;
                begun = Some((held, Instant::now() + REST));
            }
        }
        let held = self.desk.replies.whole(&body, begun.map(|(held, _)| held)).await;
        self.sort(&body, id, on, held).await?.ok_or_else(|| nonsense("it did not answer"))
    }

    async fn read_events(
        self: &Arc<Self>,
        response: reqwest::Response,
        id: i64,
        on: On<'_>,
    ) -> Result<Answer, UpstreamError> {
        let mut place = Place::default();
        let replies = || self.desk.replies.clone();
        let mut stream = Stream::new(response, self.limits, replies());
        let (mut tries, mut in_all) = (0, 0);
        loop {
            let ended = loop {
                match stream.next(self.limits, &mut place).await {
                    Ok((data, held)) => {
                        tries = 0;
                        if let Some(answer) = self.sort(&data, id, on, held).await? {
                            self.finish(stream, place);
                            return Ok(answer);
                        }
                    }
                    Err(Halt::Useless(error)) => return Err(error),
                    Err(Halt::Broke(error)) => break error,
                    Err(Halt::Ended) => {
                        break nonsense("it ended its event stream without an answer");
                    }
                }
            };
            // Only the revisions with a handshake take a stream up again.
            if self.agreed.get().is_none() || place.last.is_none() {
                return Err(ended);
            }
            stream = loop {
                (tries, in_all) = (tries + 1, in_all + 1);
                if tries > TRIES || in_all > TRIES_IN_ALL {
                    return Err(ended);
                }
                tokio::time::sleep(place.retry).await;
                match self.resume(&place).await {
                    Ok(response) => break Stream::new(response, self.limits, replies()),
                    Err(Halt::Useless(error)) => return Err(error),
                    Err(_) => {}
                }
            };
        }
    }

    /// Asks for the rest of a stream.
    async fn resume(&self, place: &Place) -> Result<reqwest::Response, Halt> {
        let response = match self.get(place).await {
            Ok(response) => response,
            Err(error @ UpstreamError::Down { .. }) => return Err(Halt::Broke(error)),
            Err(error) => return Err(Halt::Useless(error)),
        };
        let status = response.status();
        if status.is_success() && media(response.headers()) == Media::Events {
            return Ok(response);
        }
        if status.is_server_error() {
            return Err(Halt::Broke(refused(status)));
        }
        // Not `SessionLost`: it may have done what it was asked.
        let reason = "its event stream broke and cannot be taken up again";
        Err(Halt::Useless(UpstreamError::Closed { reason: reason.into() }))
    }

    /// A stream that belongs to no request, or the rest of one that does.
    pub(super) async fn get(&self, place: &Place) -> Result<reqwest::Response, UpstreamError> {
        let mut headers = self.headers.clone();
        let events = http::HeaderValue::from_static("text/event-stream");
        headers.insert(http::header::ACCEPT, events);
        self.session_headers(&mut headers);
        headers.extend(place.last.clone().map(|last| (LAST_EVENT, last)));
        self.send(Method::GET, headers, Bytes::new()).await
    }

    /// Sorts the messages of one text. Gives the answer, when it is among them.
    async fn sort(
        self: &Arc<Self>,
        text: &[u8],
        id: i64,
        on: On<'_>,
        mut held: Option<Held>,
    ) -> Result<Option<Answer>, UpstreamError> {
        let mut answered = None;
        for message in messages(text, self.limits).map_err(nonsense)? {
            match message {
                Message::Response { id: found, answer } => {
                    // An error without an id, in the reply to this request, can only be about it.
                    let ours = match &found {
                        Some(Id::Number(found)) => *found == id,
                        Some(Id::Text(_)) => false,
                        None => true,
                    };
                    if answered.is_some() {
                        self.desk.stray_answer();
                    } else if ours {
                        answered = Some(answer);
                        if let On::Request(exchange) = on {
                            exchange.keep(held.take());
                        }
                    } else {
                        self.desk.stray_answer();
                        let reason = "it answered another request than the one it was sent";
                        return Err(nonsense(reason));
                    }
                }
                Message::Notification { method, params } => {
                    self.told(Told::new(method, params, text), on).await;
                }
                Message::Request { id, method, params } => {
                    let to = Arc::clone(self) as Arc<_>;
                    let question = Question { id, method, params, to };
                    let exchange = match on {
                        On::Request(exchange) => Some(exchange),
                        On::Listener(_) => None,
                    };
                    self.desk.ask(exchange, question);
                }
            }
        }
        Ok(answered)
    }

    /// While the client reads slowly, nothing more is read of its stream.
    async fn told(&self, mut told: Told, on: On<'_>) {
        match on {
            On::Request(exchange) => {
                if let Some(told) = self.desk.told_to(exchange, told) {
                    exchange.told.put(told).await;
                }
            }
            On::Listener(listener) => {
                told.params.as_mut().and_then(desk::subscription);
                if told.method == ACKNOWLEDGED || listener.wants(&told) {
                    self.desk.changed(&told);
                    listener.told.put(told).await;
                } else {
                    self.desk.unheard_note();
                }
            }
        }
    }

    /// Reads a stream to its end after the answer, when that is near: the connection can be used
    /// again then. Whatever else is answered there counts for nothing.
    fn finish(self: &Arc<Self>, mut stream: Stream, mut place: Place) {
        let http = Arc::clone(self);
        tokio::spawn(async move {
            let limits = UpstreamLimits { message: AFTER, ..http.limits };
            let rest = async {
                let mut read = 0;
                while let Ok((data, _held)) = stream.next(limits, &mut place).await {
                    read += data.len();
                    let more = serde_json::from_slice::<Value>(&data).unwrap_or_default();
                    if more.get("method").is_none() {
                        http.desk.stray_answer();
                    }
                    if read > AFTER {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(AFTER_WAIT, rest).await;
        });
    }
}
