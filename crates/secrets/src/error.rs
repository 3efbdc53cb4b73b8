//! What can go wrong when a name is resolved.

use ringfence_policy::Principal;

/// Why a secret has no value here. Never holds one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Policy refuses it; no source was asked.
    #[error("{name} is refused to {principal} by {rule}")]
    Denied {
        /// Variable.
        name: String,
        /// For whom.
        principal: Principal,
        /// Which rule.
        rule: String,
    },
    /// No source has it: put it into the keychain, or set it where Ringfence is started.
    #[error("{name}, which {} refers to, has no value: asked {asked}", who(.principal))]
    Missing {
        /// Variable.
        name: String,
        /// For whom.
        principal: Principal,
        /// The sources that were asked.
        asked: String,
    },
    /// A source could not say, or what it has is no fit value. Those after it were not asked.
    #[error(
        "{name}, which {} refers to, cannot be had from the {origin}: {reason}", who(.principal)
    )]
    Failed {
        /// Variable.
        name: String,
        /// For whom.
        principal: Principal,
        /// The source.
        origin: &'static str,
        /// Why.
        reason: String,
    },
    /// The access could not be recorded, so nothing was handed out.
    #[error(transparent)]
    Record(#[from] ringfence_record::Error),
    /// The keychain could not be changed.
    #[error("the keychain: {0}")]
    Keychain(String),
    /// There is no keychain that could be used, or what is kept in it cannot be had.
    #[error("the keychain: {0}")]
    NoKeychain(String),
    /// A sign-in could not be kept, read or taken away.
    #[error("the sign-ins of this machine: {0}")]
    SignIn(String),
    /// What was given is no value.
    #[error("this is no value for a secret: {0}")]
    NoValue(&'static str),
}

impl Error {
    /// What to type next, where there is one thing.
    #[must_use]
    pub fn next(&self) -> Option<String> {
        match self {
            Self::Missing { name, .. } => Some(format!("ringfence secret set {name}")),
            Self::Failed { name, .. } | Self::Denied { name, .. } => {
                Some(format!("ringfence secret where {name}"))
            }
            _ => None,
        }
    }
}

fn who(principal: &Principal) -> String {
    match principal {
        Principal::Agent => "the agent (`sandbox.credentials`)".to_owned(),
        Principal::Server(id) => format!("server `{id}`"),
    }
}
