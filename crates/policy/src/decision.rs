//! Who asks, and what they are told: a verdict that names its rule.

use std::fmt;

use ringfence_bundle::ServerId;
use serde::{Deserialize, Serialize};

/// Whose request it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Principal {
    /// The agent itself; the reserved key `agent`.
    Agent,
    /// A declared server.
    Server(ServerId),
}

impl Principal {
    /// The key of this principal in `[policy.egress]` and `[policy.secrets]`.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Agent => AGENT,
            Self::Server(id) => id.as_str(),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// The reserved key of the agent itself.
pub(crate) const AGENT: &str = "agent";
/// The key that binds every principal, named or not.
pub(crate) const EVERYONE: &str = "*";

/// Where a rule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// `machine.toml`
    Machine,
    /// `[policy.*]` of the bundle.
    Bundle,
    /// What the manifest declares of the thing itself (`tools`, `allowed_hosts`, …).
    Declared,
    /// A rule of Ringfence's own that nothing relaxes.
    Builtin,
}

/// A verdict that names its rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// May it?
    pub allowed: bool,
    /// The layer that decided: the first that refused, or the last that had a rule to ask.
    pub layer: Layer,
    /// As a person reads it: file, line, table, key and pattern. Never holds the judged name, so
    /// that what a stranger sends is not printed through it.
    pub rule: String,
}

impl Decision {
    pub(crate) fn allow(layer: Layer, rule: impl Into<String>) -> Self {
        Self { allowed: true, layer, rule: rule.into() }
    }

    pub(crate) fn refuse(layer: Layer, rule: impl Into<String>) -> Self {
        Self { allowed: false, layer, rule: rule.into() }
    }
}
