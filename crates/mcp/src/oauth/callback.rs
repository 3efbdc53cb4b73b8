//! What the browser brings back.

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::error::shown;
use super::form::decode;
use super::{Issuer, OAuthError};

/// Bytes of what the browser brings back, at most.
const MAX: usize = 16 * 1024;

/// Tells whether an answer in the browser belongs to a question.
#[derive(Clone)]
pub struct StateCheck(Zeroizing<String>);

impl std::fmt::Debug for StateCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateCheck(…)")
    }
}

impl StateCheck {
    pub(super) fn new(state: &str) -> Self {
        Self(Zeroizing::new(state.to_owned()))
    }

    /// Reads the query of a redirect, in a time that does not depend on how much of its `state` is
    /// right. `None` when it is not an answer to this question, or is one in two ways.
    #[must_use]
    pub fn read(&self, query: &str) -> Option<Callback> {
        if query.len() > MAX {
            return None;
        }
        let mut found = Callback::default();
        let mut state: Option<Zeroizing<String>> = None;
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match decode(name)?.as_str() {
                "state" => &mut state,
                "code" => &mut found.code,
                "iss" => &mut found.iss,
                "error" => &mut found.error,
                "error_description" => &mut found.words,
                _ => continue,
            };
            if slot.replace(decode(value)?).is_some() {
                return None;
            }
        }
        let same: bool = state?.as_bytes().ct_eq(self.0.as_bytes()).into();
        same.then_some(found)
    }
}

/// An answer to our question, not judged yet.
#[derive(Clone, Default)]
pub struct Callback {
    code: Option<Zeroizing<String>>,
    iss: Option<Zeroizing<String>>,
    error: Option<Zeroizing<String>>,
    words: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callback(…)")
    }
}

impl Callback {
    /// Whether it says yes. Not judged: only for the page that the person sees.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        self.error.is_none() && self.code.is_some()
    }

    /// The code, if the answer is from this authorization server: one that names another is not,
    /// whether or not names were to be expected, nor is one without a name where they were (RFC
    /// 9207, section 2.4). `wanted`: the person named this issuer.
    pub(super) fn code(
        self,
        issuer: &Issuer,
        wanted: bool,
    ) -> Result<Zeroizing<String>, OAuthError> {
        match &self.iss {
            Some(iss) if **iss != issuer.issuer => {
                return Err(OAuthError::Mixed(format!(
                    "from `{}`, not from `{}`",
                    shown(iss),
                    issuer.issuer
                )));
            }
            None if issuer.names_itself => {
                return Err(OAuthError::Mixed("without the name of its issuer".into()));
            }
            // Metadata can name an honest sign-in page beside a token endpoint of its own: the page's
            // code would go there. Only an answer that names its issuer shows that they are one.
            None if !wanted && !issuer.is_one_place() => {
                return Err(OAuthError::Mixed(
                    "without the name of its issuer, and the sign-in page is not where the code would go"
                        .into(),
                ));
            }
            _ => {}
        }
        if let Some(error) = &self.error {
            let words = self.words.as_ref().map(|words| format!(" ({})", shown(words)));
            return Err(OAuthError::Denied(format!(
                "{}{}",
                shown(error),
                words.unwrap_or_default()
            )));
        }
        self.code
            .filter(|code| !code.is_empty())
            .ok_or_else(|| OAuthError::Browser("the answer in the browser has no code".into()))
    }
}
