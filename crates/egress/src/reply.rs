//! What the client is told when its request does not go out.

use std::fmt::Write as _;

/// What a 407 asks for.
pub(crate) const CHALLENGE: &str = "Basic realm=\"ringfence\"";
/// The media type of an answer's text.
pub(crate) const TEXT: &str = "text/plain; charset=us-ascii";

/// A short answer of the proxy's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    text: String,
}

impl Reply {
    /// 400, 417: the request itself is wrong.
    pub(crate) fn bad_request(status: u16, reason: &str) -> Self {
        Self { status, text: format!("ringfence: {reason}.\n") }
    }

    /// 407: the peer has not shown the run's token.
    pub(crate) fn no_token() -> Self {
        let text = "ringfence: this proxy needs the run's token; use the URL in HTTPS_PROXY.\n";
        Self { status: 407, text: text.to_owned() }
    }

    /// 403: refused by a rule.
    pub(crate) fn forbidden(reason: &str, hint: &str) -> Self {
        Self { status: 403, text: format!("ringfence: {reason}.\n{hint}\n") }
    }

    /// 502: allowed, and yet there is no connection.
    pub(crate) fn bad_gateway(reason: &str) -> Self {
        Self { status: 502, text: format!("ringfence: {reason}.\n") }
    }

    /// 503: no evidence can be kept, so nothing goes out.
    pub(crate) fn unrecorded(reason: &str) -> Self {
        Self {
            status: 503,
            text: format!("ringfence: refused, the record cannot be kept: {reason}.\n"),
        }
    }

    /// What the client reads: ASCII with line ends alone beside it, whatever went into it.
    pub(crate) fn text(&self) -> String {
        self.text.chars().map(|c| if matches!(c, ' '..='~' | '\n') { c } else { '?' }).collect()
    }

    /// The whole answer.
    pub(crate) fn render(&self, with_body: bool, close: bool) -> Vec<u8> {
        let text = self.text();
        let mut out = format!("HTTP/1.1 {} {}\r\n", self.status, phrase(self.status));
        if self.status == 407 {
            let _ = write!(out, "Proxy-Authenticate: {CHALLENGE}\r\n");
        }
        let _ = write!(out, "Content-Type: {TEXT}\r\nContent-Length: {}\r\n", text.len());
        out.push_str(if close { "Connection: close\r\n\r\n" } else { "\r\n" });
        if with_body {
            out.push_str(&text);
        }
        out.into_bytes()
    }
}

fn phrase(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Refused")
}

#[cfg(test)]
mod tests;
