//! Values without a form of their own, where the key says that they are secret.

use std::path::Path;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};

use super::chance::{LONGEST, drawn, is_password, stands_for};
use super::finder::{Finder, best, quick};
use super::{Hit, MAX_LITERALS};

/// How keys of secrets end. The first few are for what people choose themselves.
const ENDS: [&str; 22] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "accesskey",
    "access_key",
    "access-key",
    "privatekey",
    "private_key",
    "private-key",
    "secretkey",
    "secret_key",
    "secret-key",
    "authkey",
    "auth_key",
    "auth-key",
    "credential",
    "authorization",
];
/// How far behind its key a value may end: a little more than the longest.
const REACH: usize = LONGEST + 64;
/// How many of them are passwords.
const CHOSEN: usize = 3;

/// Keys that end so and hold something public.
const PUBLIC: [&str; 12] = [
    "public_token",
    "csrf_token",
    "csrftoken",
    "page_token",
    "next_token",
    "nexttoken",
    "pagetoken",
    "continuation_token",
    "continuationtoken",
    "cancellationtoken",
    "sync_token",
    "idempotency_token",
];

/// Whether a value must stand between quotes to be one.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Quoting {
    /// In code, what is not quoted is an expression.
    Needed,
    /// In settings, it is the value.
    Optional,
    /// Within a longer text (a word of a command, an address), it ends where the text may go on.
    Within,
}

impl Quoting {
    pub(super) fn of(path: &Path) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
        let name = name.unwrap_or_default();
        let plain = ["env", "ini", "cfg", "conf", "properties", "yaml", "yml", "sh", "netrc"];
        let end = name.rsplit('.').next().unwrap_or_default();
        if name.starts_with(".env") || plain.contains(&end) || name == "dockerfile" {
            Self::Optional
        } else {
            Self::Needed
        }
    }
}

/// Further ends of keys, where a key is one of a manifest's own: elsewhere too much is called so.
const OWN_ENDS: [&str; 4] = ["_key", "-key", "_pat", "-pat"];
/// The same, of what people choose themselves.
const OWN_CHOSEN: [&str; 4] = ["_pass", "-pass", "_pwd", "-pwd"];
/// Keys that end so and are known to everybody, or only name something.
const OWN_PUBLIC: [&str; 10] = [
    "public_key",
    "public-key",
    "publishable_key",
    "publishable-key",
    "cache_key",
    "cache-key",
    "primary_key",
    "sort_key",
    "partition_key",
    "idempotency-key",
];

static FINDER: Finder = Finder::new(|| quick(build), || best(build));

fn build(builder: &mut AhoCorasickBuilder) -> AhoCorasick {
    builder
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostLongest)
        .build(ENDS)
        .expect("the table is small and fixed")
}

pub(super) fn scan(text: &[u8], quoting: Quoting, hits: &mut Vec<Hit>) {
    let mut count = 0;
    for key in FINDER.reading(text.len()).find_iter(text) {
        let before = text[..key.end()].iter().rev().take(64).take_while(|b| name(**b)).count();
        if is_public(&text[key.end() - before..key.end()]) {
            continue;
        }
        let rest = &text[key.end()..text.len().min(key.end() + REACH)];
        let Some((at, value)) = assigned(rest, quoting) else { continue };
        if is_secret(value, key.pattern().as_usize() < CHOSEN) {
            let start = key.end() + at;
            let range = start..start + value.len();
            hits.push(Hit { rule: "secret-in-key", range, public: 0 });
            count += 1;
            if count == MAX_LITERALS {
                break;
            }
        }
    }
}

/// One value by itself.
pub(super) fn value(text: &[u8], key: &str, hits: &mut Vec<Hit>) {
    let Some(chosen) = says_secret(key) else { return };
    // A scheme stands before the credentials of a header (RFC 9110, section 11.4).
    let start = match text.iter().position(|b| *b == b' ') {
        Some(at) if is_scheme(&text[..at]) => at + 1,
        _ => 0,
    };
    if is_secret(&text[start..], chosen) {
        hits.push(Hit { rule: "secret-in-key", range: start..text.len(), public: 0 });
    }
}

/// Whether a key of a manifest says that its value is secret, and if so, whether people choose it.
/// Numbers at its end only tell several apart.
fn says_secret(key: &str) -> Option<bool> {
    let bare = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let key = if bare.len() < key.len() { bare.trim_end_matches(['_', '-']) } else { key };
    if is_public(key.as_bytes()) {
        return None;
    }
    if let Some(end) =
        FINDER.reading(key.len()).find_iter(key).last().filter(|end| end.end() == key.len())
    {
        return Some(end.pattern().as_usize() < CHOSEN);
    }
    let lower = key.to_ascii_lowercase();
    let ends = |of: &[&str]| of.iter().any(|end| lower.ends_with(end));
    let chosen = ends(&OWN_CHOSEN);
    (chosen || ends(&OWN_ENDS) && !ends(&OWN_PUBLIC)).then_some(chosen)
}

