//! A `did:key` (W3C CCG did:key method) with an Ed25519 key, and strict verification (RFC 8032).

use std::fmt;

use ed25519_dalek::{Signature, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::{Error, base58};

/// Before the base58btc digits: the scheme, the method, and the multibase letter.
const PREFIX: &str = "did:key:z";

/// Multicodec `ed25519-pub` (0xed) as a varint.
const MULTICODEC: [u8; 2] = [0xed, 0x01];

/// A `did:key` with an Ed25519 key, in its one canonical spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Did(String);

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Did {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<Did> for String {
    fn from(did: Did) -> Self {
        did.0
    }
}

impl Did {
    /// Parses strictly: length bound before any arithmetic, base58btc, multicodec 0xed01, canonical.
    ///
    /// The key itself must be a point in its canonical encoding and not of small order: for such
    /// keys one signature verifies over many messages.
    ///
    /// # Errors
    /// [`Error::Did`], with the text escaped and cut to 80 characters.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match key_of(text) {
            Some(_) => Ok(Self(text.to_owned())),
            None => Err(Error::Did(text.chars().take(80).flat_map(char::escape_debug).collect())),
        }
    }

    /// The DID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Verifies strictly (RFC 8032, no small-order keys, canonical encodings only).
    ///
    /// # Errors
    /// [`Error::Signature`].
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> Result<(), Error> {
        let key = key_of(&self.0).ok_or(Error::Signature)?;
        key.verify_strict(message, &Signature::from_bytes(signature)).map_err(|_| Error::Signature)
    }

    /// The public key itself.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        // It was parsed when this was made.
        key_of(&self.0).map(|key| key.to_bytes()).unwrap_or_default()
    }

    /// The DID of a key that was made here.
    pub(crate) fn of(key: &VerifyingKey) -> Self {
        let mut bytes = [0_u8; base58::BYTES];
        bytes[..2].copy_from_slice(&MULTICODEC);
        bytes[2..].copy_from_slice(key.as_bytes());
        Self(format!("{PREFIX}{}", base58::encode(&bytes)))
    }
}

fn key_of(text: &str) -> Option<VerifyingKey> {
    if text.len() != PREFIX.len() + base58::DIGITS {
        return None;
    }
    let bytes = base58::decode(text.strip_prefix(PREFIX)?.as_bytes())?;
    let raw: &[u8; 32] = bytes.strip_prefix(&MULTICODEC)?.try_into().ok()?;
    let key = VerifyingKey::from_bytes(raw).ok()?;
    // The library also takes y at or above the field's prime and a negative zero; encoding the
    // point anew shows them.
    let canonical = key.to_edwards().compress().to_bytes() == *raw;
    (canonical && !key.is_weak()).then_some(key)
}

#[cfg(test)]
mod tests;
