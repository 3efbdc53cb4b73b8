//! Values without a form of their own, where the key says that they are secret.

use std::path::Path;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::chance::{drawn, is_password, stands_for};
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

static FINDER: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostLongest)
        .build(ENDS)
        .expect("the table is small and fixed")
});

pub(super) fn scan(text: &[u8], quoting: Quoting, hits: &mut Vec<Hit>) {
    let mut count = 0;
    for key in FINDER.find_iter(text) {
        let before = text[..key.end()].iter().rev().take(64).take_while(|b| name(**b)).count();
        if is_public(&text[key.end() - before..key.end()]) {
            continue;
        }
        let rest = &text[key.end()..text.len().min(key.end() + 1024)];
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
    let Some(end) = FINDER.find_iter(key).last().filter(|end| end.end() == key.len()) else {
        return;
    };
    if !is_public(key.as_bytes()) && is_secret(text, end.pattern().as_usize() < CHOSEN) {
        hits.push(Hit { rule: "secret-in-key", range: 0..text.len(), public: 0 });
    }
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
        None => return None,
    };
    Some((at, value))
}
