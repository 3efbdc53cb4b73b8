//! The agent's door: MCP over Streamable HTTP on loopback, for one backend.

pub(crate) mod answer;
mod judge;
mod sessions;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::envelope::response;
use crate::http_client::{SESSION, VERSION};
use crate::role::CANCELLED;
use crate::strict::{self, Limits};
use crate::{Asker, Backend, Id, Message, Revision, RpcError, code};

use answer::Era;
use sessions::{Sessions, Slot};

pub use judge::{HttpRefusal, route};

/// One server's door. What passes it has been read once, strictly; the backend gets the value that
/// was read. Made for a listener on loopback: it answers to that address alone.
pub struct HttpDoor {
    backend: Arc<dyn Backend>,
    port: u16,
    limits: Limits,
    sessions: Sessions,
    large: Semaphore,
    values: Semaphore,
}

/// Requests of more than [`SMALL`] bytes that are held in memory at once; the next ones wait.
const LARGE_AT_ONCE: usize = 8;
/// JSON values in all requests that are held in memory at once; the next ones wait. Room for five
/// requests of the most values, or for thousands of usual ones.
const VALUES_AT_ONCE: usize = 500_000;
/// Bytes.
const SMALL: u64 = 64 * 1024;

impl HttpDoor {
    /// A door for the listener on this port.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, port: u16, limits: Limits) -> Self {
        Self {
            backend,
            port,
            limits,
            sessions: Sessions::default(),
            large: Semaphore::new(LARGE_AT_ONCE),
            values: Semaphore::new(VALUES_AT_ONCE),
        }
    }

    /// Answers one HTTP request; its path has been [`route`]d. When the future is dropped, so is
    /// the backend's.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Display,
    {
        match self.admit(request).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn admit<B>(&self, request: Request<B>) -> Result<Response<Full<Bytes>>, HttpRefusal>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Display,
    {
        let (parts, body) = request.into_parts();
        judge::head(&parts, self.port)?;
        match parts.method {
            Method::POST => {}
            Method::DELETE => {
                let (session, _) = self.session(&parts.headers)?;
                self.sessions.end(&session);
                return Ok(empty(StatusCode::NO_CONTENT));
            }
            _ => {
                // No stream of the server's own is offered: 405, as the specification has it.
                self.session(&parts.headers)?;
                let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
                return Ok(response);
            }
        }
        judge::post(&parts.headers, self.limits.bytes)?;
        let length = judge::text(&parts.headers, &CONTENT_LENGTH)?.and_then(|n| n.parse().ok());
        let small = length.is_some_and(|length: u64| length <= SMALL);
        let _place = if small { None } else { self.large.acquire().await.ok() };
        let body = Limited::new(body, self.limits.bytes).collect().await.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large")
            } else {
                HttpRefusal::new(StatusCode::BAD_REQUEST, "the body could not be read")
            }
        })?;
        let body = body.to_bytes();
        // More than are allowed are refused below, whatever their number.
        let values = strict::values(&body).min(self.limits.values).min(VALUES_AT_ONCE);
        let values = u32::try_from(values).unwrap_or(u32::MAX);
        let _room = self.values.acquire_many(values).await.ok();
        let value = match strict::parse(&body, self.limits) {
            Ok(value) => value,
            Err(error) => {
                let error = RpcError::new(code::PARSE, error.to_string());
                return Ok(answered(StatusCode::BAD_REQUEST, None, &Err(error)));
            }
        };
        drop(body);
        match Message::from_value(value) {
            Ok(message) => self.message(&parts.headers, message).await,
            Err(error) => {
                let error = RpcError::new(code::INVALID_REQUEST, error.to_string());
                Ok(answered(StatusCode::BAD_REQUEST, None, &Err(error)))
            }
        }
    }

    async fn message(
        &self,
        headers: &HeaderMap,
        message: Message,
    ) -> Result<Response<Full<Bytes>>, HttpRefusal> {
        match message {
            Message::Request { id, method, params } => {
                let version = judge::text(headers, &VERSION)?;
                match Era::of(&method, params.as_ref(), version) {
                    Era::Stateless => Ok(self.stateless(headers, id, &method, params).await),
                    Era::Handshake if method == "initialize" => {
                        Ok(self.initialize(headers, id, params).await)
                    }
                    Era::Handshake => self.in_session(headers, id, &method, params).await,
                }
            }
            Message::Notification { method, params } => {
                let version = judge::text(headers, &VERSION)?.and_then(Revision::parse);
                if version.is_some_and(|version| version.is_stateless()) {
                    return Ok(empty(StatusCode::ACCEPTED));
                }
                let (session, revision) = self.session(headers)?;
                match method.as_str() {
                    "notifications/initialized" => {}
                    CANCELLED => self.sessions.cancel(&session, params.as_ref()),
                    _ => {
                        let asker = Asker { session: Some(session), revision, principal: None };
                        self.backend.notification(&asker, &method, params).await;
                    }
                }
                Ok(empty(StatusCode::ACCEPTED))
            }
            Message::Response { .. } => Err(HttpRefusal::new(
                StatusCode::BAD_REQUEST,
                "nothing was asked that this could answer",
            )),
        }
    }

    /// 2026-07-28: the request says all there is to know, twice, and both must agree.
    async fn stateless(
        &self,
        headers: &HeaderMap,
        id: Id,
        method: &str,
        params: Option<Value>,
    ) -> Response<Full<Bytes>> {
        let answer = match judge::stateless(headers, method, params.as_ref()) {
            Err(error) => return answered(StatusCode::BAD_REQUEST, Some(&id), &Err(error)),
            Ok(()) => {
                let asker = Asker { session: None, revision: Revision::STATELESS, principal: None };
                answer::answer(self.backend.as_ref(), Era::Stateless, &asker, method, params).await
            }
        };
        let status = match &answer {
            Err(error) if error.code == code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        answered(status, Some(&id), &answer)
    }

    async fn initialize(
        &self,
        headers: &HeaderMap,
        id: Id,
        params: Option<Value>,
    ) -> Response<Full<Bytes>> {
        let wanted = params.as_ref().and_then(|p| p.get("protocolVersion")).and_then(Value::as_str);
        let Some(wanted) = wanted else {
            let error = RpcError::new(code::INVALID_PARAMS, "\"protocolVersion\" is missing");
            return answered(StatusCode::BAD_REQUEST, Some(&id), &Err(error));
        };
        // A header is not needed here, but one that says other than the body is not let in.
        if judge::text(headers, &VERSION).is_ok_and(|found| found.is_some_and(|v| v != wanted)) {
            let error = RpcError::new(code::INVALID_REQUEST, "the header names another revision");
            return answered(StatusCode::BAD_REQUEST, Some(&id), &Err(error));
        }
        let revision = Revision::negotiate(wanted);
        let asker = Asker { session: None, revision: revision.clone(), principal: None };
        let backend = self.backend.as_ref();
        let answer = answer::answer(backend, Era::Handshake, &asker, "initialize", params).await;
        let mut response = answered(StatusCode::OK, Some(&id), &answer);
        if answer.is_ok() {
            match self.sessions.open(revision) {
                Some(session) => response.headers_mut().insert(SESSION, session),
                None => return empty(StatusCode::SERVICE_UNAVAILABLE),
            };
        }
        response
    }

    async fn in_session(
        &self,
        headers: &HeaderMap,
        id: Id,
        method: &str,
        params: Option<Value>,
    ) -> Result<Response<Full<Bytes>>, HttpRefusal> {
        let (session, revision) = self.session(headers)?;
        let Slot::Open(slot) = self.sessions.begin(&session, &id) else {
            let error = RpcError::new(code::INVALID_REQUEST, "this id is already in flight");
            return Ok(answered(StatusCode::BAD_REQUEST, Some(&id), &Err(error)));
        };
        let asker = Asker { session: Some(session), revision, principal: None };
        let answer = tokio::select! {
            answer = answer::answer(self.backend.as_ref(), Era::Handshake, &asker, method, params) => answer,
            () = slot.cancelled() => Err(answer::cancelled()),
        };
        Ok(answered(StatusCode::OK, Some(&id), &answer))
    }

    /// The session that the headers name, of this server alone.
    fn session(&self, headers: &HeaderMap) -> Result<(Arc<str>, Revision), HttpRefusal> {
        let named = judge::text(headers, &SESSION)?.ok_or(HttpRefusal::new(
            StatusCode::BAD_REQUEST,
            "the header Mcp-Session-Id is missing",
        ))?;
        let (session, revision) = self
            .sessions
            .find(named)
            .ok_or(HttpRefusal::new(StatusCode::NOT_FOUND, "there is no such session"))?;
        match judge::text(headers, &VERSION)? {
            Some(version) if version != revision.as_str() => Err(HttpRefusal::new(
                StatusCode::BAD_REQUEST,
                "the header MCP-Protocol-Version names another revision than the session's",
            )),
            _ => Ok((session, revision)),
        }
    }
}

impl HttpRefusal {
    /// As HTTP: a small JSON body that says why.
    #[must_use]
    pub fn into_response(self) -> Response<Full<Bytes>> {
        json_response(self.status, &json!({ "error": self.reason }))
    }
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn answered(
    status: StatusCode,
    id: Option<&Id>,
    answer: &Result<Value, RpcError>,
) -> Response<Full<Bytes>> {
    json_response(status, &response(id, answer))
}

fn json_response(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(value.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
