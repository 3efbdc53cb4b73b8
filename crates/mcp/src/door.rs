//! The agent's door: MCP over Streamable HTTP, for one backend.

pub(crate) mod answer;
mod body;
mod carrier;
mod incoming;
pub(crate) mod judge;
pub(crate) mod listen;
mod options;
mod requests;
mod room;
mod session;
mod sessions;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::envelope::response;
use crate::exchange::{Driver, Exchange};
use crate::http_client::{SESSION, VERSION};
use crate::parked::{Parked, Size};
use crate::role::CANCELLED;
use crate::strict::{self, Limits};
use crate::{Answer, Backend, Id, Message, Revision, RpcError, code};

use answer::Era;
use session::Session;
use sessions::Sessions;

pub use body::DoorBody;
pub use carrier::{Carrier, Mark};
pub use judge::{HttpRefusal, route};
pub use options::{Bearer, DoorOptions};

/// One server's door. What passes it has been read once, strictly; the backend gets the value that
/// was read.
pub struct HttpDoor {
    inner: Arc<Inner>,
    /// Ends the work that goes on outside a connection.
    _stop: DropGuard,
}

struct Inner {
    backend: Arc<dyn Backend>,
    options: DoorOptions,
    sessions: Sessions,
    /// Tells calls that wait apart from those of other doors.
    number: u64,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// One request as it came: who sent it, with which headers, and how much it holds.
struct Came<'h> {
    headers: &'h HeaderMap,
    principal: Option<Arc<str>>,
    size: Size,
    /// The connection that it came over, where the listener says so.
    mark: Option<Mark>,
}

static DOORS: AtomicU64 = AtomicU64::new(1);

