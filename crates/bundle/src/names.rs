//! Names that exist only in valid form.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a {kind}: {reason}")]
pub struct NameError {
    /// What the name was to be, in words ("server name").
    pub kind: &'static str,
    /// The refused text, escaped for display.
    pub given: String,
    /// What is expected instead.
    pub reason: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $check:path, $reason:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Parses a name.
            ///
            /// # Errors
            /// [`NameError`] when the text is not of this kind's form.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                if $check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(NameError {
                        kind: $kind,
                        given: crate::text::shown(text),
                        reason: $reason,
                    })
                }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }
    };
}

name!(
    /// A name that the manifest gives to a server, skill, peer and the like: it becomes part of
    /// environment variables, URLs and `<server>__<tool>` names.
    Id,
    "name",
    is_id,
    "expected 1 to 63 of a-z, 0-9, `-` and `_`, beginning with a letter or digit, without `__` and \
     not ending with `_`"
);

name!(
    /// A tool's name as its server spells it (MCP 2025-11-25, tools: 1 to 128 characters).
    ToolName,
    "tool name",
    is_tool,
    "expected 1 to 128 of A-Z, a-z, 0-9, `_`, `-`, `.` and `/`"
);

name!(
    /// The name of a host variable that holds a secret. The value is never in a bundle.
    SecretName,
    "variable name",
    is_secret,
    "expected 1 to 128 of A-Z, a-z, 0-9 and `_`, not beginning with a digit"
);

/// The name of a declared MCP server.
pub type ServerId = Id;

impl Id {
    /// The environment variable that gives the agent this server's address:
    /// `RINGFENCE_MCP_<ID>_URL`, with `-` as `_`.
    #[must_use]
    pub fn url_variable(&self) -> String {
        format!("RINGFENCE_MCP_{}_URL", self.0.replace('-', "_").to_ascii_uppercase())
    }
}

/// What an agent's name looks like, in words.
pub(crate) const AGENT_NAME: &str = "1 to 63 of a-z, 0-9 and `-`, beginning with a letter or digit";

pub(crate) fn is_agent_name(text: &str) -> bool {
    is_id(text) && !text.contains('_')
}

fn is_id(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
        && text.as_bytes()[0].is_ascii_alphanumeric()
        // The first `__` of `<server>__<tool>` ends the server's name.
        && !text.contains("__")
        && !text.ends_with('_')
}

fn is_tool(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/'))
}

fn is_secret(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !text.as_bytes()[0].is_ascii_digit()
}
