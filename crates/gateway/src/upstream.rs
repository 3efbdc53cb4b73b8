//! The connections to servers. Nothing outside this module can reach one, and it takes a permit.

mod connect;
mod follow;
mod shade;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_bundle::{Server, ServerId, ToolPins, Transport, json_digest};
use ringfence_mcp::{
    Client, Listening, Opening, Party, Reply, RpcError, Share, Upstream, UpstreamError, Wanted,
    with_log_level,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::asked::Asked;
use crate::catalog::Catalog;
use crate::fate::{self, Fate};
use crate::permit::CallPermit;
use crate::scrub::Veil;
use crate::seams::Vault;
use crate::sessions::Sessions;
use crate::signin::Authority;
use crate::{Launcher, Waits};

use connect::Fallen;
use shade::Shade;

/// One slot a server.
pub(crate) struct Table {
    slots: BTreeMap<ServerId, Slot>,
    vault: Arc<dyn Vault>,
    launcher: Arc<dyn Launcher>,
    waits: Waits,
    catalog: Arc<Catalog>,
    /// Questions of servers that clients think about.
    pub(crate) asked: Arc<Asked>,
    /// Changes whenever a server is up anew.
    ups: watch::Sender<u64>,
    sessions: Arc<Sessions>,
}

struct Slot {
    transport: Transport,
    /// What the lock says that it says of itself, where it is pinned.
    pinned: Option<Option<String>>,
    /// Why nothing is asked of it any more in this run: it said something else.
    stranger: Mutex<Option<String>>,
    /// What is known of the failure that is not mended yet, for the person.
    words: Mutex<Option<String>>,
    /// The connection, if there is one. Changed by whoever has the state.
    live: Mutex<Option<Arc<Live>>>,
    /// What it first said of itself: shown all through the run.
    hello: Mutex<Option<Value>>,
    failures: AtomicU32,
    /// What it may take of the memory for replies, over whatever connection.
    replies: Share,
    state: tokio::sync::Mutex<State>,
}

struct State {
    generation: u64,
    opening: Opening,
    not_before: Option<Instant>,
}

/// A connection.
struct Live {
    upstream: Upstream,
    generation: u64,
    veil: Arc<Veil>,
    since: Instant,
    /// It has said on a stream that its tools changed.
    tools_changed: Arc<AtomicBool>,
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
    /// There is no connection: nothing was sent.
    Unsent(UpstreamError),
    /// As it says. The server may have done something.
    Upstream(UpstreamError),
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
        catalog: Arc<Catalog>,
        sessions: Arc<Sessions>,
    ) -> Self {
        let pinned = |id: &ServerId| pins.iter().find(|pins| pins.server == *id);
        let slot = |id: &ServerId, server: &Server| Slot {
            transport: server.transport.clone(),
            pinned: pinned(id).map(|pins| pins.instructions.clone()),
            stranger: Mutex::default(),
            words: Mutex::default(),
            live: Mutex::default(),
            hello: Mutex::default(),
            failures: AtomicU32::new(0),
            replies: Share::default(),
            state: tokio::sync::Mutex::new(State {
                generation: 0,
                opening: Opening::Handshake,
                not_before: None,
            }),
        };
        let slots = servers.iter().map(|(id, server)| (id.clone(), slot(id, server))).collect();
        let (asked, ups) = (Arc::default(), watch::channel(0).0);
        Self { slots, vault, launcher, waits, catalog, asked, ups, sessions }
    }

    /// The connection that stands, and whether its server has said since this was last asked that its
    /// tools changed. Contacts nobody.
    pub(crate) fn standing(&self, server: &ServerId) -> Option<(u64, bool)> {
        let live = self.slots.get(server)?.up()?;
        let said = live.tools_changed.swap(false, Ordering::AcqRel);
        Some((live.generation, live.upstream.take_tools_changed() || said))
    }

    /// The connection that stands. Contacts nobody.
    pub(crate) fn generation(&self, server: &ServerId) -> Option<u64> {
        self.slots.get(server)?.up().map(|live| live.generation)
    }

    /// Hears of servers that are up anew.
    pub(crate) fn ups(&self) -> watch::Receiver<u64> {
        self.ups.subscribe()
    }

    /// What a server told a model about itself, as it was first connected to. Contacts nobody.
    pub(crate) fn said(&self, server: &ServerId) -> Option<String> {
        let hello = self.slots.get(server)?.hello();
        hello.as_ref()?.get("instructions")?.as_str().map(str::to_owned)
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
    /// over any; gives the generation of the one that answered. What the server says or asks
    /// meanwhile goes to the client, without secrets. Dropping the future tells the server.
    pub(crate) async fn forward(
        &self,
        client: &Arc<dyn Client>,
        permit: CallPermit,
        generation: Option<u64>,
    ) -> Result<(Reply, u64), Failure> {
        let server = permit.server().clone();
        let (method, mut params) = permit.into_message();
        let mut live = self.live(&server, generation).await?;
        if matches!(method.as_str(), "initialize" | "server/discover") {
            let slot = self.slots.get(&server).ok_or(Failure::Stale)?;
            let hello = slot.hello().clone().unwrap_or_else(|| json!({}));
            return Ok((Reply::Done(hello), live.generation));
        }
        let stateless = live.upstream.revision().is_stateless();
        let kept = self.sessions.of(client.as_ref(), &server).filter(|_| stateless);
        let level = match (&kept, method.as_str()) {
            (Some(_), "logging/setLevel") => log_level(params.as_ref()),
            (Some(kept), _) => {
                params = with_log_level(params, kept.level().as_deref());
                None
            }
            _ => None,
        };
        // Only a session can be lost.
        let again = (!live.upstream.revision().is_stateless()).then(|| params.clone());
        let shaded = self.shade(&live, &server, client);
        let mut answer = live.upstream.request(&shaded, &method, params, self.waits.call).await;
        if let (Err(UpstreamError::SessionLost), Some(params)) = (&answer, again) {
            // It did nothing with the request, so it may be asked again; a pinned call is judged anew.
            self.forget(&server, &live).await;
            live = self.live(&server, generation).await?;
            let shaded = self.shade(&live, &server, client);
            answer = live.upstream.request(&shaded, &method, params, self.waits.call).await;
        }
        match answer {
            Ok(Reply::Wants(wants)) => {
                self.answered(&server);
                let Some(wants) = live.veil.questions(wants) else {
                    let reason = "its questions are named by what nobody may see".to_owned();
                    return Err(Failure::Upstream(UpstreamError::Nonsense { reason }));
                };
                Ok((Reply::Wants(wants), live.generation))
            }
            Ok(Reply::Done(mut result)) => {
                self.answered(&server);
                if let (Some(kept), Some(level)) = (kept, level) {
                    kept.set_level(level);
                }
                live.veil.result(&mut result);
                Ok((Reply::Done(result), live.generation))
            }
            Err(UpstreamError::Rpc(error)) => {
                self.answered(&server);
                Err(Failure::Upstream(UpstreamError::Rpc(veiled(&live.veil, error))))
            }
            Err(error) => {
                let words = match connect::refused(&error, live.authority.as_deref()) {
                    Some(words) => Some(words),
                    None => fate::words(live.fate.as_deref(), &error, &live.veil).await,
                };
                self.learnt(&server, words);
                Err(Failure::Upstream(error))
            }
        }
    }

    /// Begins a stream of what a server says outside requests, over the connection of that
    /// generation, or over any. Gives its generation.
    pub(crate) async fn listen(
        &self,
        client: &Arc<dyn Client>,
        permit: CallPermit,
        generation: Option<u64>,
        wanted: Wanted,
    ) -> Result<(Listening, u64), Failure> {
        let live = self.live(permit.server(), generation).await?;
        let Listening { granted, passing } = live
            .upstream
            .listen(&self.shade(&live, permit.server(), client), wanted)
            .await
            .map_err(Failure::Upstream)?;
        let generation = live.generation;
        // A stream keeps no server: it ends when the connection does.
        drop(live);
        Ok((Listening { granted, passing }, generation))
    }

    /// The client of a server, told nothing that it may not see.
    fn shade(&self, live: &Live, server: &ServerId, client: &Arc<dyn Client>) -> Arc<dyn Client> {
        Arc::new(Shade {
            client: Arc::clone(client),
            server: server.clone(),
            generation: live.generation,
            veil: Arc::clone(&live.veil),
            tools_changed: Arc::clone(&live.tools_changed),
            asked: Arc::clone(&self.asked),
        })
    }

    /// Passes a judged notification on, over the connection of that generation or not at all.
    pub(crate) async fn tell(
        &self,
        party: &Party,
        permit: CallPermit,
        generation: u64,
    ) -> Result<(), UpstreamError> {
        let live = self.slots.get(permit.server()).and_then(Slot::up);
        let Some(live) = live.filter(|live| live.generation == generation) else { return Ok(()) };
        let (method, params) = permit.into_message();
        live.upstream.tell(party, &method, params).await
    }

    /// What is known of a server's failure, for the person. Contacts nobody.
    pub(crate) fn words(&self, server: &ServerId) -> Option<String> {
        self.slots.get(server)?.words().clone()
    }

    /// Nobody waits any more for a server: what is known of it then is kept for the person.
    pub(crate) async fn hung(&self, server: &ServerId, error: &UpstreamError) {
        let Some(live) = self.slots.get(server).and_then(Slot::live) else { return };
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
            let _state = slot.state.lock().await;
            slot.set(None);
        }
        self.vault.settled().await;
    }

    fn answered(&self, server: &ServerId) {
        if let Some(slot) = self.slots.get(server) {
            slot.failures.store(0, Ordering::Relaxed);
        }
    }

    async fn forget(&self, server: &ServerId, gone: &Arc<Live>) {
        if let Some(slot) = self.slots.get(server) {
            let _state = slot.state.lock().await;
            if slot.live().is_some_and(|live| Arc::ptr_eq(&live, gone)) {
                slot.set(None);
            }
        }
    }

    /// The connection, made if there is none. Who else comes meanwhile waits for it.
    async fn live(&self, server: &ServerId, generation: Option<u64>) -> Result<Arc<Live>, Failure> {
        let slot = self.slots.get(server).ok_or(Failure::Stale)?;
        let fits = |live: Arc<Live>| match generation {
            Some(wanted) if wanted != live.generation => Err(Failure::Stale),
            _ => Ok(live),
        };
        if let Some(live) = slot.up() {
            return fits(live);
        }
        let mut state = slot.state.lock().await;
        if let Some(rule) = slot.stranger() {
            return Err(Failure::Stranger(rule));
        }
        if let Some(live) = slot.live() {
            if !live.upstream.is_closed() {
                return fits(live);
            }
            slot.set(None);
            if live.since.elapsed() > SETTLED {
                slot.failures.store(0, Ordering::Relaxed);
            }
            state.failed(&slot.failures);
        }
        if generation.is_some() {
            return Err(Failure::Stale);
        }
        if let Some(wait) =
            state.not_before.and_then(|at| at.checked_duration_since(Instant::now()))
        {
            let reason = format!(
                "it failed {} times in a row and is tried again in {:.1} s",
                slot.failures.load(Ordering::Relaxed),
                wait.as_secs_f32()
            );
            let error = UpstreamError::Down { reason: reason.clone(), detail: reason };
            return Err(Failure::Unsent(error));
        }
        match self.connect(server, &slot.transport, &slot.replies, &mut state.opening).await {
            Ok((upstream, veil, authority, process)) => {
                self.learnt(server, None);
                let (guard, fate) = process.unzip();
                let mut hello = upstream.hello().clone();
                veil.result(&mut hello);
                if let Some(rule) = slot.differs(server, &hello["instructions"]) {
                    // What was connected to is let go here.
                    *slot.told() = Some(rule.clone());
                    self.catalog.changed();
                    return Err(Failure::Stranger(rule));
                }
                state.generation += 1;
                slot.hello().get_or_insert(hello);
                let live = Arc::new(Live {
                    upstream,
                    generation: state.generation,
                    veil: Arc::new(veil),
                    since: Instant::now(),
                    tools_changed: Arc::default(),
                    _guard: Mutex::new(guard),
                    fate: fate.flatten(),
                    authority,
                });
                slot.set(Some(Arc::clone(&live)));
                self.ups.send_modify(|ups| *ups += 1);
                Ok(live)
            }
            Err(Fallen { error, words }) => {
                state.failed(&slot.failures);
                self.learnt(server, words);
                Err(Failure::Unsent(error))
            }
        }
    }
}

