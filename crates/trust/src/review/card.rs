//! The run-time surface of a bundle, as data: what a person is shown and says yes to.

use std::collections::BTreeMap;

use ringfence_bundle::{Drift, Egress, Isolation, OnTimeout, Pin};
use serde::Serialize;

use super::tools::ToolsCard;
use crate::{Moved, State};

/// Everything that consent is about. Text in it is as declared, not escaped; [`Card::lines`] escapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Card {
    /// Project folder.
    pub project: String,
    /// Whether these bytes are trusted now.
    pub state: State,
    /// Digest of manifest, overlay and lock.
    pub consent_digest: String,
    /// What consent is given to: `consent_digest`, and each of `programs`.
    pub review_digest: String,
    /// When the grant was given that is in the store now, RFC 3339.
    pub granted: Option<String>,
    /// `[agent]`
    pub agent: Option<AgentCard>,
    /// The isolation that a run gets at least.
    pub isolation: Isolation,
    /// Image, for Docker and microVM.
    pub image: Option<String>,
    /// The agent's program and arguments; empty when they come from the command line.
    pub command: Vec<String>,
    /// Files of the project that it runs and that the lock pins.
    pub agent_files: Vec<String>,
    /// What else of the project its command names or is steered by, and nothing pins.
    pub agent_unpinned: Vec<String>,
    /// Adapter whose state is kept between runs.
    pub keeps_state_of: Option<String>,
    /// Where the agent itself may connect to.
    pub network: NetworkCard,
    /// MCP servers.
    pub servers: Vec<ServerCard>,
    /// Files that commands run and that the lock does not pin: they are kept in the grant.
    pub programs: Vec<ProgramCard>,
    /// Commands whose files could not be found or read: whose, and why.
    pub missing_programs: Vec<(String, String)>,
    /// Programs that are not those of the grant.
    pub moved_programs: Vec<Moved>,
    /// Names of secrets, and who gets them.
    pub secrets: Vec<SecretCard>,
    /// Host variables that enter the sandbox: the agent can read them and send them wherever it may
    /// connect to.
    pub credentials: Vec<String>,
    /// `[policy.filesystem]`: what is read, `None` when the key is absent.
    pub read: Option<Vec<String>>,
    /// What is written; absent means nothing.
    pub write: Option<Vec<String>>,
    /// Neither.
    pub deny: Vec<String>,
    /// `[policy.tools]`, `[policy.egress]` and `[policy.secrets]`: table and name, and the patterns
    /// that narrow what is declared elsewhere.
    pub narrowed: Vec<(String, Vec<String>)>,
    /// Limits and caps that are declared.
    pub limits: Vec<Limit>,
    /// What happens when nobody answers an approval, and which calls need one.
    pub approvals: ApprovalCard,
    /// Where peers may reach the agent.
    pub listen: Option<String>,
    /// Peers the agent may talk to: name, DID, endpoint.
    pub peers: Vec<(String, String, String)>,
    /// Shell commands that the agent CLI runs.
    pub hooks: Vec<HookCard>,
    /// Skills, instructions, workflows and extensions, and where their bytes come from.
    pub content: Vec<Content>,
    /// What the lock pins.
    pub pins: Vec<Pin>,
    /// What is declared but not pinned, or no longer what the pin says.
    pub drift: Vec<Drift>,
    /// Whether there is a lock at all.
    pub locked: bool,
}

/// Who the agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentCard {
    /// Name.
    pub name: String,
    /// Version.
    pub version: Option<String>,
    /// Owner.
    pub owner: Option<String>,
    /// DID.
    pub did: Option<String>,
    /// Declared capabilities.
    pub capabilities: Vec<String>,
}

/// Where the agent may connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkCard {
    /// How wide.
    pub egress: Egress,
    /// Hosts, as declared.
    pub hosts: Vec<String>,
}

/// Which tools of a server may be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tools {
    /// All that it offers.
    All,
    /// None.
    None,
    /// These.
    Only(Vec<String>),
}

/// One MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerCard {
    /// Its name.
    pub name: String,
    /// Stdio: the program and its arguments, references unresolved.
    pub command: Option<Vec<String>>,
    /// HTTP: the address that is contacted.
    pub url: Option<String>,
    /// HTTP: the headers that are added, references unresolved.
    pub headers: BTreeMap<String, String>,
    /// Stdio: the variables that are set, references unresolved.
    pub env: BTreeMap<String, String>,
    /// Stdio: where it may connect to itself.
    pub hosts: Vec<String>,
    /// Which tools.
    pub tools: Tools,
    /// Which methods beyond tools, ping and the handshake.
    pub methods: Vec<String>,
    /// Files of the project that it runs and that the lock pins.
    pub project_files: Vec<String>,
    /// What else of the project its command names or is steered by, and nothing pins.
    pub unpinned_files: Vec<String>,
    /// What the lock pins of its tools; `None`: what it offers is not pinned.
    pub pinned_tools: Option<ToolsCard>,
}

/// One file that a command runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramCard {
    /// `agent`, or a server's name.
    pub whose: String,
    /// The file, no link on the way.
    pub path: String,
    /// Digest of its bytes.
    pub digest: String,
}

/// One secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretCard {
    /// Variable name.
    pub name: String,
    /// Who gets its value, and how.
    pub goes_to: Vec<String>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Manifest key.
    pub key: String,
    /// As declared.
    pub value: String,
}

/// `[approvals]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApprovalCard {
    /// What a timeout does.
    pub on_timeout: OnTimeout,
    /// `server/tool`, and the condition where there is one.
    pub require: Vec<String>,
    /// Keys that may sign a decision.
    pub approvers: Vec<String>,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HookCard {
    /// Its name.
    pub name: String,
    /// When it runs.
    pub event: String,
    /// What the shell gets.
    pub command: String,
}

/// Bytes that reach an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Content {
    /// `skill`, `instruction`, `workflow`, `extension`, `setting`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Where it comes from; of a setting, its value as JSON.
    pub source: String,
    /// Whether the lock's word is all there is for that: this machine did not bring it from there.
    pub unseen_origin: bool,
}
