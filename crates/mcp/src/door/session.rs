//! One session: its requests, its streams, and what can be sent again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::exchange::Exchange;
use crate::exchange::questions::Questions;
use crate::{Asker, Backend, Id, Revision};

/// Requests of one session that are under way at once.
const IN_FLIGHT: usize = 128;
/// Bytes of events that one session keeps to send them again; the oldest are forgotten.
const KEPT: usize = 24 * 1024;
/// What each of them takes beside its text.
const BESIDE: usize = 96;
/// Bytes of what a client may declare that it can do: they are kept as long as the session.
pub(super) const DECLARED: usize = 4 * 1024;
/// JSON values in it.
pub(super) const DECLARED_VALUES: usize = 128;

pub(super) struct Session {
    asker: Asker,
    name: Arc<str>,
    pub(super) capabilities: Arc<Value>,
    pub(super) questions: Arc<Questions>,
    /// Set when it has ended.
    ended: CancellationToken,
    state: Mutex<State>,
}

struct State {
    ended: bool,
    /// Connections that it came over and that are there still.
    carriers: HashSet<u64>,
    /// Since when nothing is under way.
    idle: Instant,
    in_flight: HashMap<Id, Arc<Exchange>>,
    /// Streams that may be taken up again.
    streams: HashMap<u64, Arc<Stream>>,
    last_stream: u64,
    /// The stream of what belongs to no request.
    listening: Option<u64>,
    kept: VecDeque<Kept>,
    bytes: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            ended: false,
            carriers: HashSet::new(),
            idle: Instant::now(),
            in_flight: HashMap::new(),
            streams: HashMap::new(),
            last_stream: 0,
            listening: None,
            kept: VecDeque::new(),
            bytes: 0,
        }
    }
}

/// A stream that may be taken up again.
pub(super) struct Stream {
    pub(super) number: u64,
    pub(super) exchange: Arc<Exchange>,
    /// The request that it answers. `None` for the stream of what belongs to no request.
    pub(super) id: Option<Id>,
    /// Of the last event.
    place: AtomicU64,
}

impl Stream {
    /// The name of the last event.
    pub(super) fn last(&self) -> EventId {
        EventId { stream: self.number, place: self.place.load(Ordering::Relaxed) }
    }

    /// A name for the next event.
    pub(super) fn next(&self) -> EventId {
        let place = self.place.fetch_add(1, Ordering::Relaxed) + 1;
        EventId { stream: self.number, place }
    }
}

struct Kept {
    event: EventId,
    text: Bytes,
}

/// Names one event of a session: its stream, and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) stream: u64,
    pub(super) place: u64,
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.stream, self.place)
    }
}

impl EventId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (stream, place) = text.split_once('-')?;
        let event = Self { stream: stream.parse().ok()?, place: place.parse().ok()? };
        // One spelling alone.
        (event.to_string() == text).then_some(event)
    }
}

