//! The spellings in which one value may come back.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// A spelling, zeroed when dropped.
pub(crate) type Bytes = Zeroizing<Vec<u8>>;

/// Every spelling of a value that is searched for as it stands: the value, the value without the
/// white space around it, with `+` for spaces, what base64 (RFC 4648, sections 4 and 5) makes of it,
/// alone or anywhere in a longer text, and its bytes in hexadecimal, in either case. Percent encoding and JSON escapes are undone in what
/// is searched instead, since they have many spellings.
pub(crate) fn spellings(value: &str) -> Vec<Bytes> {
    let mut found: Vec<Bytes> = Vec::new();
    let mut add = |bytes: Vec<u8>| {
        let bytes = Zeroizing::new(bytes);
        if bytes.len() >= crate::MIN_BYTES && !found.contains(&bytes) {
            found.push(bytes);
        }
    };
    add(value.as_bytes().to_vec());
    add(value.trim().as_bytes().to_vec());
    if value.contains(' ') {
        add(value.replace(' ', "+").into_bytes());
    }
    for digits in [b"0123456789abcdef", b"0123456789ABCDEF"] {
        add(value
            .bytes()
            .flat_map(|b| [digits[usize::from(b >> 4)], digits[usize::from(b & 15)]])
            .collect());
    }
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        add(engine.encode(value).into_bytes());
        for before in 0..3 {
            add(aligned(engine, value.as_bytes(), before));
        }
    }
    found
}

/// The base64 characters that a value has when `before` bytes (modulo 3) stand before it: those
/// that depend on nothing but the value.
fn aligned(engine: &base64::engine::GeneralPurpose, value: &[u8], before: usize) -> Vec<u8> {
    let mut bytes = Zeroizing::new(vec![0; before]);
    bytes.extend_from_slice(value);
    let text = Zeroizing::new(engine.encode(&*bytes).into_bytes());
    let first = (before * 8).div_ceil(6);
    let end = bytes.len() * 8 / 6;
    text[first..end].to_vec()
}
