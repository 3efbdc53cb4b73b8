//! May this call go through? The one dispatch function and the MCP gate.

#![forbid(unsafe_code)]

mod approve;
mod asked;
mod budget;
mod call;
mod catalog;
mod decide;
mod doors;
mod error;
mod fate;
mod follow;
mod list;
mod listen;
mod offer;
mod permit;
mod rounds;
mod scrub;
mod seams;
mod selection;
mod serve;
mod sessions;
mod signin;
mod stop;
#[cfg(test)]
mod tests;
mod tools;
mod upstream;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ringfence_approval::Approver;
use ringfence_bundle::{Id, Server, ServerId, ToolPins, Toolset};
use ringfence_mcp::UpstreamError;
use ringfence_policy::{Principal, Ruleset};
use ringfence_record::Recorder;
use ringfence_secrets::{Resolver, Secret, SignIns};
use ringfence_spend::Purse;
use ringfence_trust::{Store, TrustedBundle, Watch};
use tokio::io::{AsyncRead, AsyncWrite};

pub use call::JudgedRequest;
pub use doors::{Lease, LeaseBook, aggregated, compact, transparent};
pub use error::{Error, Refusal};
pub use fate::{Fate, Told};
pub use offer::{Offer, Unfit};
pub use selection::Selection;
pub use serve::At;
pub use signin::{Desk, Login, LoginError, Say, SignedOut, sign_out};
pub use stop::{Halt, Stop};

use seams::{Journal, Judge, Trust, Vault};

/// A started stdio server.
pub struct Launched {
    /// Its stdin.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its stdout.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// The secrets that were put into its environment, by name, so that they can be taken out of
    /// its replies.
    pub secrets: Vec<(String, Secret)>,
    /// Ends it, gently then firmly, when dropped.
    pub guard: Box<dyn Send>,
    /// Knows what becomes of it, where somebody does.
    pub fate: Option<Box<dyn Fate>>,
}

/// Starts stdio servers; `run` implements it, so that `gateway` knows no sandbox.
pub trait Launcher: Send + Sync + 'static {
    /// Starts one. The error is for people and says what to do.
    fn launch<'a>(
        &'a self,
        server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>>;
}

/// What a gateway is made of.
pub struct Parts {
    /// The bundle whose servers it serves.
    pub bundle: Arc<TrustedBundle>,
    /// Asked at every call whether the bundle is still the trusted one.
    pub store: Store,
    /// The rules.
    pub ruleset: Arc<Ruleset>,
    /// The evidence.
    pub recorder: Recorder,
    /// Resolves `${NAME}` in headers.
    pub secrets: Resolver,
    /// The tokens of servers that a person signed in to.
    pub signins: SignIns,
    /// Starts stdio servers.
    pub launcher: Arc<dyn Launcher>,
    /// Asks people where a rule wants it. Without one, such calls are refused.
    pub approver: Option<Arc<dyn Approver>>,
    /// The budget. Without one, nothing is paid for.
    pub purse: Option<Arc<dyn Purse>>,
    /// Told when the run is to end: a cap was crossed, or nobody answered in time.
    pub stop: Stop,
    /// Keeps the table of leases. Without one, leases are kept in memory alone.
    pub leases: Option<Arc<dyn LeaseBook>>,
}

/// Who makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose call it is.
    pub principal: Principal,
    /// Which of them, where a door tells them apart by a token: 1 to 64 of A-Z, a-z, 0-9, `-`, `_`.
    pub name: Option<Arc<str>>,
}

impl Caller {
    /// The agent, on a door of its own.
    #[must_use]
    pub fn agent() -> Self {
        Self { principal: Principal::Agent, name: None }
    }

    /// Whose request it is that a door let in.
    fn at(&self, asker: &ringfence_mcp::Asker) -> Self {
        let name = asker.principal.clone().or_else(|| self.name.clone());
        Self { principal: self.principal.clone(), name }
    }
}

impl std::fmt::Display for Caller {
    /// As in the record: `agent`, or `client:<name>` where a door tells clients apart.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            None => write!(f, "{}", self.principal),
            Some(name) => write!(f, "client:{}", name.escape_debug()),
        }
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// Starting a server, and each step of its handshake.
    pub(crate) connect: Duration,
    /// One call.
    pub(crate) call: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(30), call: Duration::from_secs(120) }
    }
}

/// The servers there are, and what the lock says of them.
pub(crate) struct Declared {
    pub(crate) servers: BTreeMap<ServerId, Server>,
    pub(crate) toolsets: BTreeMap<Id, Toolset>,
    pub(crate) pins: Vec<ToolPins>,
}

/// The rooms that a gateway asks.
pub(crate) struct Rooms {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) judge: Arc<dyn Judge>,
    pub(crate) trust: Arc<dyn Trust>,
    pub(crate) vault: Arc<dyn Vault>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) purse: Option<Arc<dyn Purse>>,
    pub(crate) stop: Stop,
    pub(crate) leases: Option<Arc<dyn LeaseBook>>,
}

