//! MCP over Streamable HTTP, towards a server that is not trusted to keep to it.

mod events;
mod hear;
mod param_headers;
mod reply;
mod setup;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::revision::{META_VERSION, meta};
use crate::role::CANCELLED;
use crate::upstream::desk::Desk;
use crate::upstream::exchange::Exchange;
use crate::upstream::listener::Listener;
use crate::upstream::questions::Answering;
use crate::upstream::{Authorize, HttpOptions, UpstreamError, UpstreamLimits};
use crate::{Answer, Boxed, Id, Revision, code, envelope};

use param_headers::ParamHeaders;
use setup::down;

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// How long a server may take to accept a message that has no answer.
const ACCEPT_WAIT: Duration = Duration::from_secs(30);
/// Answers to a server's own requests that nobody was asked for and that are under way at once; it
/// goes without the next ones.
const ANSWERS: usize = 16;
/// How often in one request other credentials are asked for.
const CHALLENGES: usize = 2;
/// Bytes of a session's name, at most.
const SESSION_NAME: usize = 1024;
/// Pages of a list that is read again because a server saw other headers in it.
const PAGES: usize = 50;

/// One server.
pub(crate) struct Http {
    client: reqwest::Client,
    url: reqwest::Url,
    headers: HeaderMap,
    authorize: Option<Arc<dyn Authorize>>,
    limits: UpstreamLimits,
    desk: Arc<Desk>,
    session: OnceLock<HeaderValue>,
    /// The revision agreed on in a handshake.
    agreed: OnceLock<HeaderValue>,
    tools: ParamHeaders,
    next: AtomicI64,
    answers: Arc<Semaphore>,
}

/// Whose the stream is that a message comes on.
#[derive(Clone, Copy)]
pub(crate) enum On<'a> {
    Request(&'a Arc<Exchange>),
    Listener(&'a Arc<Listener>),
}

#[derive(Serialize)]
struct Outgoing<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a Value>,
}

fn written(id: Option<i64>, method: &str, params: Option<&Value>) -> Result<Bytes, UpstreamError> {
    let message = Outgoing { jsonrpc: "2.0", id, method, params };
    let text = serde_json::to_vec(&message).map_err(|error| down("it cannot be written", error))?;
    Ok(text.into())
}

impl Http {
    pub(crate) fn new(
        url: &str,
        options: &HttpOptions,
        limits: UpstreamLimits,
        desk: Arc<Desk>,
    ) -> Result<Arc<Self>, UpstreamError> {
        let url = reqwest::Url::parse(url).map_err(|error| down("its URL is not valid", error))?;
        let client = setup::client(&url, options)?;
        let headers = setup::headers(options)?;
        let own = headers.contains_key(AUTHORIZATION);
        Ok(Arc::new(Self {
            client,
            url,
            headers,
            authorize: options.authorize.clone().filter(|_| !own),
            limits,
            desk,
            session: OnceLock::new(),
            agreed: OnceLock::new(),
            tools: ParamHeaders::default(),
            next: AtomicI64::new(0),
            answers: Arc::new(Semaphore::new(ANSWERS)),
        }))
    }

    /// A handshake agreed on this revision.
    pub(crate) fn agree(&self, revision: &Revision) {
        if let Ok(value) = HeaderValue::from_str(revision.as_str()) {
            let _ = self.agreed.set(value);
        }
    }

