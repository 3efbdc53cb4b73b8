//! Digests: SHA-256, separated by domain, framed by length.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

#[cfg(test)]
mod tests;

/// A SHA-256 digest, written `sha256:<64 lower-case hex>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(pub(crate) [u8; 32]);

impl Digest {
    /// The digest of a list of byte strings for one purpose. The purpose and the length of each
    /// string go in first, so that no two lists and no two purposes give the same bytes.
    #[must_use]
    pub fn framed(kind: &str, parts: &[&[u8]]) -> Self {
        let mut framer = Framer::new(kind);
        for part in parts {
            framer.part(part);
        }
        framer.finish()
    }

    /// The 64 lower-case hex digits.
    #[must_use]
    pub fn hex(&self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
            }
        }
        text
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A digest being made, one framed part after the other.
pub(crate) struct Framer(Sha256);

impl Framer {
    /// Begins a digest for one purpose: `ringfence/<kind>/1\0`.
    pub(crate) fn new(kind: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"ringfence/");
        hash.update(kind.as_bytes());
        hash.update(b"/1\0");
        Self(hash)
    }

    /// Adds one part, its length first.
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        format!("sha256:{}", digest.hex())
    }
}

impl TryFrom<String> for Digest {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for Digest {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!("`{}` is not `sha256:` and 64 lower-case hex digits", crate::text::shown(text))
        };
        let hex = text.strip_prefix("sha256:").ok_or_else(fault)?.as_bytes();
        if hex.len() != 64 {
            return Err(fault());
        }
        let nibble = |b: u8| match b {
            b'0'..=b'9' => Ok(b - b'0'),
            b'a'..=b'f' => Ok(b - b'a' + 10),
            _ => Err(fault()),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(*self))
    }
}
