//! HTTP/1.1 as anybody may write it: nothing is added, nothing is mended.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::output::PATIENCE;

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// HTTP status; 0 when the connection was closed without one.
    pub status: u16,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, out of its chunks.
    pub body: String,
}

impl Answered {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The JSON-RPC message in it: the body, or the last event of a stream.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    #[must_use]
    pub fn message(&self) -> Value {
        let mut events = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        let last = events.rfind(|data| !data.trim().is_empty());
        let text = last.unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|e| panic!("no JSON ({e}): {self:?}"))
    }
}

/// A request as it goes on the wire. Headers are sent as they are given, and in this order.
#[must_use]
pub fn raw(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    format!("{text}\r\n{body}")
}

/// A connection to a gateway that a case started.
///
/// # Errors
/// When nobody listens there.
#[expect(clippy::disallowed_methods, reason = "loopback, from outside the program")]
pub fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect(address)
}

/// Sends these bytes over a connection of their own, and reads one answer.
///
/// # Panics
/// When nobody listens there, or the answer does not come.
#[track_caller]
#[must_use]
pub fn exchange(address: SocketAddr, request: &str) -> Answered {
    let mut stream = connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    stream.write_all(request.as_bytes()).expect("it reads");
    read(&mut BufReader::new(stream))
}

/// Reads one answer.
///
/// # Panics
/// When it does not come.
#[track_caller]
pub fn read(reader: &mut BufReader<TcpStream>) -> Answered {
    let (status, headers) = head(reader);
    let mut answered = Answered { status, headers, body: String::new() };
    let mut body = Vec::new();
    if answered.header("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = chunk(reader) {
            body.extend(chunk);
        }
    } else if let Some(length) = answered.header("content-length") {
        body.resize(length.parse().expect("a length is a number"), 0);
        reader.read_exact(&mut body).expect("the body comes");
    }
    answered.body = String::from_utf8_lossy(&body).into_owned();
    answered
}

/// Reads an answer's status and headers.
///
/// # Panics
/// When they do not come.
#[track_caller]
pub fn head(reader: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer comes");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            return (status, headers);
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

/// The next chunk of a body. `None` at its end.
pub fn chunk(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut size = String::new();
    if reader.read_line(&mut size).ok()? == 0 {
        return None;
    }
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    let mut bytes = vec![0; size + 2];
    reader.read_exact(&mut bytes).ok()?;
    bytes.truncate(size);
    (size > 0).then_some(bytes)
}