    /// Sends a request and reads on until its answer. Dropping the future tells the server.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        on: On<'_>,
        method: &str,
        params: Option<&Value>,
    ) -> Result<Value, UpstreamError> {
        let answer = self.ask_once(on, method, params).await;
        match answer {
            // The tool has other annotations than it had in the list that went by.
            Err(UpstreamError::Rpc(error))
                if error.code == code::HEADER_MISMATCH && method == "tools/call" =>
            {
                self.list_again(on, params).await?;
                self.ask_once(on, method, params).await
            }
            Ok(mut result) if method == "tools/list" && is_stateless(params) => {
                self.desk.left_out(self.tools.learn(&mut result));
                Ok(result)
            }
            answer => answer,
        }
    }

    async fn list_again(
        self: &Arc<Self>,
        on: On<'_>,
        params: Option<&Value>,
    ) -> Result<(), UpstreamError> {
        let mut meta = params.and_then(|params| params.get("_meta")).cloned().unwrap_or_default();
        if let Some(meta) = meta.as_object_mut() {
            meta.shift_remove("progressToken");
        }
        let mut list = json!({ "_meta": meta });
        for _ in 0..PAGES {
            let mut page = self.ask_once(on, "tools/list", Some(&list)).await?;
            self.tools.learn(&mut page);
            match page.get_mut("nextCursor").map(Value::take) {
                Some(Value::String(cursor)) => list["cursor"] = Value::String(cursor),
                _ => break,
            }
        }
        Ok(())
    }

    async fn ask_once(
        self: &Arc<Self>,
        on: On<'_>,
        method: &str,
        params: Option<&Value>,
    ) -> Result<Value, UpstreamError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let body = written(Some(id), method, params)?;
        let headers = self.message_headers(Some(method), params)?;
        let mut abandon = Abandon { http: self, id: None };
        // The stateless revision cancels by closing the stream; a handshake is never cancelled.
        if !is_stateless(params) && method != "initialize" {
            abandon.id = Some(id);
        }
        let had_session = headers.contains_key(SESSION);
        let answer = async {
            let response = self.send(Method::POST, headers, body).await?;
            if response.status() == StatusCode::NOT_FOUND && had_session {
                return Err(UpstreamError::SessionLost);
            }
            if method == "initialize" {
                self.keep_session(response.headers())?;
            }
            self.read(response, id, on).await
        }
        .await;
        abandon.id = None;
        answer?.map_err(UpstreamError::Rpc)
    }

    fn keep_session(&self, headers: &HeaderMap) -> Result<(), UpstreamError> {
        let Some(session) = headers.get(SESSION) else { return Ok(()) };
        let visible = session.as_bytes().iter().all(u8::is_ascii_graphic);
        if !visible || session.is_empty() || session.len() > SESSION_NAME {
            let reason = "its session's name is not 1 to 1024 visible characters".into();
            return Err(UpstreamError::Nonsense { reason });
        }
        let mut session = session.clone();
        session.set_sensitive(true);
        let _ = self.session.set(session);
        Ok(())
    }

    /// Sends a notification.
    pub(crate) async fn tell(
        &self,
        method: &str,
        params: Option<&Value>,
    ) -> Result<(), UpstreamError> {
        let headers = self.message_headers(Some(method), params)?;
        self.deliver(written(None, method, params)?, headers).await
    }

    /// Sends what wants no answer.
    async fn deliver(&self, body: Bytes, headers: HeaderMap) -> Result<(), UpstreamError> {
        let had_session = headers.contains_key(SESSION);
        let accepted = async {
            let response = self.send(Method::POST, headers, body).await?;
            match response.status() {
                StatusCode::NOT_FOUND if had_session => Err(UpstreamError::SessionLost),
                status if status.is_success() => Ok(()),
                status => Err(reply::refused(status)),
            }
        };
        tokio::time::timeout(ACCEPT_WAIT, accepted)
            .await
            .unwrap_or(Err(UpstreamError::Timeout { after: ACCEPT_WAIT }))
    }

    /// Ends the session: a courtesy, nobody waits for it.
    pub(crate) fn leave(&self) {
        let (Some(session), Ok(runtime)) =
            (self.session.get(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let mut headers = self.headers.clone();
        headers.insert(SESSION, session.clone());
        headers.extend(self.agreed.get().map(|value| (VERSION, value.clone())));
        let request = self.client.delete(self.url.clone()).headers(headers);
        runtime.spawn(tokio::time::timeout(Duration::from_secs(2), request.send()));
    }

    fn message_headers(
        &self,
        method: Option<&str>,
        params: Option<&Value>,
    ) -> Result<HeaderMap, UpstreamError> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let stateless = meta(params, META_VERSION).and_then(Value::as_str);
        if let Some(version) = stateless.and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(VERSION, version);
            let method = method.unwrap_or_default();
            headers.extend(header_value(method).map(|value| (METHOD, value)));
            let name = name_of(method, params).and_then(header_value);
            headers.extend(name.map(|value| (NAME, value)));
            if method == "tools/call" {
                self.tools.add(&mut headers, params).map_err(UpstreamError::Rpc)?;
            }
        } else {
            self.session_headers(&mut headers);
        }
        Ok(headers)
    }

    fn session_headers(&self, headers: &mut HeaderMap) {
        headers.extend(self.agreed.get().map(|value| (VERSION, value.clone())));
        headers.extend(self.session.get().map(|value| (SESSION, value.clone())));
    }

    /// One HTTP request, and as many more as there are other credentials to try.
    async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, UpstreamError> {
        for tried in 0.. {
            let mut request = reqwest::Request::new(method.clone(), self.url.clone());
            *request.headers_mut() = headers.clone();
            if method == Method::POST {
                *request.body_mut() = Some(body.clone().into());
            }
            if let Some(authorize) = &self.authorize {
                let said = authorize.header().await;
                let text = said.map_err(|words| down("it wants a sign-in", words))?;
                if let Some(text) = text {
                    let mut value = HeaderValue::from_str(&text).map_err(|_| {
                        down("it wants a sign-in", "the stored token is not valid in HTTP")
                    })?;
                    value.set_sensitive(true);
                    request.headers_mut().insert(AUTHORIZATION, value);
                }
            }
            let response = self.client.execute(request).await.map_err(reply::failure)?;
            let status = response.status();
            reply::check(&response)?;
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                && let Some(authorize) = &self.authorize
            {
                let challenge = reply::challenge(response.headers());
                let again = tried < CHALLENGES
                    && authorize.challenged(status.as_u16(), challenge.as_deref()).await;
                if again {
                    continue;
                }
                return Err(reply::refused(status));
            }
            return Ok(response);
        }
        Err(UpstreamError::Cancelled)
    }
}