impl HttpDoor {
    /// A door for a listener on loopback at this port: it answers to that address alone.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, port: u16, limits: Limits) -> Self {
        Self::with(backend, DoorOptions { limits, ..DoorOptions::loopback(port) })
    }

    /// A door for any listener.
    #[must_use]
    pub fn with(backend: Arc<dyn Backend>, options: DoorOptions) -> Self {
        let stop = CancellationToken::new();
        let inner = Inner {
            backend,
            options,
            sessions: Sessions::default(),
            number: DOORS.fetch_add(1, Ordering::Relaxed),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        };
        Self { inner: Arc::new(inner), _stop: stop.drop_guard() }
    }

    /// Answers one HTTP request; its path has been [`route`]d. When the future is dropped, so is
    /// the backend's. When the body that it gives is dropped before its end, so is what was to come,
    /// unless the client can take the stream up again.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<DoorBody>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Display,
    {
        match self.inner.admit(request).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        }
    }

    /// Ends all sessions and whatever goes on without a connection, and waits until it has.
    pub async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.parked().end(self.inner.number);
        for session in self.inner.sessions.drain() {
            self.inner.ended(&session);
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

impl Inner {
    /// Calls that wait for their clients.
    fn parked(&self) -> &Parked {
        &self.options.room.parked
    }

    async fn admit<B>(
        self: &Arc<Self>,
        request: Request<B>,
    ) -> Result<Response<DoorBody>, HttpRefusal>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Display,
    {
        let (parts, body) = request.into_parts();
        judge::head(&parts, &self.options)?;
        let headers = &parts.headers;
        let mark = parts.extensions.get::<Mark>().cloned();
        let principal = judge::principal(headers, self.options.bearer.as_deref())?;
        let mut came = Came { headers, principal, size: Size::default(), mark };
        match parts.method {
            Method::POST => {}
            Method::DELETE => {
                let session = self.session(&came)?;
                if self.sessions.remove(session.name()) {
                    self.ended(&session);
                }
                return Ok(empty(StatusCode::NO_CONTENT));
            }
            _ => return self.stream(&came).await,
        }
        let limits = self.options.limits;
        judge::post(headers, limits.bytes)?;
        let room = &self.options.room;
        let (body, place) = incoming::read(body, limits.bytes, room, &came.principal).await?;
        // More than are allowed are refused below, whatever their number.
        let values = strict::values(&body).min(limits.values);
        came.size = Size { values, bytes: body.len() };
        let held = (place, room.values(&came.principal, values).await?);
        let value = match strict::parse(&body, limits) {
            Ok(value) => value,
            Err(error) => {
                let error = RpcError::new(code::PARSE, error.to_string());
                return Ok(answered(StatusCode::BAD_REQUEST, None, &Err(error)));
            }
        };
        drop(body);
        let response = match Message::from_value(value) {
            Ok(message) => self.message(&came, message).await,
            Err(error) => {
                let error = RpcError::new(code::INVALID_REQUEST, error.to_string());
                Ok(answered(StatusCode::BAD_REQUEST, None, &Err(error)))
            }
        };
        drop(held);
        response
    }

    async fn message(
        self: &Arc<Self>,
        came: &Came<'_>,
        message: Message,
    ) -> Result<Response<DoorBody>, HttpRefusal> {
        let version = judge::text(came.headers, &VERSION)?;
        match message {
            Message::Request { id, method, params } => {
                match Era::of(&method, params.as_ref(), version) {
                    Era::Stateless => Ok(self.stateless(came, id, method, params).await),
                    Era::Handshake if method == "initialize" => {
                        Ok(self.initialize(came, id, params).await)
                    }
                    Era::Handshake => self.in_session(came, id, method, params).await,
                }
            }
            Message::Notification { method, params } => {
                if version.and_then(Revision::parse).is_some_and(|version| version.is_stateless()) {
                    return Ok(empty(StatusCode::ACCEPTED));
                }
                let session = self.session(came)?;
                match method.as_str() {
                    "notifications/initialized" => {}
                    CANCELLED => session.cancel(params.as_ref()),
                    _ => self.backend.notification(session.asker(), &method, params).await,
                }
                Ok(empty(StatusCode::ACCEPTED))
            }
            Message::Response { id, answer } => {
                let session = self.session(came)?;
                if session.questions.answer(id.as_ref(), answer) {
                    return Ok(empty(StatusCode::ACCEPTED));
                }
                Err(HttpRefusal::new(
                    StatusCode::BAD_REQUEST,
                    "nothing was asked that this could answer",
                ))
            }
        }
    }

    /// The session that the headers name, of this server and this principal alone.
    fn session(self: &Arc<Self>, came: &Came<'_>) -> Result<Arc<Session>, HttpRefusal> {
        let named = judge::text(came.headers, &SESSION)?.ok_or(HttpRefusal::new(
            StatusCode::BAD_REQUEST,
            "the header Mcp-Session-Id is missing",
        ))?;
        let session = self
            .sessions
            .find(named, came.principal.as_deref())
            .ok_or(HttpRefusal::new(StatusCode::NOT_FOUND, "there is no such session"))?;
        self.carried(&session, came.mark.as_ref());
        // What counts is the session's own; the header must be one that could be agreed on
        // (2025-11-25, transports, protocol version header).
        match judge::text(came.headers, &VERSION)?.map(Revision::parse) {
            None => Ok(session),
            Some(Some(version)) if !version.is_stateless() => Ok(session),
            Some(_) => Err(HttpRefusal::new(
                StatusCode::BAD_REQUEST,
                "the header MCP-Protocol-Version names a revision that no session here has",
            )),
        }
    }

    /// A session has left the table.
    fn ended(&self, session: &Session) {
        session.end();
        self.backend.ended(session.name());
    }

    /// Lets work go on by itself, from here on whether or not somebody reads.
    fn go_on(self: &Arc<Self>, driver: Driver, after: impl FnOnce(&Self) + Send + 'static) {
        let door = Arc::clone(self);
        let exchange = Arc::clone(driver.exchange());
        self.tasks.spawn(async move {
            tokio::select! {
                () = door.stop.cancelled() => {}
                () = driver.run() => {}
            }
            door.parked().forget(&exchange);
            after(&door);
        });
    }
}

impl HttpRefusal {
    /// As HTTP: a small JSON body that says why.
    #[must_use]
    pub fn into_response(self) -> Response<DoorBody> {
        let text = json!({ "error": self.reason }).to_string();
        let mut response = json_response(self.status, text.into());
        if self.status == StatusCode::UNAUTHORIZED {
            // RFC 6750, section 3.
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

fn empty(status: StatusCode) -> Response<DoorBody> {
    let mut response = Response::new(DoorBody::whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// The answer of an exchange.
fn answered_by(
    exchange: &Exchange,
    status: StatusCode,
    id: &Id,
    answer: &Answer,
) -> Response<DoorBody> {
    json_response(status, exchange.outgoing(response(Some(id), answer)))
}

fn answered(status: StatusCode, id: Option<&Id>, answer: &Answer) -> Response<DoorBody> {
    json_response(status, response(id, answer).into())
}

fn json_response(status: StatusCode, text: Bytes) -> Response<DoorBody> {
    let mut response = Response::new(DoorBody::whole(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn event_response(events: body::Events) -> Response<DoorBody> {
    let mut response = Response::new(DoorBody::events(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The parameters' member of this name, as text.
fn member<'v>(params: Option<&'v Value>, name: &str) -> Option<&'v str> {
    params?.get(name)?.as_str()
}
