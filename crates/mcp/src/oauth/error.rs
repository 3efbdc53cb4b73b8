//! Why there is no token.

use super::place::Step;

/// Why there is no token. For the person at the machine: text of others in it is escaped and cut,
/// and no secret is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OAuthError {
    /// An address on the way is not one that may be used. Nothing was sent to it.
    #[error("{step}: `{given}` is not used: {why}")]
    Place {
        /// On which step.
        step: Step,
        /// The address, escaped and cut.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Nobody could be reached there, or what is there is not to be reached.
    #[error("{step}: {why}")]
    Unreached {
        /// On which step.
        step: Step,
        /// In words.
        why: String,
    },
    /// It answered with a redirect, which is never followed.
    #[error("{step}: it answers with a redirect (HTTP {status}), which is not followed")]
    Redirected {
        /// On which step.
        step: Step,
        /// The status.
        status: u16,
    },
    /// It answered with another status than the one expected.
    #[error("{step}: it answers with HTTP {status}{said}")]
    Status {
        /// On which step.
        step: Step,
        /// The status.
        status: u16,
        /// What it said of it, escaped, or nothing.
        said: String,
    },
    /// What it sent is not what it must be.
    #[error("{step}: {why}")]
    Content {
        /// On which step.
        step: Step,
        /// What is wrong with it.
        why: String,
    },
    /// The metadata is about another server. Somebody may want a token for it.
    #[error(
        "the metadata is for `{named}`, and the server is `{server}`: a token for it would not be \
         this server's"
    )]
    Resource {
        /// What the metadata names, escaped.
        named: String,
        /// The declared address.
        server: String,
    },
    /// The authorization server's metadata names another issuer than the one it was asked for.
    #[error("the authorization server `{asked}` says that it is `{said}`")]
    Issuer {
        /// Which was asked for.
        asked: String,
        /// What it calls itself, escaped.
        said: String,
    },
    /// The answer in the browser is not from the authorization server that was asked (RFC 9207).
    #[error(
        "the answer in the browser is {0}: it is not from the authorization server that was asked"
    )]
    Mixed(String),
    /// The server's authorization servers do not include the one that was asked for.
    #[error("the server names `{named}` as its authorization server, and `{wanted}` was asked for")]
    OtherIssuer {
        /// What the server names, escaped.
        named: String,
        /// What the person wants.
        wanted: String,
    },
    /// It does not offer PKCE with S256, without which a code that is intercepted can be used.
    #[error("the authorization server does not offer PKCE with S256, so it is not used")]
    NoPkce,
    /// There is no way to be known to it. Register with it, and use `--client-id`.
    #[error(
        "the authorization server registers nobody by itself: register with it, and use `--client-id`"
    )]
    NoRegistration,
    /// It wants to be proved who asks in a way that is not spoken here.
    #[error(
        "the authorization server takes none of: none, client_secret_basic, client_secret_post"
    )]
    NoAuth,
    /// A scope that is not one (RFC 6749, section 3.3).
    #[error("`{0}` is not a scope")]
    Scope(String),
    /// The authorization server, or the person there, said no.
    #[error("the authorization server says no: {0}")]
    Denied(String),
    /// The refresh token is good no more: sign in again.
    #[error("the sign-in is over ({0})")]
    Over(String),
    /// The server asked for more so often that it is left.
    #[error("the server refused {0} tokens in a row")]
    Rounds(usize),
    /// The browser's answer did not come, or the person ended it.
    #[error("{0}")]
    Browser(String),
    /// It could not be kept.
    #[error("it could not be kept: {0}")]
    Keep(String),
    /// The system has no random bytes.
    #[error("the system has no random bytes")]
    Random,
}

/// Text of others, safe to show: escaped, and at most this many characters.
const SHOWN: usize = 200;

pub(super) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).flat_map(char::escape_default).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}