impl Slot {
    fn live(&self) -> Option<Arc<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The connection, if it stands.
    fn up(&self) -> Option<Arc<Live>> {
        self.live().filter(|live| !live.upstream.is_closed())
    }

    fn set(&self, live: Option<Arc<Live>>) {
        let before = {
            let mut now = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, live)
        };
        // What ends with it may take its time.
        drop(before);
    }

    fn hello(&self) -> std::sync::MutexGuard<'_, Option<Value>> {
        self.hello.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.stranger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn words(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn failed(&mut self, failures: &AtomicU32) {
        let now = failures.load(Ordering::Relaxed).saturating_add(1);
        failures.store(now, Ordering::Relaxed);
        self.not_before = (now > 1).then(|| {
            let doubled = 500_u64 << (now - 2).min(6);
            Instant::now() + Duration::from_millis(doubled.min(30_000))
        });
    }
}

/// The level that a client sets.
fn log_level(params: Option<&Value>) -> Option<String> {
    params?.get("level")?.as_str().map(str::to_owned)
}

fn veiled(veil: &Veil, error: RpcError) -> RpcError {
    let mut text = json!({ "message": error.message, "data": error.data });
    veil.error(&mut text);
    let message = text["message"].as_str().unwrap_or_default().to_owned();
    let data = error.data.is_some().then(|| text["data"].take());
    RpcError { code: error.code, message, data }
}
