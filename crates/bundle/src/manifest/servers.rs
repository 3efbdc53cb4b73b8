//! `[servers.*]`

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{HostRule, ToolName};

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
