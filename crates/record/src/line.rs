//! One line of evidence: RFC 8785 JSON, chained by SHA-256.
//!
//! `{"at":"<RFC 3339 UTC, microseconds>","event":{"type":…},"prev":"sha256:…","run":"…","seq":N}`

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_identity::{Did, Signer};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{Error, Event};

/// Longest line that is written or read, in bytes without the line end.
pub(crate) const MAX_LINE: usize = 1 << 20;

/// What the frame around an event takes at most.
const FRAME: usize = 512;

const LINE_DOMAIN: &[u8] = b"ringfence record line v1\0";
const GENESIS_DOMAIN: &[u8] = b"ringfence record genesis v1\0";
const COMMIT_DOMAIN: &[u8] = b"ringfence record commit v1\0";

pub(crate) type Hash = [u8; 32];

/// What the first line of a run's file points back to.
pub(crate) fn genesis(run: &str) -> Hash {
    Sha256::new().chain_update(GENESIS_DOMAIN).chain_update(run).finalize().into()
}

/// The hash of a line, given without its line end.
pub(crate) fn hash(line: &[u8]) -> Hash {
    Sha256::new().chain_update(LINE_DOMAIN).chain_update(line).finalize().into()
}

/// `sha256:<64 lower-case hex>`.
pub(crate) fn text(hash: &Hash) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    for byte in hash {
        write!(text, "{byte:02x}").expect("a String takes any text");
    }
    text
}

/// The time as every line has it.
pub(crate) fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// An event as RFC 8785 JSON.
pub(crate) fn encode(event: &Event) -> Result<Vec<u8>, Error> {
    let bytes = serde_json_canonicalizer::to_vec(event)
        .expect("an event holds text and whole numbers only, which always have a canonical form");
    if bytes.len() > MAX_LINE - FRAME { Err(Error::TooLarge(bytes.len())) } else { Ok(bytes) }
}

/// Where the next line goes: the writer's side of the chain.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    run: String,
    /// Number of the next line.
    pub(crate) seq: u64,
    /// Hash of the last line.
    pub(crate) head: Hash,
}

impl Chain {
    /// The chain of a run without lines.
    pub(crate) fn new(run: &str) -> Self {
        Self { run: run.to_owned(), seq: 0, head: genesis(run) }
    }

    /// The chain after a parsed line.
    pub(crate) fn after(line: &Line) -> Self {
        Self { run: line.run.clone(), seq: line.seq + 1, head: line.hash }
    }

    /// Adds an encoded event's line and gives its number.
    pub(crate) fn append(&mut self, out: &mut Vec<u8>, at: &str, event: &[u8]) -> u64 {
        let start = out.len();
        frame(out, at, event, &self.head, &self.run, self.seq);
        self.head = hash(&out[start..]);
        out.push(b'\n');
        self.seq += 1;
        self.seq - 1
    }

    /// Adds the line that signs everything before it.
    pub(crate) fn commit(&mut self, out: &mut Vec<u8>, at: &str, signer: &Signer) -> u64 {
        let mut message = COMMIT_DOMAIN.to_vec();
        let key = signer.did().as_str();
        frame(&mut message, at, &commit_event(key, ""), &self.head, &self.run, self.seq);
        let signature = STANDARD.encode(signer.sign(&message));
        self.append(out, at, &commit_event(key, &signature))
    }
}

fn frame(out: &mut Vec<u8>, at: &str, event: &[u8], prev: &Hash, run: &str, seq: u64) {
    out.extend_from_slice(b"{\"at\":\"");
    out.extend_from_slice(at.as_bytes());
    out.extend_from_slice(b"\",\"event\":");
    out.extend_from_slice(event);
    out.extend_from_slice(b",\"prev\":\"");
    out.extend_from_slice(text(prev).as_bytes());
    out.extend_from_slice(b"\",\"run\":\"");
    out.extend_from_slice(run.as_bytes());
    out.extend_from_slice(b"\",\"seq\":");
    out.extend_from_slice(seq.to_string().as_bytes());
    out.push(b'}');
}

fn commit_event(key: &str, signature: &str) -> Vec<u8> {
    format!("{{\"key\":\"{key}\",\"signature\":\"{signature}\",\"type\":\"commit\"}}").into_bytes()
}

/// A line as it was read, in canonical form.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) at: String,
    pub(crate) event: Value,
    pub(crate) prev: Hash,
    pub(crate) run: String,
    pub(crate) seq: u64,
    pub(crate) hash: Hash,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    at: String,
    event: Value,
    prev: String,
    run: String,
    seq: u64,
}

/// Why bytes are not a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Not a JSON object with the five keys.
    NotALine,
    /// A line, but not in its one canonical spelling.
    NotCanonical,
}

impl Line {
    /// Reads a line, given without its line end: the same bytes must come out when it is written
    /// anew, so that duplicate keys, other spellings and trailing bytes are refused.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_LINE {
            return Err(Malformed::NotALine);
        }
        let frame: Frame = serde_json::from_slice(bytes).map_err(|_| Malformed::NotALine)?;
        let event = serde_json_canonicalizer::to_vec(&frame.event).ok();
        let prev = parse_hash(&frame.prev).ok_or(Malformed::NotALine)?;
        let event = event.ok_or(Malformed::NotCanonical)?;
        let mut again = Vec::with_capacity(bytes.len());
        self::frame(&mut again, &frame.at, &event, &prev, &frame.run, frame.seq);
        let time: Option<jiff::Timestamp> = frame.at.parse().ok();
        if again != bytes || time.is_none_or(|time| format!("{time:.6}") != frame.at) {
            return Err(Malformed::NotCanonical);
        }
        let Frame { at, event, run, seq, .. } = frame;
        Ok(Self { at, event, prev, run, seq, hash: hash(bytes) })
    }

    /// The event's `type`.
    pub(crate) fn kind(&self) -> &str {
        self.event.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The event, `None` when it is not one that this program knows.
    pub(crate) fn event(&self) -> Option<Event> {
        Event::deserialize(&self.event).ok()
    }

    /// For a commit line: who claims to have signed it, and whether that key really did.
    pub(crate) fn commit(&self) -> Option<(String, bool)> {
        let Some(Event::Commit { key, signature }) = self.event() else { return None };
        let valid = || {
            // Another key beside the three would not be covered by the signature.
            self.event.as_object().filter(|keys| keys.len() == 3)?;
            let signature: [u8; 64] = STANDARD.decode(signature).ok()?.try_into().ok()?;
            let did = Did::parse(&key).ok()?;
            let mut message = COMMIT_DOMAIN.to_vec();
            frame(&mut message, &self.at, &commit_event(&key, ""), &self.prev, &self.run, self.seq);
            did.verify(&message, &signature).ok()
        };
        let valid = valid().is_some();
        Some((key, valid))
    }
}

pub(crate) fn parse_hash(text: &str) -> Option<Hash> {
    let digits = text.strip_prefix("sha256:")?.as_bytes();
    let mut hash = Hash::default();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(hash)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
