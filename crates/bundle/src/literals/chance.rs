//! Whether a value looks drawn by chance, and whether it only stands for one.

use std::collections::BTreeSet;

/// Bytes of the longest value that is taken for a secret by its key.
pub(super) const LONGEST: usize = 512;

/// Words in a value that is written down to be replaced.
const STANDS_FOR: [&str; 34] = [
    "example",
    "xxxx",
    "your",
    "placeholder",
    "changeme",
    "change_me",
    "change-me",
    "dummy",
    "redacted",
    "insert",
    "sample",
    "fake",
    "notreal",
    "not-a-real",
    "not_a_real",
    "todo",
    "secret",
    "password",
    "passwd",
    "token",
    "api-key",
    "api_key",
    "apikey",
    "...",
    "***",
    "${",
    "{{",
    "<",
    "%(",
    "0123456",
    "1234567",
    "abcdefg",
    "deadbeef",
    "mock",
];

/// The same, less what an issuer's own prefix or a longer random value may hold.
const STANDS_FOR_TOKEN: [&str; 19] = [
    "example",
    "xxxx",
    "your",
    "placeholder",
    "changeme",
    "dummy",
    "redacted",
    "insert",
    "sample",
    "fake",
    "notreal",
    "...",
    "***",
    "${",
    "{{",
    "01234567",
    "12345678",
    "abcdefgh",
    "deadbeef",
];

/// Bits a byte, by how often each occurs (Shannon).
pub(super) fn entropy(value: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value {
        counts[usize::from(*byte)] += 1;
    }
    let length = value.len() as f64;
    let share = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / length);
    -share.map(|share| share * share.log2()).sum::<f64>()
}

/// Whether the body of a token with a form of its own is one that nobody was given.
pub(super) fn stands_for_token(body: &[u8]) -> bool {
    holds(body, &STANDS_FOR_TOKEN) || run(body) >= 6 || entropy(body) < 2.5
}

/// Whether a value only stands for one.
pub(super) fn stands_for(value: &[u8]) -> bool {
    holds(value, &STANDS_FOR) || run(value) >= 5
}

fn holds(value: &[u8], words: &[&str]) -> bool {
    let lower = value.to_ascii_lowercase();
    words.iter().any(|word| lower.windows(word.len()).any(|part| part == word.as_bytes()))
}

/// The longest run of one byte.
fn run(value: &[u8]) -> usize {
    value.chunk_by(|a, b| a == b).map(<[u8]>::len).max().unwrap_or(0)
}

#[derive(PartialEq, Clone, Copy)]
enum Class {
    Lower,
    Upper,
    Digit,
    Other,
}

fn class(byte: u8) -> Class {
    match byte {
        b'a'..=b'z' => Class::Lower,
        b'A'..=b'Z' => Class::Upper,
        b'0'..=b'9' => Class::Digit,
        _ => Class::Other,
    }
}

/// Whether a value of 16 bytes or more looks drawn by chance: many different bytes, digits among
/// letters, and no words. Names, paths, versions and identifiers are words.
pub(super) fn drawn(value: &[u8]) -> bool {
    if !(16..=LONGEST).contains(&value.len()) {
        return false;
    }
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"_.+/=~-".contains(b);
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = value.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let least = if value.len() < 24 { 2 } else { 1 };
    if !value.iter().all(token) || digits < least || letters < 3 {
        return false;
    }
    let enough = if value.len() < 20 { 3.1 } else { 3.3 };
    entropy(value) >= enough && !is_uuid(value) && changes(value) >= 0.25 && !words(value)
}

/// Whether a password by itself is no word: long, and of three kinds of characters.
pub(super) fn is_password(value: &[u8]) -> bool {
    if !(12..=256).contains(&value.len()) {
        return false;
    }
    let kinds = [Class::Lower, Class::Upper, Class::Digit, Class::Other];
    let kinds = kinds.iter().filter(|kind| value.iter().any(|b| class(*b) == **kind)).count();
    value.iter().all(u8::is_ascii_graphic)
        && kinds >= 3
        && entropy(value) >= 3.0
        && changes(value) >= 0.25
        && !words(value)
}

/// How often the kind of character changes, a byte. A capital before small letters is one word.
fn changes(value: &[u8]) -> f64 {
    let kinds: Vec<Class> = value.iter().map(|byte| class(*byte)).collect();
    let changes = kinds
        .windows(2)
        .filter(|pair| pair[0] != pair[1] && !(pair[0] == Class::Upper && pair[1] == Class::Lower));
    changes.count() as f64 / value.len() as f64
}

/// Whether it is words and short numbers with signs between them: `my-service_v2.example3`.
fn words(value: &[u8]) -> bool {
    let parts: Vec<&[u8]> = value.split(|b| !b.is_ascii_alphanumeric()).collect();
    let word = |part: &&[u8]| {
        let letters = part.iter().take_while(|b| b.is_ascii_alphabetic()).count();
        let plain = part[letters..].iter().all(u8::is_ascii_digit) && part.len() - letters <= 4;
        let upper = part[..letters].iter().skip(1).filter(|b| b.is_ascii_uppercase()).count();
        plain && (upper == 0 || upper + 1 == letters)
    };
    parts.len() > 2 && parts.iter().filter(|part| word(part)).count() * 4 >= parts.len() * 3
}

fn is_uuid(value: &[u8]) -> bool {
    let dashes: BTreeSet<usize> =
        value.iter().enumerate().filter(|(_, b)| **b == b'-').map(|(at, _)| at).collect();
    value.len() == 36
        && dashes == BTreeSet::from([8, 13, 18, 23])
        && value.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-')
}
