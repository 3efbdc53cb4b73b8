//! What a token is asked to be good for (RFC 6749, section 3.3).

use super::OAuthError;
use super::error::shown;

/// Scopes in one request, at most.
const MAX: usize = 128;
/// Bytes of one, at most.
const MAX_BYTES: usize = 512;
/// What an authorization server wants to hear before it gives a refresh token, where it says so.
const OFFLINE: &str = "offline_access";

/// Scopes in their order, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scopes(Vec<String>);

impl Scopes {
    /// From a list with spaces between, as it stands on the wire.
    pub(super) fn parse(text: &str) -> Result<Self, OAuthError> {
        Self::of(text.split(' ').filter(|word| !word.is_empty()))
    }

    pub(super) fn of<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, OAuthError> {
        let mut found = Self::default();
        for word in words {
            found.add(word)?;
        }
        Ok(found)
    }

    pub(super) fn add(&mut self, word: &str) -> Result<(), OAuthError> {
        let legal = |b: u8| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        let fits = !word.is_empty() && word.len() <= MAX_BYTES && word.bytes().all(legal);
        if !fits || self.0.len() == MAX {
            return Err(OAuthError::Scope(shown(word)));
        }
        if !self.0.iter().any(|known| known == word) {
            self.0.push(word.to_owned());
        }
        Ok(())
    }

    /// Both together.
    pub(super) fn and(mut self, other: &Self) -> Result<Self, OAuthError> {
        other.0.iter().try_for_each(|word| self.add(word))?;
        Ok(self)
    }

    /// With `offline_access`, where the authorization server lists it and something else is asked
    /// for: alone it would take the place of what is given without asking (2026-07-28).
    pub(super) fn offline(mut self, supported: &[String]) -> Self {
        if !self.0.is_empty() && supported.iter().any(|word| word == OFFLINE) {
            let _ = self.add(OFFLINE);
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn text(&self) -> String {
        self.0.join(" ")
    }

    pub(super) fn list(self) -> Vec<String> {
        self.0
    }
}
