//! The connections to servers. Nothing outside this module can reach one, and it takes a permit.

mod connect;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_bundle::{Server, ServerId, ToolPins, Transport, json_digest};
use ringfence_mcp::{Client, Opening, Reply, RpcError, Upstream, UpstreamError};
use serde_json::{Value, json};

use crate::fate::{self, Fate};
use crate::permit::CallPermit;
use crate::scrub::Veil;
use crate::seams::Vault;
use crate::signin::Authority;
use crate::{Launcher, Waits};

use connect::Fallen;

/// One slot a server.
pub(crate) struct Table {
    slots: BTreeMap<ServerId, Slot>,
    vault: Arc<dyn Vault>,
    launcher: Arc<dyn Launcher>,
    waits: Waits,
}

struct Slot {
    transport: Transport,
    /// What the lock says that it says of itself, where it is pinned.
    pinned: Option<Option<String>>,
    /// Why nothing is asked of it any more in this run: it said something else.
    stranger: Mutex<Option<String>>,
    /// What is known of the failure that is not mended yet, for the person.
    words: Mutex<Option<String>>,
    state: tokio::sync::Mutex<State>,
}

struct State {
    live: Option<Arc<Live>>,
    generation: u64,
    opening: Opening,
    /// What it first said of itself: shown all through the run.
    hello: Option<Value>,
    failures: u32,
    not_before: Option<Instant>,
}

/// A connection.
struct Live {
    upstream: Upstream,
    generation: u64,
    veil: Veil,
    since: Instant,
    /// Ends a stdio server when dropped; after the connection, which closes its stdin.
    _guard: Mutex<Option<Box<dyn Send>>>,
    fate: Option<Box<dyn Fate>>,
    /// Whoever has its token.
    authority: Option<Arc<dyn Authority>>,
}

/// Why a forward gave no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection is not the one that was judged: nothing was sent.
    Stale,
    /// Its instructions are not the pinned ones, by this rule: nothing was sent.
    Stranger(String),
    /// As it says.
    Upstream(UpstreamError),
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        Self::Upstream(error)
    }
}

/// A server that has lived so long is not one that fails at its start.
const SETTLED: Duration = Duration::from_secs(60);

impl Table {
    pub(crate) fn new(
        servers: &BTreeMap<ServerId, Server>,
        pins: &[ToolPins],
        vault: Arc<dyn Vault>,
        launcher: Arc<dyn Launcher>,
        waits: Waits,
    ) -> Self {
        let pinned = |id: &ServerId| pins.iter().find(|pins| pins.server == *id);
        let slot = |id: &ServerId, server: &Server| Slot {
            transport: server.transport.clone(),
            pinned: pinned(id).map(|pins| pins.instructions.clone()),
            stranger: Mutex::default(),
            words: Mutex::default(),
            state: tokio::sync::Mutex::new(State {
                live: None,
                generation: 0,
                opening: Opening::Handshake,
                hello: None,
                failures: 0,
                not_before: None,
            }),
        };
        let slots = servers.iter().map(|(id, server)| (id.clone(), slot(id, server))).collect();
        Self { slots, vault, launcher, waits }
    }

    /// The connection that stands, and whether its server has said that its tools changed. Contacts
    /// nobody.
    pub(crate) async fn standing(&self, server: &ServerId) -> Option<(u64, bool)> {
        let state = self.slots.get(server)?.state.lock().await;
        let live = state.live.as_ref().filter(|live| !live.upstream.is_closed())?;
        Some((live.generation, live.upstream.take_tools_changed()))
    }

    /// The rule by which nothing is asked of a server any more. Contacts nobody.
    pub(crate) fn stranger(&self, server: &ServerId) -> Option<String> {
        self.slots.get(server)?.stranger()
    }

    /// How long one call may take.
    pub(crate) fn patience(&self) -> Duration {
        self.waits.call
    }

    /// Sends a judged message and waits for its answer, over the connection of that generation, or
    /// over any; gives the generation of the one that answered. Dropping the future tells the server.
    pub(crate) async fn forward(
        &self,
        client: &Arc<dyn Client>,
        permit: CallPermit,
        generation: Option<u64>,
    ) -> Result<(Value, u64), Failure> {
        let server = permit.server().clone();
        let (method, params) = permit.into_message();
        let mut live = self.live(&server, generation).await?;
        if matches!(method.as_str(), "initialize" | "server/discover") {
            let slot = self.slots.get(&server).ok_or(Failure::Stale)?;
            let mut hello = slot.state.lock().await.hello.clone().unwrap_or_else(|| json!({}));
            live.veil.result(&mut hello);
            return Ok((hello, live.generation));
        }
        let mut answer =
            live.upstream.request(client, &method, params.clone(), self.waits.call).await;
        if answer == Err(UpstreamError::SessionLost) {
            // It did nothing with the request, so it may be asked again; a pinned call is judged anew.
            self.forget(&server, &live).await;
            live = self.live(&server, generation).await?;
            answer = live.upstream.request(client, &method, params, self.waits.call).await;
        }
        match answer {
            Ok(Reply::Wants(_)) => {
                let reason = "it asks for input, which is not carried".to_owned();
                Err(UpstreamError::Nonsense { reason }.into())
            }
            Ok(Reply::Done(mut result)) => {
                self.answered(&server).await;
                live.veil.result(&mut result);
                Ok((result, live.generation))
            }
            Err(UpstreamError::Rpc(error)) => {
                self.answered(&server).await;
                Err(UpstreamError::Rpc(veiled(&live.veil, error)).into())
            }
            Err(error) => {
                let words = match connect::refused(&error, live.authority.as_deref()) {
                    Some(words) => Some(words),
                    None => fate::words(live.fate.as_deref(), &error, &live.veil).await,
                };
                self.learnt(&server, words);
                Err(error.into())
            }
        }
    }

