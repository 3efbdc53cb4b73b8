//! Where everything that a server says on its own account is sorted: whose is it?

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::UpstreamError;
use super::exchange::Exchange;
use super::listener::{ACKNOWLEDGED, Listener, updated};
use super::mailbox::Told;
use super::questions::{Kind, Question, declared};
use super::tied::{Ghosts, Tied, tied};
use crate::role::CANCELLED;
use crate::{Client, Id, Party, RpcError, Share, code};

/// Requests under way on one connection.
const REQUESTS: usize = 4096;
/// Listeners of one connection.
const LISTENERS: usize = 1024;
/// Those of one client, whatever its sessions.
const LISTENERS_EACH: usize = 128;
/// What a notification may weigh that goes to several listeners, each of which holds it.
const SPREAD: usize = 4 * 1024;

pub(crate) const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
pub(crate) const PROGRESS: &str = "notifications/progress";
/// Key of `_meta` by which a notification belongs to a subscription.
pub(crate) const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// What of a server's words reached nobody, since the connection began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unheard {
    /// Notifications that found no room, or nobody to hear them.
    pub notifications: u64,
    /// Answers to nothing that was asked, or not any more.
    pub answers: u64,
    /// Questions that could not be put to anybody.
    pub questions: u64,
    /// Tools that were left out of lists: what they want in headers is not valid.
    pub tools: u64,
}

#[derive(Default)]
struct Counts {
    notifications: AtomicU64,
    answers: AtomicU64,
    questions: AtomicU64,
    tools: AtomicU64,
}

/// One connection's.
#[derive(Default)]
pub(crate) struct Desk {
    room: Mutex<Room>,
    next: AtomicU64,
    counts: Counts,
    tools_changed: AtomicBool,
    /// On the stateless revision servers ask nothing, and what they say has an address.
    pub(crate) stateless: AtomicBool,
    /// Set when the connection is over.
    pub(crate) over: CancellationToken,
    pub(crate) replies: Share,
}

#[derive(Default)]
struct Room {
    requests: HashMap<u64, Arc<Exchange>>,
    listeners: HashMap<u64, Arc<Listener>>,
    /// By the id of the request that opened it: what a stateless server says over stdio.
    subscriptions: HashMap<Id, Arc<Listener>>,
    /// Resources that listeners follow, and how many of them.
    followed: HashMap<String, usize>,
    /// Questions that wait for a client, so that the server can take them back.
    asked: HashMap<Id, CancellationToken>,
    ghosts: Ghosts,
}

impl Room {
    fn tied(&mut self) -> Tied {
        tied(self.requests.values(), self.listeners.iter(), &mut self.ghosts)
    }

    /// A question waits from now on. False when another one of its id does.
    fn wait(&mut self, id: &Id, given_up: &CancellationToken) -> bool {
        match self.asked.entry(id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(given_up.clone());
                true
            }
        }
    }
}

/// A request's place at the desk; it is free again when this is dropped.
pub(crate) struct Entered {
    desk: Arc<Desk>,
    pub(crate) exchange: Arc<Exchange>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Exchange { key, whose, method, .. } = &*self.exchange;
        let mut room = self.desk.lock();
        room.requests.remove(key);
        let (client, answered) = (self.exchange.questions.client(), self.exchange.is_answered());
        room.ghosts.ended(whose, client, method, answered);
        drop(room);
        self.exchange.questions.end();
        self.exchange.told.close();
    }
}

/// A listener's.
pub(crate) struct Seat {
    desk: Arc<Desk>,
    key: u64,
    pub(crate) listener: Arc<Listener>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut room = self.desk.lock();
        room.listeners.remove(&self.key);
        room.subscriptions.retain(|_, listener| !Arc::ptr_eq(listener, &self.listener));
        drop(room);
        self.listener.questions.end();
        self.listener.told.close();
    }
}

