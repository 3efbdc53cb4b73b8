//! What calls need and cost, and who else may be talked to.

use serde::Serialize;

use crate::{Id, SecretName, ServerId, ToolName};

/// `[approvals]`
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Approvals {
    /// Seconds, 1 to 86,400. Default 300.
    pub timeout_seconds: u64,
    /// What a timeout does.
    pub on_timeout: OnTimeout,
    /// Calls that need a yes.
    pub require: Vec<ApprovalRule>,
    /// Who is asked.
    pub notify: Vec<Notify>,
}

impl Default for Approvals {
    fn default() -> Self {
        Self {
            timeout_seconds: 300,
            on_timeout: OnTimeout::Deny,
            require: Vec::new(),
            notify: Vec::new(),
        }
    }
}

/// `on_timeout`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The call is refused.
    #[default]
    Deny,
    /// The run is stopped.
    Abort,
    /// The call goes through.
    Proceed,
}

/// `[[approvals.require]]`
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApprovalRule {
    /// A server's name, or `None` for `"*"`.
    pub server: Option<ServerId>,
    /// Exact tool name.
    pub tool: ToolName,
    /// Over the arguments; absent means always.
    pub when: Option<Predicate>,
}

/// `when = { pointer = "/amount", greater_than = "100.00" }`
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Predicate {
    /// RFC 6901.
    pub pointer: String,
    /// What it is compared with.
    #[serde(flatten)]
    pub test: PredicateTest,
}

/// The comparison of a [`Predicate`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PredicateTest {
    /// Same JSON value.
    Equals(serde_json::Value),
    /// A string that begins so.
    Prefix(String),
    /// A string that this regular expression matches.
    Matches(String),
    /// A number greater than this decimal.
    GreaterThan(String),
    /// One of these JSON values.
    OneOf(Vec<serde_json::Value>),
}

/// `[[approvals.notify]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notify {
    /// `webhook`.
    pub channel: String,
    /// Name of a host variable that holds the URL.
    pub url_ref: SecretName,
    /// Who may sign a decision.
    pub approver_keys: Vec<String>,
}

/// `[spending]`: decimal USD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Spending {
    /// One run.
    pub max_per_run_usd: Option<String>,
    /// One UTC day, across runs, keyed by DID.
    pub max_per_day_usd: Option<String>,
    /// One UTC month, across runs, keyed by DID.
    pub max_per_month_usd: Option<String>,
    /// 1 to 100.
    pub warn_at_percent: Option<u64>,
}

/// `[a2a]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct A2a {
    /// `address:port`
    pub listen: Option<String>,
    /// Declared peers.
    pub peers: Vec<Peer>,
}

/// `[[a2a.peers]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// What the agent calls it.
    pub name: Id,
    /// `did:key:…`
    pub did: String,
    /// `https://…`; never in a sandbox.
    pub endpoint: String,
}
