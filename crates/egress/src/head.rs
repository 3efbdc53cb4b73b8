//! The head of one request, read strictly from raw bytes.
//!
//! A general HTTP server repairs what it reads (bare line feeds, two lengths, a length beside a
//! transfer coding). Here the raw lines are looked at before anything can be repaired: what two
//! parsers could read in two ways is refused (RFC 9112, sections 2.2, 5 and 6.3).

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Longest head in bytes, request line and final empty line included.
pub(crate) const MAX_HEAD: usize = 64 * 1024;
/// Most header lines.
pub(crate) const MAX_LINES: usize = 128;

/// A head that cannot be read in one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HeadError(pub(crate) &'static str);

/// How the body that follows is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    Empty,
    /// So many bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// A request's head.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    /// The request target as it stood.
    pub(crate) target: String,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub(crate) minor: u8,
    pub(crate) headers: HeaderMap,
    pub(crate) framing: Framing,
}

/// Looks for the end of the head from `from` on; bytes before it were seen in an earlier call.
/// Gives the head's length once it is there.
pub(crate) fn find_end(buffer: &[u8], from: usize) -> Result<Option<usize>, HeadError> {
    if let Some(first) = buffer.first()
        && !first.is_ascii_alphabetic()
    {
        return Err(HeadError("this is not an HTTP request"));
    }
    // Two bytes back, so that a line end cut in two is seen whole.
    for at in from.saturating_sub(2)..buffer.len() {
        if at >= MAX_HEAD {
            return Err(HeadError("the head of the request is longer than 64 KiB"));
        }
        match buffer[at] {
            0 => return Err(HeadError("a NUL byte stands in the head")),
            b'\n' if at == 0 || buffer[at - 1] != b'\r' => {
                return Err(HeadError("a line ends without a carriage return"));
            }
            b'\n' if buffer[..at].ends_with(b"\r\n\r") => return Ok(Some(at + 1)),
            // A carriage return must be followed by a line feed; the next byte may not be here yet.
            b'\r' if buffer.get(at + 1).is_some_and(|&next| next != b'\n') => {
                return Err(HeadError("a carriage return stands inside a line"));
            }
            _ => {}
        }
    }
    Ok(None)
}

impl Head {
    /// Parses a whole head, as [`find_end`] measured it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, HeadError> {
        let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
        let mut parsed = httparse::Request::new(&mut lines);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err(HeadError("the head of the request is not whole")),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(HeadError("the request has more than 128 header lines"));
            }
            Err(httparse::Error::Version) => {
                return Err(HeadError("this is neither HTTP/1 nor the beginning of HTTP/2"));
            }
            Err(_) => return Err(HeadError("the request line or a header line is malformed")),
        }
        let malformed = HeadError("the request line or a header line is malformed");
        let (Some(method), Some(target), Some(minor)) =
            (parsed.method, parsed.path, parsed.version)
        else {
            return Err(malformed);
        };
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| malformed)?;
        let mut headers = HeaderMap::with_capacity(parsed.headers.len());
        for line in parsed.headers.iter() {
            let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| malformed)?;
            let value = HeaderValue::from_bytes(line.value).map_err(|_| malformed)?;
            headers.append(name, value);
        }
        let framing = framing(&headers, minor)?;
        Ok(Self { method, target: target.to_owned(), minor, headers, framing })
    }

    /// Whether the client wants the connection kept for another request.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.minor == 1
            && !["connection", "proxy-connection"].iter().any(|name| {
                self.headers.get_all(*name).iter().any(|value| {
                    value
                        .as_bytes()
                        .split(|byte| *byte == b',')
                        .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
                })
            })
    }
}

/// Refuses every combination that has been used to make two parsers see two messages.
pub(crate) fn framing(headers: &HeaderMap, minor: u8) -> Result<Framing, HeadError> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (codings.next(), lengths.next()) {
        (None, None) => Ok(Framing::Empty),
        (Some(_), Some(_)) => Err(HeadError("both a length and a transfer coding are given")),
        (Some(coding), None) => {
            if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError("the only transfer coding allowed is `chunked`, once"));
            }
            if minor == 0 {
                return Err(HeadError("HTTP/1.0 has no transfer coding"));
            }
            Ok(Framing::Chunked)
        }
        (None, Some(length)) => {
            if lengths.next().is_some() {
                return Err(HeadError("more than one length is given"));
            }
            let digits = length
                .to_str()
                .ok()
                .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
            digits
                .and_then(|digits| digits.parse().ok())
                .map(Framing::Length)
                .ok_or(HeadError("the length is not a number"))
        }
    }
}

#[cfg(test)]
mod tests;
