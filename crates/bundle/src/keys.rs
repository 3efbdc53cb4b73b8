//! The written form of Ed25519 public keys: multibase `z6Mk…` and `did:key:z6Mk…`.

use crate::text;

#[cfg(test)]
mod tests;

/// Characters of an Ed25519 key in multibase base58btc: `z` and 34 bytes that begin with 0xed01.
const LENGTH: usize = 48;

/// Checks the form of a `did:key` for an Ed25519 key (did:key method, W3C CCG). The bytes are
/// checked by whoever uses the key.
///
/// # Errors
/// A sentence that says what is expected.
pub fn check_did(given: &str) -> Result<&str, String> {
    if given.strip_prefix("did:key:").is_some_and(is_key) {
        return Ok(given);
    }
    Err(format!(
        "`{}` is not `did:key:z6Mk…`, an Ed25519 key of {LENGTH} characters after `did:key:`",
        text::shown(given)
    ))
}

/// Checks the form of a bare key, `z6Mk…`.
///
/// # Errors
/// A sentence that says what is expected.
pub fn check_key(given: &str) -> Result<&str, String> {
    if is_key(given) {
        return Ok(given);
    }
    Err(format!("`{}` is not `z6Mk…`, an Ed25519 key of {LENGTH} characters", text::shown(given)))
}

fn is_key(text: &str) -> bool {
    let base58 = |b: u8| b.is_ascii_alphanumeric() && !b"0OIl".contains(&b);
    text.len() == LENGTH && text.starts_with("z6Mk") && text.bytes().all(base58)
}
