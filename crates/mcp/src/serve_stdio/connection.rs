//! One connection: whose it is, and what is under way on it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::door::answer::{self, Era};
use crate::door::{judge, listen};
use crate::envelope::response;
use crate::exchange::questions::Questions;
use crate::exchange::rounds::Rounds;
use crate::exchange::{Asking, Driver, Exchange, Hears, Next};
use crate::parked::{self, Binding, Parked, Round, Size, random};
use crate::revision::{META_CAPABILITIES, meta};
use crate::role::CANCELLED;
use crate::strict::{self, Limits};
use crate::{
    Answer, Asker, Backend, Client, Id, Message, Nobody, Party, Revision, RpcError, Wanted, code,
};

/// Requests under way at once; the next one is refused.
const IN_FLIGHT: usize = 256;
/// JSON values in all of them.
const VALUES: usize = 500_000;
/// Tasks beside the requests: refusals and notifications that wait. A client with more of them does
/// not read.
const OVERRUN: usize = 4 * IN_FLIGHT;

type Tasks = JoinSet<()>;

pub(super) struct Connection {
    backend: Arc<dyn Backend>,
    lines: mpsc::Sender<Bytes>,
    parked: Parked,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    values: usize,
    in_flight: HashMap<Id, Arc<Exchange>>,
    dated: Option<Dated>,
    listening: Option<Arc<Exchange>>,
}

/// After `initialize`.
#[derive(Clone)]
struct Dated {
    asker: Asker,
    capabilities: Arc<Value>,
    questions: Arc<Questions>,
}

impl Dated {
    fn exchange(&self) -> Arc<Exchange> {
        let asking = Asking::Requests(Arc::clone(&self.questions));
        Exchange::new(
            (&self.asker).into(),
            Arc::clone(&self.capabilities),
            asking,
            Hears::All,
            true,
        )
    }
}

/// A request that is under way; leaves the table when dropped.
struct Slot {
    connection: Arc<Connection>,
    id: Id,
    size: Size,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        state.in_flight.remove(&self.id);
        state.values -= self.size.values;
    }
}

