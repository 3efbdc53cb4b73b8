//! May this call go through? The one dispatch function and the MCP gate.

#![forbid(unsafe_code)]

mod call;
mod decide;
mod error;
mod fate;
mod list;
mod offer;
mod permit;
mod scrub;
mod seams;
mod serve;
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
use ringfence_bundle::{Server, ServerId, ToolPins};
use ringfence_mcp::UpstreamError;
use ringfence_policy::{Principal, Ruleset};
use ringfence_record::Recorder;
use ringfence_secrets::{Resolver, Secret};
use ringfence_spend::Purse;
use ringfence_trust::{Store, TrustedBundle};
use tokio::io::{AsyncRead, AsyncWrite};

pub use call::JudgedRequest;
pub use error::{Error, Refusal};
pub use fate::{Fate, Told};
pub use offer::{Offer, Unfit};
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
    /// Starts stdio servers.
    pub launcher: Arc<dyn Launcher>,
    /// Asks people where a rule wants it. Without one, such calls are refused.
    pub approver: Option<Arc<dyn Approver>>,
    /// The budget. Without one, nothing is paid for.
    pub purse: Option<Arc<dyn Purse>>,
    /// Told when the run is to end: a cap was crossed, or nobody answered in time.
    pub stop: Stop,
}

/// Who makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose call it is, for the record.
    pub principal: Principal,
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
}

/// The chokepoint of every MCP call.
pub struct Gateway {
    journal: Arc<dyn Journal>,
    judge: Arc<dyn Judge>,
    trust: Arc<dyn Trust>,
    approver: Option<Arc<dyn Approver>>,
    purse: Option<Arc<dyn Purse>>,
    stop: Stop,
    servers: BTreeMap<ServerId, Server>,
    upstreams: upstream::Table,
    calls: AtomicU64,
    held: std::sync::Mutex<BTreeMap<ServerId, list::Held>>,
    listing: BTreeMap<ServerId, tokio::sync::Mutex<()>>,
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
        let servers = parts.bundle.snapshot().manifest.servers.clone();
        let declared = Declared { servers, pins };
        let trust = seams::StoreTrust { store: parts.store, bundle: parts.bundle };
        let rooms = Rooms {
            journal: Arc::new(parts.recorder),
            judge: parts.ruleset,
            trust: Arc::new(trust),
            vault: Arc::new(parts.secrets),
            launcher: parts.launcher,
            approver: parts.approver,
            purse: parts.purse,
            stop: parts.stop,
        };
        Self::assemble(declared, rooms, Waits::default())
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
        Declared { servers, pins }: Declared,
        rooms: Rooms,
        waits: Waits,
    ) -> Arc<Self> {
        let Rooms { journal, judge, trust, vault, launcher, approver, purse, stop } = rooms;
        let upstreams = upstream::Table::new(&servers, &pins, vault, launcher, waits);
        let held = |id: &ServerId| list::Held::to(pins.iter().find(|pins| pins.server == *id));
        let held = servers.keys().map(|id| (id.clone(), held(id))).collect();
        let listing = servers.keys().map(|id| (id.clone(), Default::default())).collect();
        Arc::new(Self {
            journal,
            judge,
            trust,
            approver,
            purse,
            stop,
            servers,
            upstreams,
            calls: AtomicU64::new(1),
            held: std::sync::Mutex::new(held),
            listing,
        })
    }
}
