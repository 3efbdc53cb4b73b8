//! A request of HTTP/2 in the form in which every request is judged. Pure.

use http::header::{COOKIE, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method};

use crate::head::{Framing, Head, MAX_LINES, framing};

/// Why a request is not judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) status: u16,
    pub(super) reason: &'static str,
}

/// What stands in the record for the target of a request.
pub(super) fn target(parts: &Parts) -> String {
    let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
    if parts.method == Method::CONNECT {
        return authority.to_owned();
    }
    let path = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    format!("{}://{authority}{path}", parts.uri.scheme_str().unwrap_or_default())
}

/// Brings the fields of RFC 9113, section 8.3.1, into the head that they stand for in HTTP/1. The
/// library has already refused what is malformed by that RFC: connection-specific fields, upper case,
/// pseudo-fields that are doubled, missing or out of place.
pub(super) fn head(parts: Parts, ended: bool) -> Result<Head, Unfit> {
    let bad = |reason| Unfit { status: 400, reason };
    if parts.extensions.get::<h2::ext::Protocol>().is_some() {
        let reason = "no other protocol is spoken through CONNECT; use it without `:protocol`";
        return Err(Unfit { status: 501, reason });
    }
    let Some(authority) = parts.uri.authority() else {
        return Err(bad("the request has no `:authority`"));
    };
    if parts.headers.len() > MAX_LINES {
        return Err(bad("the request has more than 128 header lines"));
    }
    let authority = HeaderValue::from_str(authority.as_str())
        .map_err(|_| bad("the `:authority` is not a valid one"))?;
    let target = target(&parts);
    let Parts { method, mut headers, .. } = parts;
    // Where both are there they must agree, as for HTTP/1.
    headers.entry(HOST).or_insert(authority);
    join_cookies(&mut headers).map_err(bad)?;
    let framing = match framing(&headers, 1).map_err(|error| bad(error.0))? {
        // CONNECT has no body: what follows is the tunnel.
        Framing::Empty if ended || method == Method::CONNECT => Framing::Empty,
        Framing::Empty => Framing::Chunked,
        framing => framing,
    };
    Ok(Head { method, target, minor: 1, headers, framing })
}

/// HTTP/1 has one line of cookies (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut http::HeaderMap) -> Result<(), &'static str> {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return Ok(());
    }
    let whole = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
        .map_err(|_| "the cookies are not valid ones")?;
    headers.insert(COOKIE, whole);
    Ok(())
}
