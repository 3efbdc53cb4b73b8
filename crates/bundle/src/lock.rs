//! `ringfence.lock`: what is declared, pinned to digests.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// A parsed lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Format, 1.
    pub version: u32,
    /// One row a declared thing, sorted by kind and name.
    #[serde(default, rename = "pin")]
    pub pins: Vec<Pin>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// `server`, `skill`, `instruction`, `setting`, `hook`, `extension`, `workflow`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Digest of its definition or bytes.
    pub digest: Digest,
}
