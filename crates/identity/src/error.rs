//! Why a key, a folder or a signature was refused.

use std::path::PathBuf;

/// Why a key or a signature was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not `did:key:z6Mk…` in canonical form, or a key that no honest generator makes.
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
    /// A key of this name is there, and is not replaced.
    #[error("{path}: there is a key already, and none is ever replaced; choose another name")]
    Exists {
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
