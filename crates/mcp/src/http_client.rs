//! MCP over Streamable HTTP, towards a server that is not trusted to keep to it.

mod reply;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::revision::{META_VERSION, meta};
use crate::role::{CANCELLED, RawClient};
use crate::upstream::{HttpOptions, UpstreamError, UpstreamLimits};

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Why a message did not get through. Display is for the agent and names no address.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HttpError(pub(crate) UpstreamError);

/// How long a server may take to accept a message that has no answer.
const ACCEPT_WAIT: Duration = Duration::from_secs(30);
/// Answers to a server's own requests that are under way at once; it goes without the next ones.
const ANSWERS: usize = 16;

type Incoming = RxJsonRpcMessage<RawClient>;

/// One server. Every message is a request of its own; what comes back is read into one queue.
pub(crate) struct Http {
    shared: Arc<Shared>,
    incoming: mpsc::Receiver<Incoming>,
}

pub(crate) struct Shared {
    client: reqwest::Client,
    url: reqwest::Url,
    headers: HeaderMap,
    limits: UpstreamLimits,
    queue: mpsc::Sender<Incoming>,
    session: OnceLock<HeaderValue>,
    /// The revision agreed on in a handshake.
    pub(crate) agreed: OnceLock<HeaderValue>,
    in_flight: Mutex<HashMap<String, CancellationToken>>,
    answers: Semaphore,
}

impl Http {
    pub(crate) fn new(
        url: &str,
        options: &HttpOptions,
        limits: UpstreamLimits,
    ) -> Result<(Self, Arc<Shared>), UpstreamError> {
        let url = reqwest::Url::parse(url).map_err(|error| down("its URL is not valid", error))?;
        let client = client(&url, options)?;
        let headers = headers(options)?;
        let (queue, incoming) = mpsc::channel(64);
        let shared = Arc::new(Shared {
            client,
            url,
            headers,
            limits,
            queue,
            session: OnceLock::new(),
            agreed: OnceLock::new(),
            in_flight: Mutex::new(HashMap::new()),
            answers: Semaphore::new(ANSWERS),
        });
        Ok((Self { shared: Arc::clone(&shared), incoming }, shared))
    }
}

/// Redirects are not followed, proxy variables are not read, and nothing is unpacked.
fn client(url: &reqwest::Url, options: &HttpOptions) -> Result<reqwest::Client, UpstreamError> {
    let https = url.scheme() == "https";
    // Plain HTTP needs no roots, and reading the machine's costs memory and time.
    let roots = if https { roots(&options.extra_roots)? } else { rustls::RootCertStore::empty() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| down("TLS cannot be set up", error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .connect_timeout(options.connect_timeout)
        .pool_idle_timeout(Duration::from_secs(60))
        .tcp_nodelay(true)
        .tls_backend_preconfigured(tls)
        .https_only(https)
        .build()
        .map_err(|error| down("the HTTP client cannot be made", error))
}

/// The machine's certificate authorities, and those given.
fn roots(extra: &[Vec<u8>]) -> Result<rustls::RootCertStore, UpstreamError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(extra.iter().map(|der| der.clone().into()));
    if roots.is_empty() {
        return Err(UpstreamError::Down {
            reason: "no CA certificates are installed on this machine".into(),
            detail: "install the package ca-certificates".into(),
        });
    }
    Ok(roots)
}

fn headers(options: &HttpOptions) -> Result<HeaderMap, UpstreamError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let refuse = || UpstreamError::Down {
            reason: format!("the header {} cannot be sent", name.escape_debug()),
            detail: "its name is reserved, or its name or value is not valid in HTTP".into(),
        };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?;
        let text = name.as_str();
        let reserved = ["host", "connection", "accept", "expect", "te", "trailer", "upgrade"];
        if reserved.contains(&text)
            || ["mcp-", "content-", "transfer-", "proxy-"].iter().any(|p| text.starts_with(p))
        {
            return Err(refuse());
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| refuse())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn down(reason: &str, error: impl std::fmt::Display) -> UpstreamError {
    UpstreamError::Down { reason: reason.into(), detail: error.to_string() }
}

impl Transport<RawClient> for Http {
    type Error = HttpError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RawClient>,
    ) -> impl Future<Output = Result<(), HttpError>> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move { shared.send(item).await.map_err(HttpError) }
    }

    async fn receive(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), HttpError> {
        // Ending a session is a courtesy: nobody waits for it long.
        if let Some(session) = self.shared.session.get() {
            let request = self
                .shared
                .client
                .delete(self.shared.url.clone())
                .headers(self.shared.headers.clone())
                .header(SESSION, session)
                .headers(self.shared.agreed.get().map(version_header).unwrap_or_default());
            let _ = tokio::time::timeout(Duration::from_secs(2), request.send()).await;
        }
        Ok(())
    }
}

