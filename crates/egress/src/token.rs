//! The token that a peer must show.

use std::fmt;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use crate::Error;

/// A run's proxy token: 256 random bits, hex. Compared in constant time.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// A fresh one from the system's random source.
    ///
    /// # Errors
    /// [`Error::Random`].
    pub fn fresh() -> Result<Self, Error> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
        let mut text = String::with_capacity(64);
        for byte in bytes {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(nibble), 16).expect("a nibble is below 16"));
            }
        }
        Ok(Self(text))
    }

    /// The value for `HTTPS_PROXY`: `http://ringfence:<token>@<address>`.
    #[must_use]
    pub fn proxy_url(&self, at: SocketAddr) -> String {
        format!("http://ringfence:{}@{at}", self.0)
    }

    /// One that was made elsewhere.
    pub(crate) fn given(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The same for a user of another name.
    #[must_use]
    pub fn proxy_url_as(&self, user: &str, at: SocketAddr) -> String {
        format!("http://{user}:{}@{at}", self.0)
    }

    /// What a password file is made of.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// Whether the value of a `Proxy-Authorization` header shows this token: `Basic`, user
    /// `ringfence` (RFC 7617).
    pub(crate) fn admits(&self, credentials: &[u8]) -> bool {
        let Some((scheme, rest)) = credentials.split_at_checked(6) else { return false };
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return false;
        }
        let Ok(decoded) = STANDARD.decode(rest.trim_ascii()) else { return false };
        let Some(shown) = decoded.strip_prefix(b"ringfence:") else { return false };
        // Slices of unequal length are unequal at once; the length is no secret.
        bool::from(shown.ct_eq(self.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