/// Assignments within a longer text: `-e NAME=value`, `Name: value`, `?name=value&`, and comments.
pub(super) fn within(text: &[u8], own: bool, hits: &mut Vec<Hit>) {
    let mut count = 0;
    let marks = text.iter().enumerate().filter(|(_, b)| matches!(b, b'=' | b':'));
    for at in marks.map(|(at, _)| at) {
        let before = &text[..at];
        let skipped = before.iter().rev().take(4).take_while(|b| b"\"'`\\ ".contains(b)).count();
        let before = &before[..at - skipped];
        let length = before.iter().rev().take(64).take_while(|b| name(**b)).count();
        let key = String::from_utf8_lossy(&before[before.len() - length..]);
        let mark = before[..before.len() - length].last();
        let parameter = key.eq_ignore_ascii_case("key") && matches!(mark, Some(b'?' | b'&'));
        let classic = FINDER
            .reading(key.len())
            .find_iter(&*key)
            .last()
            .is_some_and(|end| end.end() == key.len());
        if !(classic || own || parameter) {
            continue;
        }
        let Some(chosen) = says_secret(&key).or(parameter.then_some(false)) else { continue };
        let rest = &text[at..text.len().min(at + REACH)];
        let Some((start, value)) = assigned(rest, Quoting::Within) else { continue };
        // The scheme of a header.
        let end = start + value.len();
        let (start, value) = match rest.get(end) {
            Some(b' ') if is_scheme(value) => (end + 1, unquoted(&rest[end + 1..])),
            _ => (start, value),
        };
        if is_secret(value, chosen) {
            let start = at + start;
            hits.push(Hit { rule: "secret-in-key", range: start..start + value.len(), public: 0 });
            count += 1;
            if count == MAX_LITERALS {
                break;
            }
        }
    }
}

/// The scheme of a header whose credentials have no shape of their own.
fn is_scheme(word: &[u8]) -> bool {
    let shaped = [&b"basic"[..], b"bearer"].iter().any(|known| word.eq_ignore_ascii_case(known));
    !word.is_empty() && word.iter().all(u8::is_ascii_alphabetic) && !shaped
}

/// A value without quotes around it, within a longer text.
fn unquoted(rest: &[u8]) -> &[u8] {
    let end = |b: &u8| b.is_ascii_whitespace() || b"\"'`&;,#|<>(){}[]\\".contains(b);
    &rest[..rest.iter().position(end).unwrap_or(rest.len())]
}

fn name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
}

fn is_public(key: &[u8]) -> bool {
    let lower = key.to_ascii_lowercase();
    PUBLIC.iter().any(|public| lower.ends_with(public.as_bytes()))
}

fn is_secret(value: &[u8], chosen: bool) -> bool {
    (drawn(value) || chosen && is_password(value)) && !stands_for(value)
}

/// The value that is assigned right after a key, and where it begins: `KEY = "value"`,
/// `"key": "value"`, `--key=value`.
fn assigned(rest: &[u8], quoting: Quoting) -> Option<(usize, &[u8])> {
    let mut at = 0;
    let skip = |at: &mut usize, of: &[u8], most: usize| {
        let count = rest[*at..].iter().take(most).take_while(|b| of.contains(b)).count();
        *at += count;
        count
    };
    skip(&mut at, b"\"'`]", 2);
    skip(&mut at, b" \t", 16);
    if skip(&mut at, b":=", 2) == 0 {
        return None;
    }
    skip(&mut at, b">", 1);
    skip(&mut at, b" \t", 16);
    // Within a string of another language, such as JSON in TOML, quotes are escaped.
    if quoting == Quoting::Within && rest[at..].starts_with(b"\\\"") {
        let start = at + 2;
        return Some((start, unquoted(&rest[start..])));
    }
    let quote = rest.get(at).copied().filter(|b| b"\"'`".contains(b));
    let value = match quote {
        Some(quote) => {
            at += 1;
            let end = rest[at..].iter().position(|b| *b == quote || *b == b'\n')?;
            if rest[at + end] == quote { &rest[at..at + end] } else { return None }
        }
        None if quoting == Quoting::Optional => {
            let end = rest[at..].iter().position(u8::is_ascii_whitespace);
            &rest[at..end.map_or(rest.len(), |end| at + end)]
        }
        None if quoting == Quoting::Within => unquoted(&rest[at..]),
        None => return None,
    };
    Some((at, value))
}