fn version_header(value: &HeaderValue) -> HeaderMap {
    HeaderMap::from_iter([(VERSION, value.clone())])
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, item: TxJsonRpcMessage<RawClient>) -> Result<(), UpstreamError> {
        match item {
            JsonRpcMessage::Request(request) => {
                let id = request.id.to_string();
                let token = CancellationToken::new();
                self.lock().insert(id.clone(), token.clone());
                let call = &request.request;
                let headers = self.message_headers(Some(&call.method), call.params.as_ref());
                let sent = tokio::select! {
                    sent = self.exchange(&request, headers, Some(&id)) => sent,
                    () = token.cancelled() => Err(UpstreamError::Cancelled),
                };
                self.lock().remove(&id);
                sent
            }
            JsonRpcMessage::Notification(note) => {
                let stateless = self.agreed.get().is_none();
                if note.notification.method == CANCELLED {
                    let id = note.notification.params.as_ref().and_then(|p| p.get("requestId"));
                    let token = id.and_then(|id| self.lock().remove(&id.to_string()));
                    // The stateless revision cancels by closing the stream.
                    if let Some(token) = token {
                        token.cancel();
                    }
                    if stateless {
                        return Ok(());
                    }
                }
                let headers = self.message_headers(None, None);
                self.tell(&note, headers).await
            }
            other => {
                let Ok(_one) = self.answers.try_acquire() else { return Ok(()) };
                let headers = self.message_headers(None, None);
                self.tell(&other, headers).await
            }
        }
    }

    /// Sends what wants no answer.
    async fn tell(
        &self,
        message: &impl serde::Serialize,
        headers: HeaderMap,
    ) -> Result<(), UpstreamError> {
        tokio::time::timeout(ACCEPT_WAIT, self.exchange(message, headers, None))
            .await
            .unwrap_or(Err(UpstreamError::Timeout { after: ACCEPT_WAIT }))
    }

    fn message_headers(&self, method: Option<&str>, params: Option<&Value>) -> HeaderMap {
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
        } else {
            headers.extend(self.agreed.get().map(|value| (VERSION, value.clone())));
            headers.extend(self.session.get().map(|value| (SESSION, value.clone())));
        }
        headers
    }

    async fn exchange(
        &self,
        message: &impl serde::Serialize,
        headers: HeaderMap,
        id: Option<&str>,
    ) -> Result<(), UpstreamError> {
        let body = serde_json::to_vec(message).map_err(|error| down("cannot be written", error))?;
        let had_session = headers.contains_key(SESSION);
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        let response = request.send().await.map_err(reply::failure)?;
        if let Some(session) = response.headers().get(SESSION) {
            let mut session = session.clone();
            session.set_sensitive(true);
            let _ = self.session.set(session);
        }
        if response.status() == http::StatusCode::NOT_FOUND && had_session {
            return Err(UpstreamError::SessionLost);
        }
        reply::read(response, id, self.limits, &self.queue).await
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
