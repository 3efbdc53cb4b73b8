//! What a request asks for, once its head has been read: a tunnel or one exchange. Pure.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, Method};

use crate::head::{Framing, Head};
use crate::target::{Authority, absolute};

/// A request that has one meaning.
#[derive(Debug)]
pub(crate) enum Request {
    /// `CONNECT`.
    Tunnel(Authority),
    /// Anything else, to an absolute `http://` URI.
    Exchange(Exchange),
}

/// One plain HTTP request, as it will go upstream.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) authority: Authority,
    /// Path and query.
    pub(crate) path: http::Uri,
    pub(crate) method: Method,
    /// End-to-end headers only, without `Host` and lengths.
    pub(crate) headers: HeaderMap,
    pub(crate) framing: Framing,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
}

/// Why a request is not served, whatever the rules say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestError {
    /// HTTP status for the client.
    pub(crate) status: u16,
    /// The step that refused: `name` or `request`.
    pub(crate) check: &'static str,
    /// In words, without anything that was given.
    pub(crate) reason: &'static str,
}

fn bad(reason: &'static str) -> RequestError {
    RequestError { status: 400, check: "request", reason }
}

fn bad_name(reason: &'static str) -> RequestError {
    RequestError { status: 400, check: "name", reason }
}

impl Request {
    /// Where it wants to go.
    pub(crate) fn authority(&self) -> &Authority {
        match self {
            Self::Tunnel(authority) => authority,
            Self::Exchange(exchange) => &exchange.authority,
        }
    }

    /// Reads a head.
    pub(crate) fn new(head: Head) -> Result<Self, RequestError> {
        if head.headers.contains_key(UPGRADE) {
            return Err(bad("a protocol upgrade is not allowed; use CONNECT"));
        }
        if head.method == Method::CONNECT { tunnel(&head) } else { exchange(head) }
    }
}

fn tunnel(head: &Head) -> Result<Request, RequestError> {
    if !matches!(head.framing, Framing::Empty | Framing::Length(0)) {
        return Err(bad("CONNECT has no body"));
    }
    let authority = Authority::parse(&head.target, None).map_err(|error| bad_name(error.0))?;
    // Clients differ in whether `Host` carries the port here, so only a host that differs, or a
    // second one, is a contradiction.
    let mut hosts = head.headers.get_all(HOST).iter();
    if let Some(host) = hosts.next() {
        let named =
            host.to_str().ok().and_then(|text| Authority::parse(text, Some(authority.port)).ok());
        if named.as_ref() != Some(&authority) || hosts.next().is_some() {
            return Err(bad("the Host header is not the CONNECT host"));
        }
    }
    Ok(Request::Tunnel(authority))
}

fn exchange(head: Head) -> Result<Request, RequestError> {
    let scheme = head.target.split("://").next().unwrap_or_default();
    if head.target.starts_with('/') || head.target == "*" {
        return Err(bad("this is a proxy: send an absolute http:// URI, or CONNECT for https"));
    }
    if scheme.eq_ignore_ascii_case("https") {
        return Err(bad("https goes through CONNECT, not through an absolute URI"));
    }
    let (authority, path) = absolute(&head.target).map_err(|error| bad_name(error.0))?;
    let path = http::Uri::try_from(path).map_err(|_| bad("the path is not a valid one"))?;
    let mut hosts = head.headers.get_all(HOST).iter();
    let named = hosts
        .next()
        .and_then(|host| host.to_str().ok())
        .and_then(|text| Authority::parse(text, Some(80)).ok());
    if named.as_ref() != Some(&authority) || hosts.next().is_some() {
        return Err(bad("there must be one Host header, and it must name the URI's authority"));
    }
    let expects_continue = expects_continue(&head.headers)?;
    let Head { method, mut headers, framing, .. } = head;
    strip_hop_by_hop(&mut headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    Ok(Request::Exchange(Exchange { authority, path, method, headers, framing, expects_continue }))
}

fn expects_continue(headers: &HeaderMap) -> Result<bool, RequestError> {
    let mut values = headers.get_all(EXPECT).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(false),
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"100-continue") => Ok(true),
        _ => Err(RequestError {
            status: 417,
            check: "request",
            reason: "the only expectation known is 100-continue",
        }),
    }
}

/// Removes what is meant for the next hop alone (RFC 9110, section 7.6.1), and the proxy's
/// credentials.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "proxy-authentication-info", "http2-settings"] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests;
