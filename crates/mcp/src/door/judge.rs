//! Which HTTP requests are let in. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    HeaderMap, HeaderName, ORIGIN, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, StatusCode, Uri, request};
use serde_json::{Value, json};

use super::options::{Bearer, DoorOptions};
use crate::http_client::{METHOD, NAME, SESSION, VERSION, header_text, name_of};
use crate::revision::{META_CAPABILITIES, META_VERSION, meta};
use crate::{Revision, RpcError, code};

/// Why an HTTP request was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {reason}")]
pub struct HttpRefusal {
    /// What is answered.
    pub status: StatusCode,
    /// In words.
    pub reason: &'static str,
}

impl HttpRefusal {
    /// A refusal.
    #[must_use]
    pub fn new(status: StatusCode, reason: &'static str) -> Self {
        Self { status, reason }
    }
}

fn bad(reason: &'static str) -> HttpRefusal {
    HttpRefusal::new(StatusCode::BAD_REQUEST, reason)
}

/// The server that a path names: `/<server>/mcp`, spelled in the one plain way.
///
/// # Errors
/// 400 for a path that two readers could read differently (percent encoding, empty or dot segments,
/// a backslash, anything but visible ASCII), for a query, and for a full URL in place of a path; 404
/// for another path.
pub fn route(uri: &Uri) -> Result<&str, HttpRefusal> {
    if uri.scheme().is_some() || uri.authority().is_some() {
        return Err(bad("expected a path, not a full URL"));
    }
    if uri.query().is_some() {
        return Err(bad("a query is not accepted"));
    }
    let path = uri.path();
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    let rest = path.strip_prefix('/').filter(|_| path.bytes().all(plain));
    let Some(rest) = rest else {
        return Err(bad("the path is ambiguous"));
    };
    let segments: Vec<_> = rest.split('/').collect();
    if segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) && !rest.is_empty() {
        return Err(bad("the path is ambiguous"));
    }
    match segments[..] {
        [server, "mcp"] => Ok(server),
        _ => Err(HttpRefusal::new(StatusCode::NOT_FOUND, "expected /<server>/mcp")),
    }
}

/// Headers of which a second one would leave open which counts.
const SINGLE: [HeaderName; 12] = [
    HOST,
    ORIGIN,
    CONTENT_TYPE,
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    TRANSFER_ENCODING,
    AUTHORIZATION,
    SESSION,
    VERSION,
    METHOD,
    NAME,
    HeaderName::from_static("last-event-id"),
];

/// Method, Host, Origin and what may not be there at all.
pub(super) fn head(parts: &request::Parts, options: &DoorOptions) -> Result<(), HttpRefusal> {
    let headers = &parts.headers;
    if ![Method::POST, Method::GET, Method::DELETE].contains(&parts.method) {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        return Err(HttpRefusal::new(status, "only POST, GET and DELETE are accepted"));
    }
    let single = |name: &HeaderName| SINGLE.contains(name) || name.as_str().starts_with("mcp-");
    if headers.len() > headers.keys_len() {
        let twice = |name: &HeaderName| headers.get_all(name).iter().nth(1).is_some();
        if headers.keys().any(|name| single(name) && twice(name)) {
            return Err(bad("a header that may stand once stands twice"));
        }
    }
    // A proxy may read `_` as `-`, and so one header as another.
    if headers.keys().any(|name| name.as_str().contains('_')) {
        let mut seen = HashSet::new();
        if !headers.keys().all(|name| seen.insert(name.as_str().replace('_', "-"))) {
            return Err(bad("two headers differ only in `-` and `_`"));
        }
    }
    let among = |listed: &[String], found: &str| {
        listed.iter().any(|listed| listed.eq_ignore_ascii_case(found))
    };
    let host = text(headers, &HOST)?.ok_or(bad("the header Host is missing"))?;
    if !among(&options.hosts, host) {
        return Err(HttpRefusal::new(StatusCode::FORBIDDEN, "Host is not this gateway"));
    }
    if let Some(origin) = text(headers, &ORIGIN)?
        && !among(&options.origins, origin)
    {
        return Err(HttpRefusal::new(StatusCode::FORBIDDEN, "Origin is not this gateway"));
    }
    let upgrade = headers.get_all(CONNECTION).iter().any(|value| {
        let tokens = value.to_str().unwrap_or("upgrade");
        tokens.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
    });
    if upgrade || headers.contains_key(UPGRADE) {
        return Err(bad("upgrades are not accepted"));
    }
    if headers.contains_key(CONTENT_ENCODING) {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(HttpRefusal::new(status, "encoded bodies are not accepted"));
    }
    Ok(())
}

