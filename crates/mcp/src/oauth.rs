//! Signing in to a remote server: OAuth 2.1 as MCP uses it (revisions 2025-03-26 to 2026-07-28).
//!
//! Every address that somebody else names becomes a [`Place`] before anything is done with it, and
//! only a [`Place`] can be reached. Reaching out, showing an address to a person and keeping what
//! comes of it are traits ([`Outside`], [`Browser`], [`Keep`]): this module knows no network, no
//! screen and no keychain. What is read, checked and written here is pure.

mod answer;
mod callback;
mod challenge;
mod client;
mod discover;
mod error;
mod form;
mod grant;
mod interactive;
mod metadata;
mod pkce;
mod place;
mod quiet;
mod scope;
#[cfg(test)]
mod tests;
mod token;

pub use callback::{Callback, StateCheck};
pub use challenge::Challenge;
pub use client::{Auth, ClientKey, Identity, Known};
pub use discover::{Found, discover};
pub use error::OAuthError;
pub use grant::{Grant, Tokens};
pub use interactive::{Browser, Interactive, Keep, Visit, Wish};
pub use metadata::Issuer;
pub use place::{Ground, Place, Reach, Step};
pub use token::{SKEW, refresh, revoke};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use zeroize::Zeroizing;

pub use crate::Boxed;

/// Bytes of one answer of an authorization server, at most.
pub const MAX_BODY: usize = 256 * 1024;

/// What is sent to a place.
pub struct Hop<'a> {
    /// Where.
    pub place: &'a Place,
    /// `None` for a GET; else the content type and the bytes of a POST.
    pub body: Option<(&'static str, Zeroizing<Vec<u8>>)>,
    /// `Authorization`, of the client itself and never of a token.
    pub authorization: Option<Zeroizing<String>>,
}

impl Hop<'_> {
    /// The secret values in it, decoded: what may not come back in words that anybody sees.
    #[must_use]
    pub fn secrets(&self) -> Vec<Zeroizing<String>> {
        const NAMES: [&str; 5] =
            ["code", "code_verifier", "refresh_token", "client_secret", "token"];
        let mut found = Vec::new();
        if let Some((form::FORM, bytes)) = &self.body {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
            let secret = pairs.filter(|(name, _)| NAMES.contains(name));
            found.extend(secret.filter_map(|(_, value)| form::decode(value)));
        }
        let basic = self.authorization.as_ref().and_then(|text| text.strip_prefix("Basic "));
        if let Some(pair) = basic.and_then(|coded| BASE64_STANDARD.decode(coded).ok()) {
            let pair = Zeroizing::new(pair);
            let text = std::str::from_utf8(&pair).unwrap_or_default();
            found.extend(text.split_once(':').and_then(|(_, secret)| form::decode(secret)));
        }
        found
    }
}

impl std::fmt::Debug for Hop<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hop").field("place", &self.place.text()).finish_non_exhaustive()
    }
}

/// What came back.
pub struct Back {
    /// The status.
    pub status: u16,
    /// `Content-Type`, if there was one.
    pub content_type: Option<String>,
    /// At most [`MAX_BODY`] bytes.
    pub body: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Back {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Back").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Reaches out, one request at a time.
///
/// Whoever implements it dials only what [`Place::reach`] allows, resolves a name once and dials
/// the address that it checked, follows no redirect, reads no proxy variable, and gives up after
/// [`MAX_BODY`] bytes and after a time of its own.
pub trait Outside: Send + Sync + 'static {
    /// Sends one request and reads its answer.
    ///
    /// # Errors
    /// In words for a person; they may name addresses and never hold what was sent.
    fn send<'a>(&'a self, hop: Hop<'a>) -> Boxed<'a, Result<Back, String>>;

    /// Whether a place leads where it may, without going there: a browser will.
    ///
    /// # Errors
    /// As for [`Outside::send`].
    fn look<'a>(&'a self, place: &'a Place) -> Boxed<'a, Result<(), String>>;
}
