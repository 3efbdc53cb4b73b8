//! The manifest: what an agent is made of and what it asks to be held to.
//!
//! Every type here exists only after a strict parse; see [`crate::parse_manifest`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{HostRule, Id, Place, SecretName, ServerId, ToolName};

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

/// Where the fields of a manifest stand: `limits.max_duration_seconds`, `servers.search.env.KEY`,
/// `policy.tools.search[0]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places(pub(crate) BTreeMap<String, Place>);

impl Places {
    /// Where a field stands, or the nearest table around it that is declared.
    #[must_use]
    pub fn find(&self, keys: &str) -> Option<&Place> {
        let mut keys = keys;
        loop {
            if let Some(place) = self.0.get(keys) {
                return Some(place);
            }
            keys = &keys[..keys.rfind(['.', '['])?];
        }
    }
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

/// `[servers.<id>]`
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Server {
    /// Where it is.
    pub transport: Transport,
    /// Tools it may be asked for: `None` all, empty none.
    pub tools: Option<Vec<ToolName>>,
    /// Methods beyond tools, ping and the handshake that may pass.
    pub methods: Vec<String>,
    /// What its calls cost.
    pub pricing: Option<Pricing>,
}

/// How a server is reached. `${NAME}` stays unresolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Transport {
    /// MCP over Streamable HTTP; the address stays on the host.
    Http {
        /// `https://…`, or `http://…` to a loopback or private host.
        url: String,
        /// Header name to template, added host-side.
        headers: BTreeMap<String, Template>,
    },
    /// MCP over stdio; started in a sandbox of its own.
    Stdio {
        /// Program, looked up on the host's PATH or relative to the project when it has a `/`.
        command: String,
        /// Arguments.
        args: Vec<Template>,
        /// Environment: name to template.
        env: BTreeMap<String, Template>,
        /// Where this server itself may connect to.
        allowed_hosts: Vec<HostRule>,
    },
}

/// A text that may hold `${NAME}` references. `$$` is a literal `$`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Template(pub(crate) String);

/// `[servers.<id>.pricing]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pricing {
    /// What is reserved while a call is in flight; decimal USD.
    pub max_usd_per_call: Option<String>,
    /// At least one.
    pub meters: Vec<Meter>,
}

/// `[[servers.<id>.pricing.meters]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Meter {
    /// Path into the JSON-RPC response.
    pub usage_path: String,
    /// Decimal USD, at most 8 places.
    pub usd_per_unit: String,
}

/// Where the bytes of a skill, instruction or workflow come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Source {
    /// Beside the manifest, `./`-relative to `.ringfence/`.
    Path {
        /// Relative path, no `..`.
        path: String,
    },
    /// A git repository at a revision.
    Git {
        /// Repository address.
        git: String,
        /// Revision.
        rev: String,
        /// Folder inside it.
        subpath: Option<String>,
    },
    /// `<source>:<name>` of the person's library.
    Library {
        /// `<source>:<name>` or a name.
        library: String,
    },
}

/// `[hooks.<id>]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// For example `post_tool_use`.
    pub event: String,
    /// Shell command, run by the agent CLI.
    pub command: String,
}

/// `[extensions.<id>]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Extension {
    /// Where its bytes come from.
    #[serde(flatten)]
    pub source: Source,
    /// The agent CLI it is for.
    pub target: Id,
}

/// `[toolsets.<id>]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Toolset {
    /// Servers it selects.
    pub servers: Vec<ServerId>,
    /// Skills it selects.
    pub skills: Vec<Id>,
    /// At most one toolset is the default.
    pub default: bool,
}

/// `[delivery]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// Which harnesses get files where the live channel would have worked.
    pub render_locally: RenderLocally,
}

/// `render_locally`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RenderLocally {
    /// The whole project, or none of it.
    All(bool),
    /// Only these harnesses.
    Harnesses(Vec<Id>),
}

impl Default for RenderLocally {
    fn default() -> Self {
        Self::All(false)
    }
}

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