/// Whose token stands in `Authorization`. `None` where none is asked for.
pub(super) fn principal(
    headers: &HeaderMap,
    bearer: Option<&dyn Bearer>,
) -> Result<Option<Arc<str>>, HttpRefusal> {
    let Some(bearer) = bearer else { return Ok(None) };
    let refuse = |reason| Err(HttpRefusal::new(StatusCode::UNAUTHORIZED, reason));
    let Some(value) = text(headers, &AUTHORIZATION)? else {
        return refuse("a bearer token is needed");
    };
    let token = match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim_matches(' '),
        _ => return refuse("a bearer token is needed"),
    };
    // RFC 6750, section 2.1.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
    if token.is_empty() || !token.bytes().all(plain) {
        return refuse("the bearer token is not valid");
    }
    match bearer.principal(token) {
        Some(principal) => Ok(Some(principal)),
        None => refuse("the bearer token is not valid"),
    }
}

/// Whether the client takes this type of answer. Without `Accept` it takes JSON.
pub(super) fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let group = media.split('/').next().unwrap_or_default();
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| {
        let essence = part.split(';').next().unwrap_or_default().trim();
        let of_group = |essence: &str| {
            essence.strip_suffix("/*").is_some_and(|g| g.eq_ignore_ascii_case(group))
        };
        essence == "*/*" || essence.eq_ignore_ascii_case(media) || of_group(essence)
    })
}

/// What a POST needs beside that.
pub(super) fn post(headers: &HeaderMap, limit: usize) -> Result<(), HttpRefusal> {
    let media = text(headers, &CONTENT_TYPE)?.unwrap_or_default();
    let (essence, parameters) = media.split_once(';').unwrap_or((media, "charset=utf-8"));
    let utf8 = parameters.trim().replace('"', "").eq_ignore_ascii_case("charset=utf-8");
    if !essence.trim().eq_ignore_ascii_case("application/json") || !utf8 {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(HttpRefusal::new(status, "Content-Type must be application/json"));
    }
    if headers.contains_key(ACCEPT) && !accepts(headers, "application/json") {
        let status = StatusCode::NOT_ACCEPTABLE;
        return Err(HttpRefusal::new(status, "Accept must include application/json"));
    }
    let length = text(headers, &CONTENT_LENGTH)?.and_then(|text| text.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
    }
    Ok(())
}

/// A header as text.
pub(super) fn text<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h str>, HttpRefusal> {
    let value = headers.get(name).map(|value| value.to_str());
    value.transpose().map_err(|_| bad("a header is not visible ASCII"))
}

/// What a stateless request must say of itself: its revision, whatever it is.
pub(crate) fn declared(params: Option<&Value>) -> Result<&str, RpcError> {
    let missing = |key: &str| RpcError::new(code::INVALID_PARAMS, format!("_meta needs {key}"));
    let named = meta(params, META_VERSION).and_then(Value::as_str);
    let named = named.ok_or_else(|| missing(META_VERSION))?;
    let capable = meta(params, META_CAPABILITIES).is_some_and(Value::is_object);
    capable.then_some(named).ok_or_else(|| missing(META_CAPABILITIES))
}

/// Whether a stateless request can be in this revision.
pub(crate) fn spoken(named: &str) -> Result<(), RpcError> {
    if Revision::parse(named).is_some_and(|revision| revision.is_stateless()) {
        return Ok(());
    }
    Err(RpcError {
        code: code::UNSUPPORTED_VERSION,
        message: "this revision is not spoken here without a handshake".into(),
        data: Some(json!({ "supported": [Revision::STATELESS.as_str()], "requested": named })),
    })
}

/// The headers of a stateless request against its body (2026-07-28, standard headers).
pub(super) fn stateless(
    headers: &HeaderMap,
    method: &str,
    params: Option<&Value>,
) -> Result<(), RpcError> {
    let mismatch = |words: &str| Err(RpcError::new(code::HEADER_MISMATCH, words));
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let named = declared(params)?;
    if header(VERSION) != Some(named) {
        return mismatch("MCP-Protocol-Version and _meta do not name the same revision");
    }
    spoken(named)?;
    if header(METHOD) != Some(method) {
        return mismatch("Mcp-Method is not the body's method");
    }
    let found = header(NAME).map(|value| header_text(value).unwrap_or_default());
    if found.as_deref() != name_of(method, params) {
        return mismatch("Mcp-Name is not the body's name");
    }
    Ok(())
}