/// The chokepoint of every MCP call.
pub struct Gateway {
    journal: Arc<dyn Journal>,
    judge: Arc<dyn Judge>,
    trust: Arc<dyn Trust>,
    approver: Option<Arc<dyn Approver>>,
    purse: Option<Arc<dyn Purse>>,
    stop: Stop,
    leases: Option<Arc<dyn LeaseBook>>,
    servers: BTreeMap<ServerId, Server>,
    toolsets: BTreeMap<Id, Toolset>,
    upstreams: upstream::Table,
    calls: AtomicU64,
    held: std::sync::Mutex<BTreeMap<ServerId, list::Held>>,
    listing: BTreeMap<ServerId, tokio::sync::Mutex<()>>,
    pins: BTreeMap<ServerId, ToolPins>,
    catalog: Arc<catalog::Catalog>,
    /// Digest of the ruleset.
    ruleset: String,
    /// The server of the gateway's own tools.
    ourselves: ServerId,
    /// What is kept of clients' sessions.
    sessions: Arc<sessions::Sessions>,
    /// For what goes on by itself: it keeps no gateway.
    me: std::sync::Weak<Self>,
}

impl Gateway {
    /// A gateway that holds each server to its pins, if the lock has some. Contacts nobody yet.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let lock = parts.bundle.snapshot().lock.as_ref();
        let pins = lock.map(|lock| lock.tools.clone()).unwrap_or_default();
        Self::held_to(pins, parts)
    }

    /// A gateway that asks servers what they offer now, whatever the lock says: it serves nobody,
    /// see [`Gateway::offer`]. Contacts nobody yet.
    #[must_use]
    pub fn asking(parts: Parts) -> Arc<Self> {
        Self::held_to(Vec::new(), parts)
    }

    fn held_to(pins: Vec<ToolPins>, parts: Parts) -> Arc<Self> {
        let journal = Arc::new(parts.recorder.clone());
        let keys = signin::Keys::new(parts.secrets.clone(), parts.signins.clone(), journal);
        Self::held_by(pins, parts, Arc::new(keys), Waits::default())
    }

    fn held_by(
        pins: Vec<ToolPins>,
        parts: Parts,
        vault: Arc<dyn Vault>,
        waits: Waits,
    ) -> Arc<Self> {
        let manifest = &parts.bundle.snapshot().manifest;
        let (servers, toolsets) = (manifest.servers.clone(), manifest.toolsets.clone());
        let declared = Declared { servers, toolsets, pins };
        let trust = Watch::new(parts.store, parts.bundle);
        let rooms = Rooms {
            journal: Arc::new(parts.recorder),
            judge: parts.ruleset,
            trust: Arc::new(trust),
            vault,
            launcher: parts.launcher,
            approver: parts.approver,
            purse: parts.purse,
            stop: parts.stop,
            leases: parts.leases,
        };
        Self::assemble(declared, rooms, waits)
    }

    /// The methods beside tools that a server's declaration lists.
    pub(crate) fn methods(&self, server: &ServerId) -> &[String] {
        self.servers.get(server).map(|server| server.methods.as_slice()).unwrap_or_default()
    }

    /// What a server tells a model about itself: by the lock, or as it said when it was connected
    /// to. Contacts nobody.
    pub(crate) fn instructions(&self, server: &ServerId) -> Option<String> {
        match self.pins.get(server) {
            Some(_) if self.upstreams.stranger(server).is_some() => None,
            Some(pins) => pins.instructions.clone(),
            None => self.upstreams.said(server),
        }
    }

    /// The error with what is known of the server's end, for the person at the machine and never for
    /// the agent.
    #[must_use]
    pub fn detail(&self, server: &ServerId, error: &UpstreamError) -> String {
        match self.upstreams.words(server) {
            Some(words) => format!("{}; {words}", error.detail()),
            None => error.detail(),
        }
    }

    pub(crate) fn assemble(
        Declared { servers, toolsets, pins }: Declared,
        rooms: Rooms,
        waits: Waits,
    ) -> Arc<Self> {
        let Rooms { journal, judge, trust, vault, launcher, approver, purse, stop, leases } = rooms;
        let ruleset = judge.digest();
        let catalog = Arc::<catalog::Catalog>::default();
        let sessions = Arc::<sessions::Sessions>::default();
        let (shown, kept) = (Arc::clone(&catalog), Arc::clone(&sessions));
        let upstreams = upstream::Table::new(&servers, &pins, vault, launcher, waits, shown, kept);
        let held = |id: &ServerId| list::Held::to(pins.iter().find(|pins| pins.server == *id));
        let held = servers.keys().map(|id| (id.clone(), held(id))).collect();
        let listing = servers.keys().map(|id| (id.clone(), Default::default())).collect();
        Arc::new_cyclic(|me| Self {
            me: std::sync::Weak::clone(me),
            sessions,
            journal,
            judge,
            trust,
            approver,
            purse,
            stop,
            leases,
            servers,
            toolsets,
            upstreams,
            calls: AtomicU64::new(1),
            held: std::sync::Mutex::new(held),
            listing,
            pins: pins.into_iter().map(|pins| (pins.server.clone(), pins)).collect(),
            catalog,
            ruleset,
            ourselves: ServerId::parse("ringfence").expect("it is a name"),
        })
    }
}