impl Session {
    pub(super) fn new(
        name: Arc<str>,
        revision: Revision,
        principal: Option<Arc<str>>,
        capabilities: Arc<Value>,
    ) -> Arc<Self> {
        let asker = Asker { session: Some(Arc::clone(&name)), revision, principal };
        Arc::new(Self {
            asker,
            name,
            capabilities,
            questions: Arc::default(),
            ended: CancellationToken::new(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn principal(&self) -> Option<&str> {
        self.asker.principal.as_deref()
    }

    pub(super) fn asker(&self) -> &Asker {
        &self.asker
    }

    pub(super) fn revision(&self) -> &str {
        self.asker.revision.as_str()
    }

    /// Whether its revision lets a client take up a broken stream (from 2025-03-26, transports).
    pub(super) fn resumes(&self) -> bool {
        self.revision() >= "2025-03-26"
    }

    /// Begins a request. `None` when its id is in use, too many are under way, or the session has
    /// just ended.
    pub(super) fn begin(
        self: &Arc<Self>,
        id: &Id,
        exchange: &Arc<Exchange>,
        backend: &Arc<dyn Backend>,
    ) -> Option<InFlight> {
        let mut state = self.lock();
        if state.ended || state.in_flight.len() >= IN_FLIGHT || state.in_flight.contains_key(id) {
            return None;
        }
        state.in_flight.insert(id.clone(), Arc::clone(exchange));
        let (session, backend) = (Arc::clone(self), Arc::clone(backend));
        Some(InFlight { session, id: id.clone(), backend })
    }

    /// It came over this connection. True when it had not before.
    pub(super) fn carry(&self, carrier: u64) -> bool {
        let mut state = self.lock();
        state.idle = Instant::now();
        !state.ended && state.carriers.insert(carrier)
    }

    /// A connection is gone. True when others carry it.
    pub(super) fn put_down(&self, carrier: u64) -> bool {
        let mut state = self.lock();
        state.carriers.remove(&carrier);
        !state.carriers.is_empty()
    }

    pub(super) fn is_carried(&self) -> bool {
        !self.lock().carriers.is_empty()
    }

    /// For how long nothing of it has been under way. `None` when something is.
    pub(super) fn idle(&self) -> Option<Duration> {
        let state = self.lock();
        (state.in_flight.is_empty() && state.streams.is_empty()).then(|| state.idle.elapsed())
    }

    /// Done when it has ended.
    pub(super) async fn over(&self) {
        self.ended.cancelled().await;
    }

    /// Cancels what `notifications/cancelled` names.
    pub(super) fn cancel(&self, params: Option<&Value>) {
        let id = params.and_then(|params| params.get("requestId")).and_then(Id::from_value);
        let found = id.and_then(|id| self.lock().in_flight.get(&id).cloned());
        if let Some(exchange) = found {
            exchange.cancel();
        }
    }

    /// A stream that can be taken up again. `None` when the session has just ended.
    pub(super) fn stream(&self, exchange: &Arc<Exchange>, id: Option<Id>) -> Option<Arc<Stream>> {
        let mut state = self.lock();
        if state.ended {
            return None;
        }
        state.last_stream += 1;
        let number = state.last_stream;
        let exchange = Arc::clone(exchange);
        let stream = Arc::new(Stream { number, exchange, id, place: AtomicU64::new(0) });
        state.streams.insert(number, Arc::clone(&stream));
        Some(stream)
    }

    /// The stream of what belongs to no request; one that was there before ends.
    pub(super) fn listen(&self, exchange: &Arc<Exchange>) -> Option<Arc<Stream>> {
        let stream = self.stream(exchange, None)?;
        let mut state = self.lock();
        let before = state.listening.replace(stream.number);
        let before = before.and_then(|before| state.streams.remove(&before));
        drop(state);
        if let Some(before) = before {
            before.exchange.cancel();
        }
        Some(stream)
    }

    /// A stream carries nothing more. What was sent on it may still be sent again.
    pub(super) fn closed(&self, stream: u64) {
        let mut state = self.lock();
        state.streams.remove(&stream);
        state.idle = Instant::now();
    }

    /// Keeps an event, to send it again.
    pub(super) fn keep(&self, event: EventId, text: &[u8]) {
        let mut state = self.lock();
        if state.ended || text.len() + BESIDE > KEPT {
            return;
        }
        state.bytes += text.len() + BESIDE;
        state.kept.push_back(Kept { event, text: Bytes::copy_from_slice(text) });
        while state.bytes > KEPT {
            let Some(oldest) = state.kept.pop_front() else { break };
            state.bytes -= oldest.text.len() + BESIDE;
        }
    }

    /// What came on a stream after an event, and the stream if it goes on. `None` when nothing is
    /// known of either.
    pub(super) fn after(&self, event: EventId) -> Option<(Vec<Bytes>, Option<Arc<Stream>>)> {
        let state = self.lock();
        let stream = state.streams.get(&event.stream).cloned();
        let later = state
            .kept
            .iter()
            .filter(|kept| kept.event.stream == event.stream && kept.event.place > event.place);
        let texts: Vec<_> = later.map(|kept| kept.text.clone()).collect();
        (stream.is_some() || !texts.is_empty()).then_some((texts, stream))
    }

    /// Ends it: what is under way is cancelled, and nothing new begins.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        let last = std::mem::take(&mut *state);
        state.ended = true;
        drop(state);
        self.ended.cancel();
        self.questions.end();
        last.in_flight.values().for_each(|exchange| exchange.cancel());
        last.streams.values().for_each(|stream| stream.exchange.cancel());
    }
}

/// A request that is under way; leaves the session when dropped.
pub(super) struct InFlight {
    session: Arc<Session>,
    id: Id,
    backend: Arc<dyn Backend>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        state.in_flight.remove(&self.id);
        state.idle = Instant::now();
        let late = state.ended;
        drop(state);
        if late {
            // It may have left something behind after its session was taken away.
            self.backend.ended(self.session.name());
        }
    }
}
