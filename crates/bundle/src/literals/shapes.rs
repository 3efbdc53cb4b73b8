//! Secrets that are known by their shape: private keys, signed tokens, passwords in addresses,
//! authorisation headers.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder};

use super::chance::{drawn, entropy, stands_for, stands_for_token};
use super::finder::{Finder, best, quick};
use super::{Hit, MAX_LITERALS};

const MARKS: [&str; 5] = ["-----BEGIN ", "eyJ", "://", "Bearer ", "Basic "];

static FINDER: Finder = Finder::new(|| quick(build), || best(build));

fn build(builder: &mut AhoCorasickBuilder) -> AhoCorasick {
    builder.ascii_case_insensitive(true).build(MARKS).expect("the table is small and fixed")
}

/// How far after a mark something is looked for.
const REACH: usize = 8192;

pub(super) fn scan(text: &[u8], hits: &mut Vec<Hit>) {
    let found = FINDER.reading(text.len()).find_iter(text).filter_map(|mark| {
        let (start, after) = (mark.start(), mark.end());
        let rest = &text[after..text.len().min(after + REACH)];
        match mark.pattern().as_usize() {
            0 => private_key(start, after, rest),
            1 => signed(text, start),
            2 => address(after, rest),
            3 => bearer(after, rest),
            _ => basic(after, rest),
        }
    });
    hits.extend(found.take(MAX_LITERALS));
}

fn run(rest: &[u8], of: impl Fn(u8) -> bool) -> &[u8] {
    &rest[..rest.iter().take_while(|b| of(**b)).count()]
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
}

/// PEM (RFC 7468): the label of a private key, and enough of a body behind it to be one.
fn private_key(start: usize, after: usize, rest: &[u8]) -> Option<Hit> {
    let label = run(rest, |b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b' ');
    let private = label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
    let body = rest[label.len()..].strip_prefix(b"-----").filter(|_| private)?;
    // A line end, written out or not; the header lines of older forms stand before the body.
    let longest = body[..body.len().min(600)]
        .split(|b| !is_base64(*b))
        .max_by_key(|part| part.len())
        .unwrap_or_default();
    if longest.len() < 40 || stands_for_token(longest) {
        return None;
    }
    let end = body
        .windows(9)
        .position(|part| part == b"-----END ")
        .unwrap_or_else(|| body.iter().take_while(|b| is_base64(**b) || **b == b'\n').count());
    let public = b"-----BEGIN ".len() + label.len() + 5;
    Some(Hit { rule: "private-key", range: start..after + label.len() + 5 + end, public })
}

/// A JWS in compact form (RFC 7515, section 7.1): two JSON objects in base64url and a signature.
fn signed(text: &[u8], start: usize) -> Option<Hit> {
    // In the wrong case it is no JSON, and within a longer word it is chance.
    let before = start.checked_sub(1).map(|at| text[at]);
    if !text[start..].starts_with(b"eyJ") || before.is_some_and(|b| is_base64url(b) || b == b'.') {
        return None;
    }
    let rest = &text[start..text.len().min(start + REACH)];
    let header = run(rest, is_base64url);
    let rest = rest[header.len()..].strip_prefix(b".")?;
    let claims = run(rest, is_base64url);
    let rest = rest[claims.len()..].strip_prefix(b".")?;
    let signature = run(rest, is_base64url);
    let real = header.len() >= 17
        && claims.starts_with(b"eyJ")
        && claims.len() >= 10
        && signature.len() >= 27
        && !stands_for_token(signature)
        // The example of RFC 7519 and of jwt.io.
        && !signature.starts_with(b"SflKxwRJSMeKKF2QT4")
        && !signature.starts_with(b"dBjftJeZ4CVP-mB92K27uhbUJU1p1r");
    let length = header.len() + claims.len() + signature.len() + 2;
    real.then(|| Hit { rule: "signed-token", range: start..start + length, public: 3 })
}

/// `scheme://user:password@host` (RFC 3986, section 3.2.1).
fn address(after: usize, rest: &[u8]) -> Option<Hit> {
    let authority = run(&rest[..rest.len().min(512)], |b| {
        b.is_ascii_graphic() && !b"/?#\"'<>`\\{}()[],".contains(&b)
    });
    let at = authority.iter().rposition(|b| *b == b'@')?;
    let colon = authority[..at].iter().position(|b| *b == b':')?;
    let (user, password) = (&authority[..colon], &authority[colon + 1..at]);
    let host = &authority[at + 1..];
    let example = [&b"example"[..], b"localhost", b"127.0.0.1", b"test", b"invalid"]
        .iter()
        .any(|word| host.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)));
    let real = password.len() >= 8
        && password != user
        && !host.is_empty()
        && !example
        && !password.iter().any(|b| b"$*%".contains(b))
        && password.iter().any(u8::is_ascii_digit)
        && password.iter().any(u8::is_ascii_alphabetic)
        && entropy(password) >= 2.75
        && !stands_for(password);
    let start = after + colon + 1;
    real.then(|| Hit { rule: "password-in-address", range: start..after + at, public: 0 })
}

/// `Bearer` and a token (RFC 6750, section 2.1).
fn bearer(after: usize, rest: &[u8]) -> Option<Hit> {
    let token = run(rest, |b| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b));
    let real = drawn(token) && !stands_for(token);
    real.then(|| Hit { rule: "bearer-token", range: after..after + token.len(), public: 0 })
}

/// `Basic`, and user and password in base64 (RFC 7617, section 2).
fn basic(after: usize, rest: &[u8]) -> Option<Hit> {
    let token = run(rest, is_base64);
    if !(12..=512).contains(&token.len()) || !token.len().is_multiple_of(4) {
        return None;
    }
    let plain = decode(token)?;
    let colon = plain.iter().position(|b| *b == b':')?;
    let password = &plain[colon + 1..];
    let real = plain.iter().all(u8::is_ascii_graphic)
        && password.len() >= 6
        && password != &plain[..colon]
        && !stands_for(password);
    real.then(|| Hit { rule: "basic-credentials", range: after..after + token.len(), public: 0 })
}

/// Base64 (RFC 4648, section 4), as far as it goes.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in text.iter().take_while(|b| **b != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6 | u32::from(value)) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from(held >> bits & 0xff).ok()?);
        }
    }
    Some(out)
}
