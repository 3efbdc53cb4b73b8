//! Why a server gave no result.

use std::time::Duration;

use crate::RpcError;

/// Why a server gave no result. Display is fit for an agent: it names no address. What names one is
/// in [`UpstreamError::detail`], for the person at the machine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// It could not be reached or started, or the exchange broke.
    #[error("the server cannot be reached: {reason}")]
    Down {
        /// In words.
        reason: String,
        /// May name addresses.
        detail: String,
    },
    /// It was there and ended while calls were waiting, or before.
    #[error("the server ended the connection: {reason}")]
    Closed {
        /// In words.
        reason: String,
    },
    /// No answer in time. It was told that nobody waits any more.
    #[error("the server did not answer within {} s", after.as_secs_f32())]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// No answer in time, because what servers answer takes all the memory that there is for it. Ask
    /// again later, or for less at once.
    #[error("there was no room for the server's answer within {} s: replies under way take all the memory there is for them", after.as_secs_f32())]
    Crowded {
        /// How long was waited.
        after: Duration,
    },
    /// What it sent is not MCP.
    #[error("the server's answer cannot be used: {reason}")]
    Nonsense {
        /// In words.
        reason: String,
    },
    /// It wants other credentials. Check the server's `headers` and the variables they name.
    #[error("the server refused our credentials (HTTP {status})")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
    },
    /// It refused at the level of HTTP.
    #[error("the server answered with HTTP {status}")]
    Status {
        /// The status.
        status: u16,
    },
    /// It no longer knows the session and did nothing: ask again over a new connection.
    #[error("the server has forgotten the session")]
    SessionLost,
    /// Whoever asked went away.
    #[error("the request was cancelled")]
    Cancelled,
    /// It answered with an error.
    #[error("{0}")]
    Rpc(RpcError),
}

impl UpstreamError {
    /// What to tell the person at the machine; may name addresses.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::Down { detail, .. } => format!("{self} ({detail})"),
            Self::Rpc(error) => format!("error {}", error.code),
            _ => self.to_string(),
        }
    }
}
