//! What may be called now, whole, for doors that show many servers as one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_bundle::ServerId;
use ringfence_mcp::UpstreamError;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::{Gateway, Selection};

/// Servers that are asked for their tools at once.
const AT_ONCE: usize = 16;
/// How long a list waits for servers that must be asked. What comes later is in the next one.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server that gave no list is left alone by lists.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);
/// Bytes of the definitions of one server without pins that are kept.
pub(crate) const BYTES: usize = 16 << 20;
/// Bytes of the definitions of all of them.
const ALL_BYTES: usize = 64 << 20;

/// A tool that may be called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// As its server spells it.
    pub(crate) name: String,
    /// Its definition, as JSON: a value takes many times the memory.
    pub(crate) text: Box<str>,
}

impl Shown {
    pub(crate) fn new(name: &str, definition: &Value) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), text: definition.to_string().into() })
    }
}

/// Tools by name.
pub(crate) type Tools = Arc<[Arc<Shown>]>;

/// What the definitions of a gateway take, and how often they changed.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    bytes: AtomicUsize,
    changes: AtomicU64,
}

impl Catalog {
    /// Changes whenever what may be called does.
    pub(crate) fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Room for more definitions; false when there is none.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let room = |used: usize| used.checked_add(bytes).filter(|used| *used <= ALL_BYTES);
        self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// What several servers offer.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    /// By server.
    pub(crate) tools: BTreeMap<ServerId, Tools>,
    /// Gave no list, or not in time.
    pub(crate) missing: Vec<ServerId>,
    /// [`Catalog::version`] before they were looked at.
    pub(crate) version: u64,
}

impl Gateway {
    /// What may be called now of each server. Servers with pins are not contacted: what they say is
    /// looked at when one of their tools is called. The others are asked, each as a decision of its
    /// own in the record; one that is down takes nothing away from the rest.
    pub(crate) async fn offered(self: &Arc<Self>, selection: &Selection) -> Offered {
        let mut offered = Offered { version: self.catalog.version(), ..Offered::default() };
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        for server in selection.servers() {
            if let Some(tools) = self.known(server) {
                offered.tools.insert(server.clone(), tools);
                continue;
            }
            let (gateway, server, places) = (Arc::clone(self), server.clone(), Arc::clone(&places));
            asking.spawn(async move {
                // One that is slow is asked to the end, for the next list.
                let asked = tokio::spawn(async move {
                    let _place = places.acquire_owned().await;
                    let listed = gateway.ask_for_tools(&server).await;
                    (server, listed)
                });
                asked.await.ok()
            });
        }
        let all = async {
            while let Some(asked) = asking.join_next().await {
                if let Ok(Some((server, Ok(tools)))) = asked {
                    offered.tools.insert(server, tools);
                }
            }
        };
        // What is missing then is said below.
        let _ = tokio::time::timeout(PATIENCE, all).await;
        let missing = selection.servers().iter();
        offered.missing =
            missing.filter(|server| !offered.tools.contains_key(*server)).cloned().collect();
        offered
    }

    /// What is known without contacting anybody.
    fn known(&self, server: &ServerId) -> Option<Tools> {
        if self.upstreams.stranger(server).is_some() {
            return Some(Arc::new([]));
        }
        if self.pins.contains_key(server) || self.stands(server) {
            return self.shown(server);
        }
        None
    }

    async fn ask_for_tools(&self, server: &ServerId) -> Result<Tools, Error> {
        self.hold_whole(server).await?;
        let nothing = || Error::Upstream {
            error: UpstreamError::Nonsense { reason: "its tools are not known".into() },
        };
        self.shown(server).ok_or_else(nothing)
    }
}
