//! Who may come to the HTTP door: names, and the SHA-256 of each one's bearer token.
//!
//! A token is 256 random bits. Its value is printed once, where it is made, and kept nowhere.

mod file;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ringfence_bundle::Id;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::Error;
use file::Stamp;

/// What a token begins with, so that people and scanners know what it is.
const PREFIX: &str = "rfg_";
/// Bytes of randomness in a token.
const RANDOM: usize = 32;
/// Tokens at most.
const MOST: usize = 1024;
/// The longest that a token can be good for, in days.
const LONGEST_DAYS: i64 = 3_650;

/// A token, but for its value, which nobody has but its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The client, as the record names it.
    pub name: Id,
    /// Hexadecimal.
    sha256: String,
    /// RFC 3339 UTC.
    pub created: Timestamp,
    /// From when on it is refused, RFC 3339 UTC; never where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

impl Token {
    /// Whether it is refused because of its age.
    #[must_use]
    pub fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= Timestamp::now())
    }
}

/// A new token's value: to be shown once.
pub struct Value(Zeroizing<String>);

impl Value {
    /// As it is sent after `Authorization: Bearer `.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value")
    }
}

/// `<home>/gateway-tokens.json`.
#[derive(Debug, Clone)]
pub struct Tokens {
    home: PathBuf,
}

impl Tokens {
    /// The tokens of this home. Reads nothing yet.
    #[must_use]
    pub fn of(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// Makes a token for a new name. `expires` is from now on.
    ///
    /// # Errors
    /// [`Error::Tokens`]: the name is taken or the file cannot be used; [`Error::Io`].
    pub fn create(
        &self,
        name: &Id,
        expires: Option<SignedDuration>,
    ) -> Result<(Token, Value), Error> {
        let _lock = file::lock(&self.home)?;
        let mut all = self.list()?;
        if all.iter().any(|token| token.name == *name) {
            return Err(self.fail(format!("there is a token `{name}` already; revoke it first")));
        }
        if all.len() >= MOST {
            return Err(self.fail(format!("there are {MOST} tokens already; revoke some first")));
        }
        let mut random = Zeroizing::new([0; RANDOM]);
        getrandom::fill(random.as_mut()).map_err(|error| self.fail(error.to_string()))?;
        let encoded = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(random.as_ref()));
        let value = Zeroizing::new(format!("{PREFIX}{}", encoded.as_str()));
        let now = Timestamp::now();
        let token = Token {
            name: name.clone(),
            sha256: hex(&digest(&value)),
            created: now,
            expires: expires.and_then(|after| now.checked_add(after).ok()),
        };
        all.push(token.clone());
        all.sort_by(|a, b| a.name.cmp(&b.name));
        file::replace(&self.home, &all)?;
        Ok((token, Value(value)))
    }

    /// Every token, by name.
    ///
    /// # Errors
    /// [`Error::Tokens`] when the file cannot be used.
    pub fn list(&self) -> Result<Vec<Token>, Error> {
        file::read(&self.home)
    }

    /// Takes a token away: from its client's next request on it is refused. False when there was none.
    ///
    /// # Errors
    /// [`Error::Tokens`], [`Error::Io`].
    pub fn revoke(&self, name: &Id) -> Result<bool, Error> {
        let _lock = file::lock(&self.home)?;
        let mut all = self.list()?;
        let before = all.len();
        all.retain(|token| token.name != *name);
        if all.len() == before {
            return Ok(false);
        }
        file::replace(&self.home, &all)?;
        Ok(true)
    }

    fn fail(&self, reason: String) -> Error {
        Error::Tokens { path: file::path(&self.home), reason }
    }
}

/// How long a token is good for: a number and `m`, `h`, `d` or `w`.
///
/// # Errors
/// In words.
pub fn parse_lifetime(text: &str) -> Result<SignedDuration, String> {
    let expected = "expected a number and m, h, d or w, for example 90d; at most 3650d";
    let unit = text.chars().last().ok_or(expected)?;
    let minutes: i64 = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        'w' => 7 * 24 * 60,
        _ => return Err(expected.into()),
    };
    let number = &text[..text.len() - 1];
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = number.parse().ok().filter(|_| digits).ok_or(expected)?;
    let minutes = number.checked_mul(minutes).ok_or(expected)?;
    if minutes == 0 || minutes > LONGEST_DAYS * 24 * 60 {
        return Err(expected.into());
    }
    Ok(SignedDuration::from_mins(minutes))
}

fn digest(value: &str) -> [u8; 32] {
    Sha256::digest(value.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(64), |text, byte| format!("{text}{byte:02x}"))
}

/// The tokens as a door needs them: read anew when their file changes.
#[derive(Debug)]
pub(crate) struct Keyring {
    tokens: Tokens,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    stamp: Option<Stamp>,
    /// Name and digest, in the order of the file.
    all: Vec<(Arc<str>, [u8; 32], Option<Timestamp>)>,
}

impl Keyring {
    pub(crate) fn new(tokens: Tokens) -> Self {
        Self { tokens, known: Mutex::default() }
    }

    /// Whose token this is. Every token is compared, each in constant time. A file that cannot be
    /// read has no tokens.
    pub(crate) fn client(&self, bearer: &str) -> Option<Arc<str>> {
        let digest = digest(bearer);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.tokens.home);
        if known.stamp.is_none() || known.stamp != stamp || stamp.is_some_and(|s| s.is_young()) {
            known.all = self.tokens.list().map(|all| known_of(&all)).unwrap_or_default();
            known.stamp = stamp;
        }
        let (mut found, mut any) = (u32::MAX, Choice::from(0));
        for (number, (_, theirs, _)) in known.all.iter().enumerate() {
            let same = digest.ct_eq(theirs);
            found = u32::conditional_select(&found, &u32::try_from(number).ok()?, same);
            any |= same;
        }
        let (name, _, expires) = known.all.get(found as usize).filter(|_| bool::from(any))?;
        let good = expires.is_none_or(|expires| Timestamp::now() < expires);
        good.then(|| Arc::clone(name))
    }
}

fn known_of(all: &[Token]) -> Vec<(Arc<str>, [u8; 32], Option<Timestamp>)> {
    let known = |token: &Token| {
        let digest = file::unhex(&token.sha256)?;
        Some((Arc::from(token.name.as_str()), digest, token.expires))
    };
    all.iter().filter_map(known).collect()
}
