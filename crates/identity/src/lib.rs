//! Who signs? `did:key` Ed25519 keys, key files, sign and verify.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A `did:key` with an Ed25519 key, in its one canonical spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Did(String);

/// Why a key or a signature was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not `did:key:z6Mk…` in canonical form.
    #[error("`{0}` is not an Ed25519 did:key")]
    Did(String),
    /// No key file for this DID or name on this machine.
    #[error("no key for {0} on this machine")]
    NoKey(String),
    /// The key file or its folder can be read by others, or is not a regular file.
    #[error("{path}: {reason}")]
    Unsafe {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong and how to mend it.
        reason: String,
    },
    /// The key file does not hold an Ed25519 PKCS#8 key.
    #[error("{path}: not an Ed25519 PKCS#8 key")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The signature is not this key's over these bytes, or is not canonical.
    #[error("signature does not verify")]
    Signature,
}

/// A private key in memory; zeroed when dropped, never printed.
pub struct Signer {
    key: ed25519_dalek::SigningKey,
    did: Did,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("did", &self.did).finish_non_exhaustive()
    }
}

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
    /// # Errors
    /// [`Error::Did`].
    pub fn parse(_text: &str) -> Result<Self, Error> {
        todo!()
    }

    /// Verifies strictly (RFC 8032, no small-order keys, canonical encodings only).
    ///
    /// # Errors
    /// [`Error::Signature`].
    pub fn verify(&self, _message: &[u8], _signature: &[u8; 64]) -> Result<(), Error> {
        todo!()
    }
}

impl Signer {
    /// The machine's own key, `<home>/identities/machine/key.pem`, made on first use (mode 0600 in
    /// a 0700 folder; safe when two processes make it at once).
    ///
    /// # Errors
    /// [`Error::Unsafe`], [`Error::Malformed`], [`Error::Io`].
    pub fn machine(_home: &Path) -> Result<Self, Error> {
        todo!()
    }

    /// The key of a declared DID, from `<home>/identities/*/key.pem`.
    ///
    /// # Errors
    /// [`Error::NoKey`] when no file holds it; the rest as for [`Signer::machine`].
    pub fn for_did(_home: &Path, _did: &Did) -> Result<Self, Error> {
        todo!()
    }

    /// Whose signatures these are.
    #[must_use]
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// Signs bytes.
    #[must_use]
    pub fn sign(&self, _message: &[u8]) -> [u8; 64] {
        let _ = &self.key;
        todo!()
    }
}