impl Connection {
    pub(super) fn new(backend: Arc<dyn Backend>, lines: mpsc::Sender<Bytes>) -> Self {
        Self { backend, lines, parked: Parked::default(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_overrun(&self, tasks: &Tasks) -> bool {
        tasks.len() > OVERRUN
    }

    /// Takes one line.
    pub(super) fn take(self: &Arc<Self>, line: &[u8], limits: Limits, tasks: &mut Tasks) {
        let values = strict::values(line).min(limits.values);
        let size = Size { values, bytes: line.len() };
        let read = match strict::parse(line, limits) {
            Ok(value) => Message::from_value(value)
                .map_err(|error| RpcError::new(code::INVALID_REQUEST, error.to_string())),
            Err(error) => Err(RpcError::new(code::PARSE, error.to_string())),
        };
        match read {
            Err(error) => self.refuse(None, error, tasks),
            Ok(Message::Request { id, method, params }) => {
                if let Err(error) = self.request(&id, method, params, size, tasks) {
                    self.refuse(Some(&id), error, tasks);
                }
            }
            Ok(Message::Notification { method, params }) => self.notified(method, params, tasks),
            Ok(Message::Response { id, answer }) => {
                // An answer to nothing is nobody's loss.
                if let Some(dated) = &self.lock().dated {
                    dated.questions.answer(id.as_ref(), answer);
                }
            }
        }
    }

    pub(super) fn refuse(self: &Arc<Self>, id: Option<&Id>, error: RpcError, tasks: &mut Tasks) {
        let (text, lines) = (response(id, &Err(error)), self.lines.clone());
        tasks.spawn(async move {
            let _ = lines.send(text.into()).await;
        });
    }

    fn notified(self: &Arc<Self>, method: String, params: Option<Value>, tasks: &mut Tasks) {
        match method.as_str() {
            CANCELLED => {
                let id = params.as_ref().and_then(|params| params.get("requestId"));
                let id = id.and_then(Id::from_value);
                let found = id.and_then(|id| self.lock().in_flight.get(&id).cloned());
                if let Some(exchange) = found {
                    exchange.cancel();
                }
            }
            "notifications/initialized" => self.listen(tasks),
            _ => {
                let Some(dated) = self.lock().dated.clone() else { return };
                let backend = Arc::clone(&self.backend);
                tasks.spawn(async move {
                    backend.notification(&dated.asker, &method, params).await;
                });
            }
        }
    }

    fn begin(
        self: &Arc<Self>,
        id: &Id,
        exchange: &Arc<Exchange>,
        size: Size,
    ) -> Result<Slot, RpcError> {
        let mut state = self.lock();
        if state.in_flight.contains_key(id) {
            return Err(RpcError::new(code::INVALID_REQUEST, "this id is already in flight"));
        }
        if state.in_flight.len() >= IN_FLIGHT || state.values + size.values > VALUES {
            return Err(RpcError::new(code::INTERNAL, "too many requests are under way"));
        }
        state.values += size.values;
        state.in_flight.insert(id.clone(), Arc::clone(exchange));
        Ok(Slot { connection: Arc::clone(self), id: id.clone(), size })
    }

    fn request(
        self: &Arc<Self>,
        id: &Id,
        method: String,
        params: Option<Value>,
        size: Size,
        tasks: &mut Tasks,
    ) -> Result<(), RpcError> {
        match Era::of(&method, params.as_ref(), None) {
            Era::Stateless => self.stateless(id, method, params, size, tasks),
            Era::Handshake if method == "initialize" => {
                self.initialize(params.as_ref())?;
                let Some(dated) = self.lock().dated.clone() else { return Ok(()) };
                let nobody: Arc<dyn Client> = Arc::new(Nobody);
                let exchange = dated.exchange();
                self.answer(id, dated.asker, &nobody, &exchange, (method, params), size, tasks)
            }
            Era::Handshake => {
                let dated = self.lock().dated.clone();
                let exchange = match &dated {
                    Some(dated) => dated.exchange(),
                    None => {
                        Exchange::new(Party::Unknown, Arc::default(), Asking::No, Hears::All, false)
                    }
                };
                let asker = match dated {
                    Some(dated) => dated.asker,
                    // Whoever asks whether we are alive may do so before anything else.
                    None if method == "ping" => {
                        Asker { session: None, revision: Revision::HANDSHAKE, principal: None }
                    }
                    None => {
                        let words = "the connection begins with initialize, or a request says in \
                                     _meta what it is";
                        return Err(RpcError::new(code::INVALID_REQUEST, words));
                    }
                };
                let client = Arc::clone(&exchange) as Arc<dyn Client>;
                self.answer(id, asker, &client, &exchange, (method, params), size, tasks)
            }
        }
    }

    fn initialize(&self, params: Option<&Value>) -> Result<(), RpcError> {
        let wanted = params.and_then(|p| p.get("protocolVersion")).and_then(Value::as_str);
        let wanted = wanted
            .ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "\"protocolVersion\" is missing"))?;
        let session = random()
            .ok_or_else(|| RpcError::new(code::INTERNAL, "the machine gives no random bits"))?;
        let declared = params.and_then(|params| params.get("capabilities")).cloned();
        let declared = declared.filter(Value::is_object).unwrap_or_else(|| Map::new().into());
        let mut state = self.lock();
        if state.dated.is_some() {
            return Err(RpcError::new(code::INVALID_REQUEST, "the connection has begun already"));
        }
        let revision = Revision::negotiate(wanted);
        state.dated = Some(Dated {
            asker: Asker { session: Some(session.into()), revision, principal: None },
            capabilities: Arc::new(declared),
            questions: Arc::default(),
        });
        Ok(())
    }

    /// Lets the backend answer in a task of its own.
    #[allow(clippy::too_many_arguments, reason = "one request has so many sides")]
    fn answer(
        self: &Arc<Self>,
        id: &Id,
        asker: Asker,
        client: &Arc<dyn Client>,
        exchange: &Arc<Exchange>,
        (method, params): (String, Option<Value>),
        size: Size,
        tasks: &mut Tasks,
    ) -> Result<(), RpcError> {
        let slot = self.begin(id, exchange, size)?;
        let (backend, client) = (Arc::clone(&self.backend), Arc::clone(client));
        let work = Box::pin(async move {
            let era = Era::Handshake;
            answer::answer(backend.as_ref(), era, &asker, &client, &method, params).await
        });
        let driver = Driver::new(work, Arc::clone(exchange));
        tasks.spawn(Arc::clone(self).serve(driver, slot, None));
        Ok(())
    }

    fn stateless(
        self: &Arc<Self>,
        id: &Id,
        method: String,
        mut params: Option<Value>,
        size: Size,
        tasks: &mut Tasks,
    ) -> Result<(), RpcError> {
        judge::spoken(judge::declared(params.as_ref())?)?;
        let asker = Asker { session: None, revision: Revision::STATELESS, principal: None };
        if method == "subscriptions/listen" {
            let connection = Arc::clone(self);
            let nobody =
                Exchange::new(Party::Unknown, Arc::default(), Asking::No, Hears::All, false);
            let slot = self.begin(id, &nobody, size)?;
            tasks.spawn(connection.subscribe(asker, slot, nobody, params));
            return Ok(());
        }
        let (mut asking, mut binding) = (Asking::No, None);
        if parked::METHODS.contains(&method.as_str()) {
            let round = Round::take(&mut params)?;
            let bound = Binding::new(0, None, &method, params.as_ref());
            if let Some(state) = round.state {
                let (exchange, held) = self.parked.resume(&state, &bound, round.responses)?;
                let slot = match self.begin(id, &exchange, size) {
                    Ok(slot) => slot,
                    Err(error) => {
                        exchange.cancel();
                        return Err(error);
                    }
                };
                let reader = exchange.attach();
                let held = held.max(size);
                tasks.spawn(Arc::clone(self).retry(exchange, reader, slot, bound, held));
                return Ok(());
            }
            asking = Asking::Rounds(Rounds::new(round.responses));
            binding = Some(bound);
        }
        let declared = meta(params.as_ref(), META_CAPABILITIES).cloned().unwrap_or_default();
        let hears = Hears::of_request(&asker.revision, params.as_ref());
        let exchange = Exchange::new((&asker).into(), Arc::new(declared), asking, hears, true);
        let slot = self.begin(id, &exchange, size)?;
        let (backend, client) =
            (Arc::clone(&self.backend), Arc::clone(&exchange) as Arc<dyn Client>);
        let work = Box::pin(async move {
            let era = Era::Stateless;
            answer::answer(backend.as_ref(), era, &asker, &client, &method, params).await
        });
        let driver = Driver::new(work, exchange);
        tasks.spawn(Arc::clone(self).serve(driver, slot, binding));
        Ok(())
    }

    async fn say(&self, text: impl Into<Bytes>) {
        // A client that is gone ends the connection elsewhere.
        let _ = self.lines.send(text.into()).await;
    }

    async fn done(&self, exchange: &Exchange, slot: &Slot, answer: &Answer) {
        // Nobody waits for the answer to what was cancelled (2025-11-25, cancellation).
        if !matches!(answer, Err(error) if error.code == code::CANCELLED) {
            self.say(exchange.outgoing(response(Some(&slot.id), answer))).await;
        }
    }

    /// Serves one request to its end, or until the client has to be asked.
    async fn serve(self: Arc<Self>, mut driver: Driver, slot: Slot, binding: Option<Binding>) {
        let exchange = Arc::clone(driver.exchange());
        loop {
            let next = std::future::poll_fn(|cx| {
                let _ = driver.poll_work(cx);
                exchange.poll_next(0, cx)
            });
            match (next.await, &binding) {
                (Next::Message(text), _) => self.say(text).await,
                (Next::Done(answer), _) => return self.done(&exchange, &slot, &answer).await,
                (Next::Round(requests), Some(binding)) => {
                    let answer = self.parked.park(&exchange, binding, slot.size, requests);
                    exchange.detach(0, parked::WAIT);
                    // Before it is written, because the client may use the id again at once.
                    let id = slot.id.clone();
                    drop(slot);
                    self.say(response(Some(&id), &answer)).await;
                    driver.run().await;
                    return self.parked.forget(&exchange);
                }
                (Next::Round(_) | Next::Over, _) => return,
            }
        }
    }

    /// Serves a call that waited for answers; `held` is the size of the largest of its requests.
    async fn retry(
        self: Arc<Self>,
        exchange: Arc<Exchange>,
        reader: u64,
        slot: Slot,
        binding: Binding,
        held: Size,
    ) {
        loop {
            let next = std::future::poll_fn(|cx| exchange.poll_next(reader, cx));
            match next.await {
                Next::Message(text) => self.say(text).await,
                Next::Done(answer) => return self.done(&exchange, &slot, &answer).await,
                Next::Round(requests) => {
                    let answer = self.parked.park(&exchange, &binding, held, requests);
                    exchange.detach(reader, parked::WAIT);
                    let id = slot.id.clone();
                    drop(slot);
                    return self.say(response(Some(&id), &answer)).await;
                }
                Next::Over => return,
            }
        }
    }

    /// `subscriptions/listen`, until it is cancelled. `place` stands for it until it has begun.
    async fn subscribe(
        self: Arc<Self>,
        asker: Asker,
        slot: Slot,
        place: Arc<Exchange>,
        params: Option<Value>,
    ) {
        let begun = listen::begin(self.backend.as_ref(), &asker, &slot.id, params.as_ref());
        let begun = tokio::select! {
            begun = begun => begun,
            () = place.cancelled() => return,
        };
        match begun {
            Err(error) => self.done(&place, &slot, &Err(error)).await,
            Ok((exchange, passing, acknowledged)) => {
                let driver = Driver::new(passing, Arc::clone(&exchange));
                self.lock().in_flight.insert(slot.id.clone(), Arc::clone(&exchange));
                if place.is_cancelled() {
                    exchange.cancel();
                }
                self.say(acknowledged).await;
                self.serve(driver, slot, None).await;
            }
        }
    }

    /// What the server says outside requests, on a connection with a handshake.
    fn listen(self: &Arc<Self>, tasks: &mut Tasks) {
        let mut state = self.lock();
        let Some(dated) = state.dated.clone() else { return };
        if state.listening.is_some() {
            return;
        }
        let exchange = dated.exchange();
        state.listening = Some(Arc::clone(&exchange));
        drop(state);
        let connection = Arc::clone(self);
        let backend = Arc::clone(&self.backend);
        let client = Arc::clone(&exchange) as Arc<dyn Client>;
        let work = Box::pin(async move {
            let wanted = Wanted {
                tools: true,
                prompts: true,
                resources: true,
                uris: BTreeSet::new(),
                rest: true,
            };
            let listening = backend.listen(&dated.asker, &client, wanted).await?;
            listening.passing.await;
            Ok(json!({}))
        });
        let mut driver = Driver::new(work, Arc::clone(&exchange));
        tasks.spawn(async move {
            loop {
                let next = std::future::poll_fn(|cx| {
                    let _ = driver.poll_work(cx);
                    exchange.poll_next(0, cx)
                });
                match next.await {
                    Next::Message(text) => connection.say(text).await,
                    _ => return,
                }
            }
        });
    }

    /// Gives everything up.
    pub(super) fn end(&self) {
        let state = self.lock();
        let mut open: Vec<_> = state.in_flight.values().cloned().collect();
        open.extend(state.listening.clone());
        let questions = state.dated.as_ref().map(|dated| Arc::clone(&dated.questions));
        drop(state);
        self.parked.end(0);
        open.iter().for_each(|exchange| exchange.cancel());
        if let Some(questions) = questions {
            questions.end();
        }
    }

    /// Tells the backend that the connection is over.
    pub(super) fn ended(&self) {
        let session = self.lock().dated.as_ref().and_then(|dated| dated.asker.session.clone());
        if let Some(session) = session {
            self.backend.ended(&session);
        }
    }
}
