//! What every connection of one run shares.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence_bundle::Host;
use ringfence_policy::{Decision, Principal, Ruleset};
use ringfence_record::{Event, Recorder};
use tokio::sync::Semaphore;

use crate::address::{AddressError, CheckedAddr, check_addresses};
use crate::local::Locals;
use crate::resolve::{ResolveError, Resolver};

/// Says whether a principal may connect somewhere.
pub(crate) trait Judge: Send + Sync {
    fn egress(&self, who: &Principal, host: &Host, port: u16) -> Decision;
    /// Whether what goes through a tunnel there is not looked at. Asked of what is allowed.
    fn is_opaque(&self, who: &Principal, host: &Host, port: u16) -> bool {
        let _ = (who, host, port);
        false
    }
}

impl Judge for Arc<Ruleset> {
    fn egress(&self, who: &Principal, host: &Host, port: u16) -> Decision {
        Ruleset::egress(self, who, host, port)
    }
    fn is_opaque(&self, who: &Principal, host: &Host, port: u16) -> bool {
        Ruleset::is_opaque(self, who, host, port)
    }
}

/// Keeps the evidence.
pub(crate) trait Journal: Send + Sync {
    /// Takes an event that will be durable within 100 ms, or says why it cannot.
    fn note(&self, event: Event) -> Result<(), String>;
    /// Waits until everything that was noted so far is where it no longer depends on this process's peer,
    /// or says why it never will be. What a supervisor keeps itself is there at once.
    fn taken(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Waits until it is not far behind.
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl Journal for Recorder {
    fn note(&self, event: Event) -> Result<(), String> {
        Self::note(self, event).map_err(|error| error.to_string())
    }
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Self::room(self))
    }
}

/// Checks an answer's addresses.
pub(crate) trait Addresses: Send + Sync {
    fn check<'a>(&'a self, answers: &'a [IpAddr]) -> Check<'a>;
}

/// A check under way.
pub(crate) type Check<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<CheckedAddr>, AddressError>> + Send + 'a>>;

impl Addresses for Locals {
    fn check<'a>(&'a self, answers: &'a [IpAddr]) -> Check<'a> {
        Box::pin(async { check_addresses(answers, self) })
    }
}

/// Finds the addresses of an allowed name.
pub(crate) trait Names: Send + Sync {
    /// Both families' addresses of a name in canonical form, without a trailing dot.
    fn lookup<'a>(&'a self, name: &'a str) -> Lookup<'a>;
}

/// A lookup under way.
pub(crate) type Lookup<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

impl Names for Resolver {
    fn lookup<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(Self::lookup(self, name))
    }
}

/// What a run refuses on top of its rules. The default is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strictness {
    /// Nothing is reached by an address: a request names its host.
    pub refuse_literals: bool,
    /// Nothing passes but TLS that names its host: no plain HTTP, and every tunnel is looked at, also where
    /// a rule says `opaque`.
    pub tls_only: bool,
}

/// Bounds on what a peer can hold.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Connections of one listener at a time, and with them the streams of those that carry many; more
    /// connections wait in the kernel's queue, more streams are refused.
    pub(crate) connections: usize,
    /// The same, of all listeners together.
    pub(crate) all_connections: usize,
    /// A connection on which no request has begun.
    pub(crate) waiting: Duration,
    /// From a request's first byte to the end of its head.
    pub(crate) head: Duration,
    /// From the answer to CONNECT to a whole ClientHello.
    pub(crate) hello: Duration,
    /// A tunnel or an exchange in which not a byte moves either way.
    pub(crate) idle: Duration,
    /// A tunnel or an exchange, however busy.
    pub(crate) total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            all_connections: 4096,
            waiting: Duration::from_secs(60),
            head: Duration::from_secs(10),
            hello: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            total: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// The parts of a run's proxy.
pub(crate) struct Engine {
    pub(crate) judge: Box<dyn Judge>,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) addresses: Box<dyn Addresses>,
    pub(crate) names: Box<dyn Names>,
    pub(crate) limits: Limits,
    pub(crate) strictness: Strictness,
    /// Room for connections, of all listeners together.
    pub(crate) room: Arc<Semaphore>,
    numbers: AtomicU64,
}

impl Engine {
    pub(crate) fn new(
        judge: Box<dyn Judge>,
        journal: Box<dyn Journal>,
        addresses: Box<dyn Addresses>,
        names: Box<dyn Names>,
        limits: Limits,
    ) -> Self {
        let room = Arc::new(Semaphore::new(limits.all_connections));
        Self {
            judge,
            journal,
            addresses,
            names,
            limits,
            strictness: Strictness::default(),
            room,
            numbers: AtomicU64::new(1),
        }
    }

    /// With more refused than the rules do.
    pub(crate) fn with_strictness(self, strictness: Strictness) -> Self {
        Self { strictness, ..self }
    }

    /// The next connection number of the run.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}
