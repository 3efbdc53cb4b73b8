//! Splits an event stream (HTML, server-sent events), from a server that is not trusted to keep to it.

use std::time::Duration;

use http::HeaderValue;

/// Bytes of an event's id, at most: a longer one is not kept.
const ID: usize = 1024;
/// How long to wait before asking for the rest of a stream, when the server did not say.
const RETRY: Duration = Duration::from_secs(1);
/// However soon a server wants to be asked again, it is not sooner than this.
const RETRY_SOON: Duration = Duration::from_millis(100);
/// Nor later than this.
const RETRY_LATE: Duration = Duration::from_secs(600);

/// Where a stream is, and how to go on when it breaks.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// What `Last-Event-ID` says.
    pub(super) last: Option<HeaderValue>,
    pub(super) retry: Duration,
}

impl Default for Place {
    fn default() -> Self {
        Self { last: None, retry: RETRY }
    }
}

/// An event was larger than it may be.
#[derive(Debug)]
pub(super) struct TooLarge;

/// One stream. Lines end in CR, LF or both; an empty line ends an event.
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Events of other kinds than messages are not ours.
    other: bool,
    after_cr: bool,
    begun: bool,
    limit: usize,
}

impl Events {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            other: false,
            after_cr: false,
            begun: false,
            limit,
        }
    }

    /// Bytes of an event that has begun.
    pub(super) fn pending(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Takes bytes up to the end of an event that has data, and gives that data. What is left stands
    /// in `bytes`.
    pub(super) fn take(
        &mut self,
        bytes: &mut &[u8],
        place: &mut Place,
    ) -> Result<Option<Vec<u8>>, TooLarge> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                *bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.data.len() + part.len() > self.limit {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else {
                *bytes = &[];
                break;
            };
            self.after_cr = bytes[end] == b'\r';
            *bytes = &bytes[end + 1..];
            if let Some(data) = self.end_line(place) {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    fn end_line(&mut self, place: &mut Place) -> Option<Vec<u8>> {
        let whole = std::mem::take(&mut self.line);
        let mut line = whole.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            let other = std::mem::take(&mut self.other);
            // A priming event has an empty `data`.
            return (!other && !data.trim_ascii().is_empty()).then_some(data);
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.other = !matches!(value, b"" | b"message"),
            b"id" => {
                // What cannot stand in a header is no place to go on from.
                let id = (!value.is_empty() && value.len() <= ID).then_some(value);
                place.last = id.and_then(|id| HeaderValue::from_bytes(id).ok());
            }
            b"retry" => {
                let text = std::str::from_utf8(value).ok();
                let digits = text.filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                if let Some(digits) = digits.filter(|digits| !digits.is_empty()) {
                    let wait = digits.parse().map_or(RETRY_LATE, Duration::from_millis);
                    place.retry = wait.clamp(RETRY_SOON, RETRY_LATE);
                }
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Events, Place};

    fn read(text: &str, at_once: usize) -> (Vec<String>, Place) {
        let (mut events, mut place) = (Events::new(64), Place::default());
        let mut found = Vec::new();
        for mut bytes in text.as_bytes().chunks(at_once) {
            while let Some(data) = events.take(&mut bytes, &mut place).unwrap() {
                found.push(String::from_utf8(data).unwrap());
            }
        }
        (found, place)
    }

    fn split(text: &str) -> Vec<String> {
        let (found, _) = read(text, 1);
        for at_once in 2..text.len() {
            assert_eq!(read(text, at_once).0, found, "{at_once}");
        }
        found
    }

    #[test]
    fn splits_events() {
        assert_eq!(split("data: {}\n\n"), ["{}\n"]);
        assert_eq!(
            split("id: 1\r\nevent: message\r\ndata:{\"a\":1}\r\n\r\ndata: 2\r\n\r\n"),
            ["{\"a\":1}\n", "2\n"]
        );
        assert_eq!(split("data: a\rdata: b\r\r"), ["a\nb\n"]);
        assert_eq!(split(": keep-alive\n\nid: 0\ndata:\n\nretry: 3\n\n"), [""; 0]);
        assert_eq!(split("data: unfinished\n"), [""; 0]);
        assert_eq!(split("\u{feff}data: marked\n\n"), ["marked\n"]);
        assert_eq!(split("event: ping\ndata: 1\n\nevent:\ndata: 2\n\n"), ["2\n"]);
    }

    #[test]
    fn bounds_an_event() {
        let (mut events, mut place) = (Events::new(64), Place::default());
        assert!(events.take(&mut &[b'x'; 64][..], &mut place).is_ok());
        assert!(events.take(&mut &b"x"[..], &mut place).is_err());
        let mut events = Events::new(64);
        let many = b"data: 0123456789\n".repeat(10);
        assert!(events.take(&mut &many[..], &mut place).is_err());
    }

    #[test]
    fn knows_where_it_is() {
        let place = |text| read(text, 1024).1;
        let at = |text| place(text).last.map(|id| id.as_bytes().to_vec());
        assert_eq!(at("id: a-1\ndata:\n\n"), Some(b"a-1".to_vec()));
        assert_eq!(at("id: é\n\n"), Some("é".as_bytes().to_vec()));
        for lost in ["id: a\nid: b\0c\n\n", "id: a\nid: b\x1bc\n\n", "id: a\nid\n\n"] {
            assert_eq!(at(lost), None, "{lost:?}");
        }
        assert_eq!(place("retry: 500\n").retry, Duration::from_millis(500));
        assert_eq!(place("retry: 0\n").retry, Duration::from_millis(100));
        assert_eq!(place("retry: 99999999999999999999999\n").retry, Duration::from_secs(600));
        assert_eq!(place("retry: -1\nretry: x\nretry:\n").retry, Duration::from_secs(1));
    }
}
