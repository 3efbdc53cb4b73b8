//! The manifest: what an agent is made of and what it asks to be held to.
//!
//! Every type here exists only after a strict parse; see [`crate::parse_manifest`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{HostRule, Id, Places, SecretName, ServerId};

mod calls;
mod content;
mod servers;

pub use calls::{
    A2a, ApprovalRule, Approvals, Notify, OnTimeout, Peer, Predicate, PredicateTest, Spending,
};
pub use content::{Delivery, Extension, Hook, RenderLocally, Source, Toolset};
pub use servers::{Meter, Pricing, Server, Template, Transport};

/// The effective manifest: `ringfence.toml` with `ringfence.local.toml` laid over it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Manifest {
    /// `[meta]`
    pub meta: Meta,
    /// `[agent]`, absent in a plain project bundle.
    pub agent: Option<Agent>,
    /// `[agent] capabilities`, or the same key at the top, in the order declared.
    pub capabilities: Vec<Capability>,
    /// `[sandbox]`
    pub sandbox: Sandbox,
    /// `[limits]`
    pub limits: Limits,
    /// `[servers.*]`
    pub servers: BTreeMap<ServerId, Server>,
    /// `[skills.*]`
    pub skills: BTreeMap<Id, Source>,
    /// `[instructions.*]`
    pub instructions: BTreeMap<Id, Source>,
    /// `[settings.<cli>]`: free-form, as declared.
    pub settings: BTreeMap<Id, serde_json::Map<String, serde_json::Value>>,
    /// `[hooks.*]`
    pub hooks: BTreeMap<Id, Hook>,
    /// `[extensions.*]`
    pub extensions: BTreeMap<Id, Extension>,
    /// `[workflows.*]`
    pub workflows: BTreeMap<Id, Source>,
    /// `[toolsets.*]`
    pub toolsets: BTreeMap<Id, Toolset>,
    /// `[delivery]`
    pub delivery: Delivery,
    /// `[approvals]`
    pub approvals: Approvals,
    /// `[spending]`
    pub spending: Spending,
    /// `[a2a]`
    pub a2a: Option<A2a>,
    /// `[policy.*]`: what the bundle asks to be held to.
    pub policy: PolicyTables,
    /// Where each field stands, for findings that are made later.
    #[serde(skip)]
    pub places: Places,
}

/// `[meta]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Meta {
    /// Keep rendered files out of git. Default false.
    pub gitignore: bool,
}

/// `[agent]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Agent {
    /// `[a-z0-9][a-z0-9-]{0,62}`
    pub name: String,
    /// Free text, at most 64 characters.
    pub version: Option<String>,
    /// Free text; must equal the stored identity's owner when both are set.
    pub owner: Option<String>,
    /// `did:key:z6Mk...`, syntax checked here, key checked at the run.
    pub did: Option<String>,
}

/// What an agent says it does. Sets the isolation floor and grants nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Reads files: floor process.
    ReadFile,
    /// Writes files: floor process.
    WriteFile,
    /// Searches the web: floor network.
    WebSearch,
    /// Calls outside services: floor network.
    ExternalApi,
    /// Sends mail: floor network, wants an approval rule.
    SendEmail,
    /// Starts other agents: floor kernel, wants an approval rule.
    SpawnSubagent,
    /// Moves money or goods: floor kernel, wants an approval rule.
    ExternalTransfer,
    /// Deletes records: floor kernel, wants an approval rule.
    DeleteRecords,
}

/// How strong the wall is. The order is the strength.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// No wall.
    #[default]
    None,
    /// Own processes and files.
    Process,
    /// Own network too: no way out but the proxy and the gates.
    Network,
    /// Own kernel.
    Kernel,
}

/// `[sandbox]`
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Sandbox {
    /// Declared level; may only strengthen the floor that the capabilities set.
    pub isolation: Option<Isolation>,
    /// For Docker and microVM.
    pub image: Option<String>,
    /// OCI runtime for Docker, by the name that the engine knows it by; the engine's default without.
    pub runtime: Option<String>,
    /// Exec form; empty when the command comes from the command line.
    pub command: Vec<String>,
    /// MiB.
    pub memory_mb: Option<u64>,
    /// MiB of writable space.
    pub disk_mb: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// CPUs, greater than 0.
    pub cpus: Option<f64>,
    /// The only host variables that enter the sandbox; readable by the agent.
    pub credentials: Vec<SecretName>,
    /// Adapter whose listed files are kept between runs of this bundle.
    pub state: Option<Id>,
    /// `[sandbox.network]`; absent means restricted with nothing allowed.
    pub network: Network,
}

/// `[sandbox.network]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    /// How wide.
    pub egress: Egress,
    /// What is allowed when `egress` is restricted.
    pub allowed_hosts: Vec<HostRule>,
    /// Which proxy enforces it.
    pub engine: Engine,
}

/// `egress`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Egress {
    /// Nothing leaves.
    None,
    /// Only `allowed_hosts`.
    #[default]
    Restricted,
    /// Any public address, on 443 and 80.
    Open,
}

/// `engine`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Ringfence's own proxy.
    #[default]
    Builtin,
    /// Squid, rendered from the same ruleset.
    Squid,
}

/// `[limits]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Seconds, at least 1.
    pub max_duration_seconds: Option<u64>,
}

/// `[policy.*]`, the same tables in a bundle and in `machine.toml`. Each pattern keeps its line so
/// that a decision can name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PolicyTables {
    /// Server (or `"*"`) to tool globs.
    pub tools: BTreeMap<String, Vec<Pattern>>,
    /// Server (or `"*"`, or `agent`) to host globs, optionally `host:port`.
    pub egress: BTreeMap<String, Vec<Pattern>>,
    /// Server (or `"*"`, or `agent`) to variable-name globs.
    pub secrets: BTreeMap<String, Vec<Pattern>>,
    /// `[policy.filesystem]`
    pub filesystem: Filesystem,
}

/// `[policy.filesystem]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Filesystem {
    /// Readable; `None` when the key is absent. Relative to the project, or absolute, or `~/`.
    pub read: Option<Vec<Pattern>>,
    /// Writable; `None` when the key is absent.
    pub write: Option<Vec<Pattern>>,
    /// Neither, whatever the rest says.
    pub deny: Vec<Pattern>,
}

/// One glob, with `!` for a denial, and the line it stands in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pattern {
    /// As written, with the `!`.
    pub text: String,
    /// Line in its file, from 1.
    pub line: usize,
}