fn is_stateless(params: Option<&Value>) -> bool {
    meta(params, META_VERSION).is_some()
}

/// Tells the server that nobody waits any more, unless there was an answer.
struct Abandon<'h> {
    http: &'h Arc<Http>,
    id: Option<i64>,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let http = Arc::clone(self.http);
        runtime.spawn(async move {
            let params = json!({ "requestId": id, "reason": "no longer waited for" });
            let _ = http.tell(CANCELLED, Some(&params)).await;
        });
    }
}

impl Answering for Http {
    fn answer(self: Arc<Self>, id: Id, answer: Answer, asked: bool) -> Boxed<'static, ()> {
        let permit = match Arc::clone(&self.answers).try_acquire_owned() {
            Ok(permit) => Some(permit),
            // What a client was asked for is bounded where it is asked.
            Err(_) if asked => None,
            Err(_) => return Box::pin(std::future::ready(())),
        };
        Box::pin(async move {
            let _permit = permit;
            let text = envelope::response(Some(&id), &answer);
            if let Ok(headers) = self.message_headers(None, None) {
                let _ = self.deliver(text.into(), headers).await;
            }
        })
    }
}

/// What `Mcp-Name` carries for a method (2026-07-28, standard headers).
pub(crate) fn name_of<'v>(method: &str, params: Option<&'v Value>) -> Option<&'v str> {
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    params?.get(key)?.as_str()
}

const WRAP: (&str, &str) = ("=?base64?", "?=");

/// A header value that survives HTTP: as it is, or wrapped in Base64.
fn header_value(text: &str) -> Option<HeaderValue> {
    let plain = text.bytes().all(|b| (0x20..=0x7e).contains(&b))
        && text.trim_matches([' ', '\t']) == text
        && !(text.starts_with(WRAP.0) && text.ends_with(WRAP.1));
    if plain {
        return HeaderValue::from_str(text).ok();
    }
    let coded = base64::prelude::BASE64_STANDARD.encode(text);
    HeaderValue::from_str(&format!("{}{coded}{}", WRAP.0, WRAP.1)).ok()
}

/// The text of such a value; `None` when the wrapping does not hold text.
pub(crate) fn header_text(value: &str) -> Option<String> {
    match value.strip_prefix(WRAP.0).and_then(|rest| rest.strip_suffix(WRAP.1)) {
        Some(coded) => {
            let bytes = base64::prelude::BASE64_STANDARD.decode(coded).ok()?;
            String::from_utf8(bytes).ok()
        }
        None => Some(value.to_owned()),
    }
}
