//! Random texts, and the proof that whoever redeems a code is who asked for it (RFC 7636).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::OAuthError;

/// 256 random bits, as 43 characters.
pub(super) fn random() -> Result<Zeroizing<String>, OAuthError> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    getrandom::fill(&mut *bytes).map_err(|_| OAuthError::Random)?;
    Ok(Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(*bytes)))
}

/// The challenge of a verifier, by S256.
pub(super) fn challenge(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}