impl Desk {
    /// Of a server with this share of the memory for replies.
    pub(crate) fn with(replies: Share) -> Arc<Self> {
        Arc::new(Self { replies, ..Self::default() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stateless(&self) -> bool {
        self.stateless.load(Ordering::Acquire)
    }

    pub(crate) fn take_tools_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn unheard(&self) -> Unheard {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Unheard {
            notifications: read(&self.counts.notifications),
            answers: read(&self.counts.answers),
            questions: read(&self.counts.questions),
            tools: read(&self.counts.tools),
        }
    }

    pub(crate) fn stray_answer(&self) {
        self.counts.answers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unheard_note(&self) {
        self.counts.notifications.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn left_out(&self, tools: usize) {
        self.counts.tools.fetch_add(tools as u64, Ordering::Relaxed);
    }

    /// Gives a request its place. Its progress token in `params` becomes one of ours, unique here.
    pub(crate) fn enter(
        self: &Arc<Self>,
        client: &Arc<dyn Client>,
        method: &str,
        params: &mut Option<Value>,
        patience: Duration,
    ) -> Result<Entered, UpstreamError> {
        let key = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let token = params
            .as_mut()
            .and_then(|params| params.get_mut("_meta")?.get_mut("progressToken"))
            .map(|token| std::mem::replace(token, json!(key)));
        let exchange = Exchange::new(key, client, method, token, patience, self.replies.clone());
        let mut room = self.lock();
        if room.requests.len() >= REQUESTS {
            let reason = format!("more than {REQUESTS} requests are under way");
            return Err(UpstreamError::Down { detail: reason.clone(), reason });
        }
        room.requests.insert(key, Arc::clone(&exchange));
        drop(room);
        Ok(Entered { desk: Arc::clone(self), exchange })
    }

    pub(crate) fn seat(self: &Arc<Self>, listener: Listener) -> Result<Seat, UpstreamError> {
        let key = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let listener = Arc::new(listener);
        let mut room = self.lock();
        if room.listeners.len() >= LISTENERS {
            let reason = format!("more than {LISTENERS} streams are listened to");
            return Err(UpstreamError::Down { detail: reason.clone(), reason });
        }
        let its = room.listeners.values().filter(|other| other.whose.is_of(&listener.whose));
        if listener.whose.is_named() && its.count() >= LISTENERS_EACH {
            let reason =
                format!("more than {LISTENERS_EACH} streams of this client are listened to");
            return Err(UpstreamError::Down { detail: reason.clone(), reason });
        }
        room.listeners.insert(key, Arc::clone(&listener));
        drop(room);
        Ok(Seat { desk: Arc::clone(self), key, listener })
    }

    /// The id that the request which opened a subscription was sent with.
    pub(crate) fn subscribed(&self, id: Id, listener: &Arc<Listener>) {
        self.lock().subscriptions.insert(id, Arc::clone(listener));
    }

    /// One more listener follows a resource. True when it is the first.
    pub(crate) fn follow(&self, uri: &str) -> bool {
        let mut room = self.lock();
        let count = room.followed.entry(uri.to_owned()).or_default();
        *count += 1;
        *count == 1
    }

    /// One listener less. True when it was the last.
    pub(crate) fn unfollow(&self, uri: &str) -> bool {
        let mut room = self.lock();
        let Some(count) = room.followed.get_mut(uri) else { return false };
        *count -= 1;
        let last = *count == 0;
        if last {
            room.followed.remove(uri);
        }
        last
    }

    pub(crate) fn is_followed(&self, uri: &str) -> bool {
        self.lock().followed.contains_key(uri)
    }

    /// The connection is over: nobody hears anything any more.
    pub(crate) fn close(&self) {
        self.over.cancel();
        self.lock().listeners.values().for_each(|listener| listener.told.close());
    }

    /// What is told on the stream of a request belongs to it; gives what its client shall hear.
    pub(crate) fn told_to(&self, exchange: &Exchange, told: Told) -> Option<Told> {
        let passed = match told.method.as_str() {
            CANCELLED => {
                self.taken_back(&told);
                return None;
            }
            PROGRESS => exchange.progress(told),
            // Theirs who follow it, on whichever stream it is told.
            _ if updated(&told).is_some() && !self.is_stateless() => {
                if !self.spread(&told) {
                    self.unheard_note();
                }
                return None;
            }
            method if is_change(method) => {
                self.changed(&told);
                if self.is_stateless() || told.weight > SPREAD {
                    None
                } else {
                    self.spread(&told);
                    Some(told)
                }
            }
            _ => Some(told),
        };
        if passed.is_none() {
            self.unheard_note();
        }
        passed
    }

    /// What is told on a stream that everything shares. Never waits: what finds no room is left out.
    pub(crate) fn told(&self, told: Told) {
        self.changed(&told);
        let heard = match told.method.as_str() {
            CANCELLED => self.taken_back(&told) || self.is_stateless(),
            PROGRESS => {
                let token = told.params.as_ref().and_then(|p| p.get("progressToken")?.as_u64());
                let exchange = token.and_then(|key| self.lock().requests.get(&key).cloned());
                exchange
                    .and_then(|to| Some(to.told.offer(to.progress(told)?).is_ok()))
                    .unwrap_or(false)
            }
            _ if self.is_stateless() => self.to_subscriber(told),
            method if is_change(method) => self.spread(&told),
            _ => self.to_its_client(told),
        };
        if !heard {
            self.unheard_note();
        }
    }

    pub(crate) fn changed(&self, told: &Told) {
        if told.method == TOOLS_CHANGED {
            self.tools_changed.store(true, Ordering::Release);
        }
    }

    /// To the one client whose it can be: on its request or, where several are under way or none,
    /// on its streams.
    fn to_its_client(&self, told: Told) -> bool {
        let mut room = self.lock();
        let listeners = match room.tied() {
            Tied::Requests(requests) => match requests.as_slice() {
                [one] => return one.told.offer(told).is_ok(),
                [one, ..] => {
                    let its = room.listeners.values().filter(|l| l.whose == one.whose);
                    its.cloned().collect()
                }
                [] => return false,
            },
            Tied::Listeners(listeners) => listeners,
            Tied::Nobody => return false,
        };
        drop(room);
        let listeners: Vec<_> = listeners.iter().filter(|l| l.wants(&told)).collect();
        if told.weight > SPREAD && listeners.len() > 1 {
            return false;
        }
        let mut heard = false;
        for listener in listeners {
            if listener.told.offer(told.clone()).is_ok() {
                heard = true;
            } else {
                self.unheard_note();
            }
        }
        heard
    }

    /// A client has told the server something, which it may ask about.
    pub(crate) fn told_by(&self, party: &Party) {
        self.lock().ghosts.told(party);
    }

    /// To each listener that wants it. False when nobody had room for it, or it is too large for many.
    fn spread(&self, told: &Told) -> bool {
        if told.weight > SPREAD {
            return false;
        }
        let room = self.lock();
        let mut heard = false;
        for listener in room.listeners.values().filter(|listener| listener.wants(told)) {
            if listener.told.offer(told.clone()).is_ok() {
                heard = true;
            } else {
                self.unheard_note();
            }
        }
        heard
    }

    /// Stateless, over stdio: to the subscription that it names, or else to the client whose it can be.
    fn to_subscriber(&self, mut told: Told) -> bool {
        let Some(id) = told.params.as_mut().and_then(subscription) else {
            return !is_change(&told.method) && self.to_its_client(told);
        };
        let listener = self.lock().subscriptions.get(&id).cloned();
        listener.is_some_and(|listener| {
            let wanted = told.method == ACKNOWLEDGED || listener.wants(&told);
            wanted && listener.told.offer(told).is_ok()
        })
    }

    /// The server takes back a question, or ends a subscription.
    fn taken_back(&self, told: &Told) -> bool {
        let id = told.params.as_ref().and_then(|params| read_id(params.get("requestId")?));
        let Some(id) = id else { return false };
        let mut room = self.lock();
        if self.is_stateless() {
            let listener = room.subscriptions.remove(&id);
            return listener.inspect(|listener| listener.told.close()).is_some();
        }
        room.asked.remove(&id).inspect(CancellationToken::cancel).is_some()
    }

    /// Puts a server's question to the client whose it is; to none, when that cannot be told.
    /// `on` is the request on whose stream it was asked.
    pub(crate) fn ask(self: &Arc<Self>, on: Option<&Arc<Exchange>>, question: Question) {
        if self.is_stateless() {
            // Nothing can be answered there: a client sends no responses (2026-07-28).
            self.counts.questions.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if question.method == "ping" {
            let answer = question.to.answer(question.id, Ok(json!({})), false);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(answer);
            }
            return;
        }
        enum Whose {
            Request(Arc<Exchange>),
            Listener(Arc<Listener>),
            Nobodys,
        }
        let kind = Kind::of(&question.method);
        let can = |client: &Arc<dyn Client>| {
            let capabilities = client.capabilities();
            kind.is_some_and(|k| declared(k, question.params.as_ref(), capabilities).is_ok())
        };
        let whose = match on {
            Some(exchange) => Whose::Request(Arc::clone(exchange)),
            None => match self.lock().tied() {
                // All are one client's. Of one session each is as good as another; of a client without
                // one it is the call that its question stops.
                Tied::Requests(all) => {
                    let able: Vec<_> = all.iter().filter(|r| can(r.questions.client())).collect();
                    match (able.as_slice(), all.as_slice()) {
                        ([], [one]) => Whose::Request(Arc::clone(one)),
                        ([one, rest @ ..], _) if rest.is_empty() || one.whose.is_session() => {
                            Whose::Request(Arc::clone(one))
                        }
                        (able, _) => {
                            Exchange::next_to_ask(able).map_or(Whose::Nobodys, Whose::Request)
                        }
                    }
                }
                Tied::Listeners(all) => {
                    let able: Vec<_> = all.iter().filter(|l| can(l.questions.client())).collect();
                    match able.as_slice() {
                        [one, rest @ ..] if rest.iter().all(|other| other.whose == one.whose) => {
                            Whose::Listener(Arc::clone(one))
                        }
                        _ => Whose::Nobodys,
                    }
                }
                Tied::Nobody => Whose::Nobodys,
            },
        };
        let given_up = CancellationToken::new();
        let id = question.id.clone();
        let waits = |desk: &Arc<Self>| {
            desk.lock()
                .wait(&id, &given_up)
                .then(|| Asked { desk: Arc::clone(desk), id: id.clone() })
        };
        let done = if matches!(whose, Whose::Nobodys) { None } else { waits(self) };
        match (whose, done) {
            (Whose::Nobodys, _) => {
                self.counts.questions.fetch_add(1, Ordering::Relaxed);
                let words = format!(
                    "{} is not offered here: it cannot be told whose question this is",
                    question.method.escape_debug()
                );
                question.refuse(RpcError::new(code::METHOD_NOT_FOUND, words));
            }
            (_, None) => {
                let words = "this id is that of another question that waits";
                question.refuse(RpcError::new(code::INVALID_REQUEST, words));
            }
            (Whose::Request(exchange), Some(done)) => exchange.ask(question, given_up, done),
            (Whose::Listener(listener), Some(done)) => {
                // It may ask as often as there is somebody to answer; so many at once are bounded.
                let _ = listener.questions.put(question, given_up, move || drop(done));
            }
        }
    }
}

/// A question that a client thinks about.
pub(crate) struct Asked {
    desk: Arc<Desk>,
    id: Id,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.desk.lock().asked.remove(&self.id);
    }
}

/// Whether a notification says that something changed, which is for whoever listens.
pub(crate) fn is_change(method: &str) -> bool {
    matches!(
        method,
        TOOLS_CHANGED
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated"
    )
}

/// Takes the subscription out of a notification's `_meta`: the id is between us and the server.
pub(crate) fn subscription(params: &mut Value) -> Option<Id> {
    let params = params.as_object_mut()?;
    let meta = params.get_mut("_meta")?.as_object_mut()?;
    let id = read_id(&meta.shift_remove(META_SUBSCRIPTION)?);
    if meta.is_empty() {
        params.shift_remove("_meta");
    }
    id
}

fn read_id(id: &Value) -> Option<Id> {
    match id {
        Value::Number(number) => number.as_i64().map(Id::Number),
        Value::String(text) => Some(Id::Text(text.clone())),
        _ => None,
    }
}
