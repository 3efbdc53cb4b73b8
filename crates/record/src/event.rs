//! The one event type.

use serde::{Deserialize, Serialize};

use crate::RunId;

/// How a decision ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It may go on.
    Allowed,
    /// It may not.
    Refused,
}

/// What a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An agent in a sandbox.
    #[default]
    Run,
    /// Servers are asked what they offer.
    Ask,
    /// Servers are served to clients outside.
    Serve,
}

impl Kind {
    /// As in the record: `run`, `ask` or `serve`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Ask => "ask",
            Self::Serve => "serve",
        }
    }
}

/// One step of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `trust`, `tools`, `methods`, `ruleset`, `pin`, `approval`, `budget`, `name`, `port`, `address`, …
    pub check: String,
    /// What it said.
    pub outcome: Outcome,
    /// Which rule of which layer, as a person reads it, for example
    /// `machine.toml:12 [policy.egress] "*"`.
    pub rule: String,
}

/// One attempt of a backend's probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was tried.
    pub check: String,
    /// `blocked`, `reachable`, `unclear` (it could not be tried), or `control` (the positive control).
    pub result: String,
    /// Whether that is what must be.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
}

/// What happened. Names are stable; a field may be added, never given another meaning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A run was assembled and is about to start.
    RunStarted {
        /// What it is. Records from before there was more than one kind do not say it.
        #[serde(default)]
        kind: Kind,
        /// Project folder.
        project: String,
        /// Consent digest of the bundle.
        consent: String,
        /// Name of the backend that was chosen.
        backend: String,
        /// Mode label of a session that has no sandbox of its own. Every other one has it from
        /// [`Event::SandboxStarted`], once it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// The command's program and arguments.
        command: Vec<String>,
        /// Digest of the ruleset.
        ruleset: String,
        /// Supervisor's process id.
        pid: u32,
        /// Supervisor's start time in clock ticks since boot, so that a reused id is told apart.
        pid_started: u64,
    },
    /// The backend tried its own sandbox from inside.
    SandboxProbed {
        /// Who was put in it: `agent` or a server's name.
        principal: String,
        /// Whether nothing got out and every control worked; the process was not started otherwise.
        tight: bool,
        /// Every attempt, or the one that was not as it must be.
        attempts: Vec<Attempt>,
    },
    /// What a container's sandbox is made from; before it is tried.
    SandboxImage {
        /// `agent`.
        principal: String,
        /// As it is declared.
        image: String,
        /// The digest of the image's configuration, by which the container was made: `sha256:…`.
        digest: String,
        /// Its digest in the registry that it came from, where it came from one.
        repository: Option<String>,
        /// The engine's version.
        engine: String,
        /// The OCI runtime.
        runtime: String,
    },
    /// A process was released into its sandbox.
    SandboxStarted {
        /// `agent` or a server's name.
        principal: String,
        /// Mode label, for example `NATIVE / ENFORCED`: its probe has passed. `HOST / ADVISORY` has no wall
        /// that could be probed. Records from before it was said here do not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
    },
    /// A connection was judged.
    EgressDecided {
        /// `agent` or a server's name.
        principal: String,
        /// Connection number within the run.
        connection: u64,
        /// `CONNECT` or the HTTP method.
        method: String,
        /// Host as judged, or as given (escaped) when it did not parse.
        host: String,
        /// Port.
        port: u16,
        /// The verdict.
        outcome: Outcome,
        /// Every step taken.
        steps: Vec<Step>,
        /// The address dialled, when one was.
        address: Option<String>,
    },
    /// A connection that was allowed has ended.
    EgressClosed {
        /// Connection number within the run.
        connection: u64,
        /// Bytes from the sandbox.
        sent: u64,
        /// Bytes to the sandbox.
        received: u64,
        /// Why it ended, for example `closed`, `sni-mismatch`, `connect-failed: …`.
        reason: String,
    },
    /// A request to an MCP server was judged; durable before it goes on.
    CallDecided {
        /// Number within the run.
        call: u64,
        /// Who asked.
        principal: String,
        /// Server's name.
        server: String,
        /// MCP method.
        method: String,
        /// Tool, for `tools/call`.
        tool: Option<String>,
        /// SHA-256 of the canonical arguments.
        arguments: Option<String>,
        /// SHA-256 of the other canonical parameters, where there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other_params: Option<String>,
        /// The verdict.
        outcome: Outcome,
        /// Every step taken.
        steps: Vec<Step>,
    },
    /// What became of a call that went through.
    CallSettled {
        /// Number within the run.
        call: u64,
        /// `answered`, `error`, `cancelled`, `failed`.
        result: String,
        /// Why, when it failed.
        detail: Option<String>,
        /// Milliseconds from decision to settlement.
        elapsed_ms: u64,
        /// What was charged, in USD as an exact decimal, where the call was priced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<String>,
    },
    /// A call waits for a person; durable before anybody can answer.
    ApprovalAsked {
        /// The question's id, which an answer names.
        question: String,
        /// Number of the call within the run.
        call: u64,
        /// Who calls.
        principal: String,
        /// Server's name.
        server: String,
        /// Tool.
        tool: String,
        /// The rule that wants an approval.
        rule: String,
        /// Digest of everything that a yes is bound to.
        digest: String,
        /// When it expires, RFC 3339 UTC.
        expires: String,
    },
    /// What became of a question; durable before a call goes on by it.
    ApprovalAnswered {
        /// The question's id.
        question: String,
        /// As in [`Event::ApprovalAsked`].
        digest: String,
        /// `approved`, `denied`, `timed_out`, `withdrawn` or `failed`.
        answer: String,
        /// `terminal`, `command`, `webhook`; `none` when nobody answered.
        channel: String,
        /// Who, where somebody did: a user of this machine, or an approver's key.
        by: Option<String>,
        /// In their words, or why it failed.
        reason: Option<String>,
    },
    /// An approver was not reached, or what it said was no answer: the question waits on.
    ApprovalUnheard {
        /// The question's id.
        question: String,
        /// `webhook`.
        channel: String,
        /// Why. Never an address.
        reason: String,
    },
    /// So much of a spending cap is used that a person is to know; once for each cap and period.
    SpendWarned {
        /// Number of the call within the run that got there, or of a later one; absent when it was found at
        /// the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        call: Option<u64>,
        /// Which cap, its period, and how much of it is used, in words.
        detail: String,
    },
    /// A secret's name was resolved or refused. Never a value.
    SecretAccessed {
        /// For whom: `agent` or a server's name.
        principal: String,
        /// Variable name.
        name: String,
        /// The verdict.
        outcome: Outcome,
        /// Source, or the rule that refused.
        detail: String,
    },
    /// A person signed in to a server, or did not get through. Never a value.
    SignedIn {
        /// Server's name.
        server: String,
        /// Its declared address, which the token is bound to.
        url: String,
        /// Whether there is a token now.
        outcome: Outcome,
        /// Who gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issuer: Option<String>,
        /// What it is good for, as far as that was said.
        scopes: Vec<String>,
        /// Where it is kept, or why there is none.
        detail: String,
    },
    /// A sign-in was taken away. In the machine log.
    SignedOut {
        /// Server's name, or its address where it has none here.
        server: String,
        /// The address that the token was bound to.
        url: String,
        /// Who gave it.
        issuer: String,
        /// `revoked`, `not offered`, `failed: …`: what the issuer made of it.
        revoked: String,
    },
    /// A limit was reached and the run is being stopped.
    LimitReached {
        /// `duration`, `memory`, `pids`, `disk`, `cpu`, `record`, `spending`, `approval`.
        limit: String,
        /// What was seen and what was allowed.
        detail: String,
    },
    /// Somebody asked for the run to be stopped; before its end.
    StopRequested {
        /// Who: `uid 1000`.
        by: String,
    },
    /// The run is over.
    RunFinished {
        /// The agent's exit status as the shell gives it.
        status: i32,
        /// `exit`, `signal`, `limit`, `approval`, `stopped`, `error`.
        ended_by: String,
        /// More words, when there are any.
        detail: Option<String>,
    },
    /// The machine's trust store is about to change.
    TrustIntended {
        /// `grant`, `regrant`, `carry`, `revoke`.
        action: String,
        /// Project folder.
        project: String,
        /// Consent digest.
        consent: String,
        /// Pairs the two events.
        change: String,
        /// Review digest: consent and the programs that were shown with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        review: Option<String>,
    },
    /// The machine's trust store has changed (`done`) or has not (`failed`).
    TrustSettled {
        /// As in the intent.
        change: String,
        /// `done` or `failed`.
        result: String,
    },
    /// A run's file was made; chained into the machine log, so that a file that is taken away or put
    /// there is found.
    RunOpened {
        /// Which run.
        run: RunId,
        /// Who signs its file: the machine's DID, or the agent's.
        key: String,
    },
    /// A run's file was sealed; chained into the machine log.
    RunSealed {
        /// Which run.
        run: RunId,
        /// Lines in its file.
        lines: u64,
        /// Hash of its last line.
        head: String,
        /// First event's time.
        started: String,
        /// Last event's time.
        ended: String,
    },
    /// The bytes between the last signed line and this one are what a writer that was killed left
    /// behind: they are no evidence, and stay as they were found. Only in the machine log.
    TornLine {
        /// How many bytes, with the space and line end that close a line without its end.
        bytes: u64,
        /// SHA-256 of them, `sha256:…`.
        digest: String,
    },
    /// Closes a group: everything before it in the file is durable and signed.
    Commit {
        /// Who signs.
        key: String,
        /// Base64 of the Ed25519 signature, domain-separated, over this line as it is with an empty
        /// signature: its run, number, time and, by the previous line's hash, everything before it.
        signature: String,
    },
    /// An event of a newer program, when it is read; never written.
    #[serde(other)]
    Unknown,
}
