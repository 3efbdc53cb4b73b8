//! Is it permitted, and by which rule of which layer? Globs, intersection, ruleset.

use std::fmt;
use std::path::PathBuf;

use ringfence_bundle::{Diagnostic, Host, Isolation, Manifest, PolicyTables, SecretName, ServerId};
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

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent => f.write_str("agent"),
            Self::Server(id) => id.fmt(f),
        }
    }
}

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
    /// The layer that decided: the first that refused, or the last that was asked.
    pub layer: Layer,
    /// As a person reads it: file, line, table, key and pattern.
    pub rule: String,
}

/// `machine.toml`: the same policy tables and the ceilings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MachinePolicy {
    /// Where it was read, `None` when there is no file.
    pub file: Option<PathBuf>,
    /// `[policy.tools]`, `[policy.egress]`, `[policy.secrets]`, `[policy.filesystem]`
    pub tables: PolicyTables,
    /// `[policy]`
    pub ceilings: Ceilings,
}

/// The ceilings of `[policy]` in `machine.toml`. Absent constrains nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// No run below this level.
    pub isolation: Option<Isolation>,
    /// Globs over what `credentials` may name.
    pub credentials: Option<Vec<String>>,
    /// Decimal USD.
    pub max_per_run_usd: Option<String>,
    /// Decimal USD.
    pub max_per_day_usd: Option<String>,
    /// Decimal USD.
    pub max_per_month_usd: Option<String>,
    /// Seconds.
    pub max_duration_seconds: Option<u64>,
    /// Whether `on_timeout = "proceed"` is possible at all.
    pub allow_proceed: Option<bool>,
    /// Keys that may approve.
    pub approver_keys: Option<Vec<String>>,
    /// DIDs that may be peers.
    pub peers: Option<Vec<String>>,
    /// Refuse servers whose tools are not pinned.
    pub require_pinned_tools: Option<bool>,
    /// Whether generated code may run.
    pub allow_execute: Option<bool>,
}

/// Why policy could not be loaded or a bundle asks for too much.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `machine.toml` is not valid: nothing runs until it is mended.
    #[error("{} problem(s) in machine.toml", .0.len())]
    Machine(Vec<Diagnostic>),
    /// The bundle asks for more than the machine allows; each finding names both places.
    #[error("the bundle asks for more than this machine allows ({} finding(s))", .0.len())]
    Exceeds(Vec<Diagnostic>),
    /// A ruleset from a newer Ringfence.
    #[error("ruleset version {found} is newer than {known}, which this program understands")]
    Newer {
        /// What it says.
        found: u32,
        /// What is understood.
        known: u32,
    },
}

/// Both layers and the declared bounds, folded into the one artifact that every enforcer reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ruleset {
    /// Format.
    pub version: u32,
}

/// The file scopes of a run, each layer kept apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FsScopes {
    /// Subtrees and files that may be written, relative to the project, both layers intersected.
    pub write: Vec<PathBuf>,
    /// Subtrees below a writable one that may not.
    pub read_only: Vec<PathBuf>,
    /// Absolute paths outside the project that may be read.
    pub read_outside: Vec<PathBuf>,
}

impl MachinePolicy {
    /// Reads `<home>/machine.toml`; a missing file constrains nothing.
    ///
    /// # Errors
    /// [`Error::Machine`] with every problem, when it cannot be read or parsed.
    pub fn load(_home: &std::path::Path) -> Result<Self, Error> {
        todo!()
    }
}

impl Ruleset {
    /// Folds machine policy and manifest. Pure.
    ///
    /// # Errors
    /// [`Error::Exceeds`] when a ceiling refuses what the manifest declares.
    pub fn compile(_machine: &MachinePolicy, _manifest: &Manifest) -> Result<Self, Error> {
        todo!()
    }

    /// Digest of the canonical JSON form, `sha256:…`.
    #[must_use]
    pub fn digest(&self) -> String {
        todo!()
    }

    /// May this tool of this server be called? Asks the server's `tools`, the machine, the bundle.
    #[must_use]
    pub fn tool(&self, _server: &ServerId, _tool: &str) -> Decision {
        todo!()
    }

    /// May this method of this server be asked for? Handshake, ping and tools pass.
    #[must_use]
    pub fn method(&self, _server: &ServerId, _method: &str) -> Decision {
        todo!()
    }

    /// The rule that wants a person's yes for this call, if one does.
    #[must_use]
    pub fn approval_needed(
        &self,
        _server: &ServerId,
        _tool: &str,
        _arguments: &serde_json::Value,
    ) -> Option<String> {
        todo!()
    }

    /// May this principal connect there? Asks gateway-only hosts, the machine, the bundle, the
    /// declared hosts.
    #[must_use]
    pub fn egress(&self, _who: &Principal, _host: &Host, _port: u16) -> Decision {
        todo!()
    }

    /// May this principal have this secret?
    #[must_use]
    pub fn secret(&self, _who: &Principal, _name: &SecretName) -> Decision {
        todo!()
    }

    /// Is this path denied? Matched as relative path, absolute path and file name.
    #[must_use]
    pub fn denied(&self, _relative: &str, _absolute: &str) -> Option<Decision> {
        todo!()
    }

    /// What may be written and read, in the form a mount can enforce.
    ///
    /// # Errors
    /// [`Error::Exceeds`] when a pattern cannot be expressed as subtrees and files.
    pub fn scopes(&self) -> Result<FsScopes, Error> {
        todo!()
    }
}