    /// What is known of a server's failure, for the person. Contacts nobody.
    pub(crate) fn words(&self, server: &ServerId) -> Option<String> {
        self.slots.get(server)?.words().clone()
    }

    /// Nobody waits any more for a server: what is known of it then is kept for the person.
    pub(crate) async fn hung(&self, server: &ServerId, error: &UpstreamError) {
        let state = self.slots.get(server).and_then(|slot| slot.state.try_lock().ok());
        let Some(live) = state.and_then(|state| state.live.clone()) else { return };
        let words = fate::words(live.fate.as_deref(), error, &live.veil).await;
        self.learnt(server, words);
    }

    fn learnt(&self, server: &ServerId, words: Option<String>) {
        if let Some(slot) = self.slots.get(server) {
            *slot.words() = words;
        }
    }

    /// Lets every server go. A later call would connect anew.
    pub(crate) async fn close(&self) {
        for slot in self.slots.values() {
            slot.state.lock().await.live = None;
        }
    }

    async fn answered(&self, server: &ServerId) {
        if let Some(slot) = self.slots.get(server) {
            slot.state.lock().await.failures = 0;
        }
    }

    async fn forget(&self, server: &ServerId, gone: &Arc<Live>) {
        if let Some(slot) = self.slots.get(server) {
            let mut state = slot.state.lock().await;
            if state.live.as_ref().is_some_and(|live| Arc::ptr_eq(live, gone)) {
                state.live = None;
            }
        }
    }

    /// The connection, made if there is none. Who else comes meanwhile waits for it.
    async fn live(&self, server: &ServerId, generation: Option<u64>) -> Result<Arc<Live>, Failure> {
        let slot = self.slots.get(server).ok_or(Failure::Stale)?;
        let mut state = slot.state.lock().await;
        if let Some(rule) = slot.stranger() {
            return Err(Failure::Stranger(rule));
        }
        if let Some(live) = state.live.clone() {
            if !live.upstream.is_closed() {
                return match generation {
                    Some(wanted) if wanted != live.generation => Err(Failure::Stale),
                    _ => Ok(live),
                };
            }
            state.live = None;
            if live.since.elapsed() > SETTLED {
                state.failures = 0;
            }
            state.failed();
        }
        if generation.is_some() {
            return Err(Failure::Stale);
        }
        if let Some(wait) =
            state.not_before.and_then(|at| at.checked_duration_since(Instant::now()))
        {
            let reason = format!(
                "it failed {} times in a row and is tried again in {:.1} s",
                state.failures,
                wait.as_secs_f32()
            );
            return Err(UpstreamError::Down { reason: reason.clone(), detail: reason }.into());
        }
        match self.connect(server, &slot.transport, &mut state.opening).await {
            Ok((upstream, veil, authority, process)) => {
                self.learnt(server, None);
                let (guard, fate) = process.unzip();
                let mut hello = upstream.hello().clone();
                veil.result(&mut hello);
                if let Some(rule) = slot.differs(server, &hello["instructions"]) {
                    // What was connected to is let go here.
                    *slot.told() = Some(rule.clone());
                    return Err(Failure::Stranger(rule));
                }
                state.generation += 1;
                state.hello.get_or_insert_with(|| upstream.hello().clone());
                let live = Arc::new(Live {
                    upstream,
                    generation: state.generation,
                    veil,
                    since: Instant::now(),
                    _guard: Mutex::new(guard),
                    fate: fate.flatten(),
                    authority,
                });
                state.live = Some(Arc::clone(&live));
                Ok(live)
            }
            Err(Fallen { error, words }) => {
                state.failed();
                self.learnt(server, words);
                Err(error.into())
            }
        }
    }
}

impl Slot {
    fn told(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.stranger.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn words(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.words.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn stranger(&self) -> Option<String> {
        self.told().clone()
    }

    /// The rule that refuses a server which says this of itself.
    fn differs(&self, server: &ServerId, said: &Value) -> Option<String> {
        let pinned = self.pinned.as_ref()?;
        let pinned = pinned.as_ref().map_or(Value::Null, |text| Value::String(text.clone()));
        let digest = |text: &Value| match text {
            Value::Null => "none".to_owned(),
            text => json_digest(text).to_string(),
        };
        (pinned != *said).then(|| {
            format!(
                "lock: instructions of {server} are pinned as {}, and the server gives {}",
                digest(&pinned),
                digest(said)
            )
        })
    }
}

impl State {
    /// The first failure is mended at once; then half a second, doubled up to half a minute.
    fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = (self.failures > 1).then(|| {
            let doubled = 500_u64 << (self.failures - 2).min(6);
            Instant::now() + Duration::from_millis(doubled.min(30_000))
        });
    }
}

fn veiled(veil: &Veil, error: RpcError) -> RpcError {
    let mut text = json!({ "message": error.message, "data": error.data });
    veil.error(&mut text);
    let message = text["message"].as_str().unwrap_or_default().to_owned();
    let data = error.data.is_some().then(|| text["data"].take());
    RpcError { code: error.code, message, data }
}
