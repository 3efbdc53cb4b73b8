//! What can go wrong when a name is resolved.

use ringfence_policy::Principal;

/// Why a secret has no value here. Never holds one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Policy refuses it.
    #[error("{name} is refused to {principal} by {rule}")]
    Denied {
        /// Variable.
        name: String,
        /// For whom.
        principal: Principal,
        /// Which rule.
        rule: String,
    },
    /// No source has it: set the variable in the environment that starts Ringfence.
    #[error("{name} is not set")]
    Missing {
        /// Variable.
        name: String,
    },
    /// It is not text, so it can stand in no header and no environment that we compose.
    #[error("{name} is not valid UTF-8")]
    NotText {
        /// Variable.
        name: String,
    },
    /// The access could not be recorded, so nothing was handed out.
    #[error(transparent)]
    Record(#[from] ringfence_record::Error),
}
