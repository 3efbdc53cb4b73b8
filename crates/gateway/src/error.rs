//! Why a call gave no result.

use ringfence_mcp::{RpcError, UpstreamError, code};
use serde_json::json;

/// A call that was not let through: by which rule of which layer, and what a person can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused by {layer}: {rule}")]
pub struct Refusal {
    /// The check that refused: `trust`, `tools`, `ruleset`, …
    pub check: String,
    /// As a person reads it.
    pub rule: String,
    /// `machine`, `bundle`, `declared` or `builtin`.
    pub layer: String,
    /// What to do, for a person.
    pub next: String,
}

/// Why [`crate::Gateway::call`] gave no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rule refused it. Nothing reached the server.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The evidence could not be written: the call did not go through, or its result is withheld.
    #[error("the record cannot be written, so no call goes through")]
    Record {
        /// For the person at the machine.
        detail: String,
    },
    /// The server gave no result that can be used.
    #[error("{error}")]
    Upstream {
        /// Fit for the agent.
        error: UpstreamError,
    },
    /// The server answered with an error: it is passed on as it is.
    #[error(transparent)]
    Answered(RpcError),
    /// The bundle declares no such toolset. Check its `[toolsets.*]`.
    #[error("there is no toolset `{name}`; declared: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    NoToolset {
        /// As it was given, escaped.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
}

/// Codes of the range that JSON-RPC leaves to implementations.
const REFUSED: i64 = -32001;
const FAILED: i64 = -32003;

impl Error {
    /// As the agent sees it.
    #[must_use]
    pub fn to_rpc(&self) -> RpcError {
        let (code, data) = match self {
            Self::Answered(error) => return error.clone(),
            Self::Refused(Refusal { check, rule, layer, next }) => {
                // For this client there is no such method.
                let code = if check == "methods" { code::METHOD_NOT_FOUND } else { REFUSED };
                (code, json!({ "check": check, "rule": rule, "layer": layer, "next": next }))
            }
            Self::Record { .. } => {
                let next = "free space under the run's record, or check its disk";
                (
                    REFUSED,
                    json!({ "check": "record", "layer": "builtin", "rule": "evidence precedes effect", "next": next }),
                )
            }
            Self::NoToolset { .. } => {
                return RpcError::new(code::INVALID_PARAMS, self.to_string());
            }
            Self::Upstream { .. } => {
                (FAILED, json!({ "check": "upstream", "next": "ringfence report" }))
            }
        };
        RpcError { code, message: self.to_string(), data: Some(json!({ "ringfence": data })) }
    }
}
