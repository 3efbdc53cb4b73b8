//! A value in memory.

use std::fmt;

use zeroize::Zeroizing;

/// A value is at most this long, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// A value in memory: zeroed when dropped, never printed.
pub struct Secret(Zeroizing<String>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    #[cfg(test)]
    pub(crate) fn new(value: String) -> Self {
        Self(Zeroizing::new(value))
    }

    /// A value from outside: text that an environment and a header can carry. The bytes given are
    /// zeroed whatever comes of them.
    ///
    /// # Errors
    /// In words, when it is empty, longer than [`MAX_BYTES`], holds a NUL byte or is not UTF-8.
    pub fn from_bytes(bytes: Zeroizing<Vec<u8>>) -> Result<Self, &'static str> {
        match &bytes[..] {
            [] => Err("it is empty"),
            long if long.len() > MAX_BYTES => Err("it is longer than 64 KiB"),
            text if text.contains(&0) => Err("it holds a NUL byte"),
            text => match std::str::from_utf8(text) {
                Ok(text) => Ok(Self(Zeroizing::new(text.to_owned()))),
                Err(_) => Err("it is not valid UTF-8"),
            },
        }
    }

    /// The value, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Clone for Secret {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
