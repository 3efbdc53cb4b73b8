//! Calls that wait for a client to come back with answers.
//!
//! A call whose backend has asked something waits under a `requestState` that was made here: 128
//! random bits that are used once and say nothing. It continues for the same principal with the
//! same method and parameters alone.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::exchange::Exchange;
use crate::{Answer, RpcError, code};

/// What calls of one client may take while they wait; beyond it the client's oldest is given up.
const EACH: Used = Used { calls: 256, size: Size { values: 200_000, bytes: 16 << 20 } };
/// What all of them may take; beyond it the oldest of the client that has the most is given up.
const ALL: Used = Used { calls: 1024, size: Size { values: 500_000, bytes: 64 << 20 } };
/// Bytes that one JSON value takes beside its text.
const VALUE: usize = 70;
/// How long one waits: a person may have to find something out first.
pub(crate) const WAIT: Duration = Duration::from_secs(600);

/// Methods that may be answered with questions (2026-07-28, multi-round-trip requests).
pub(crate) const METHODS: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// What a retry must have in common with the call that it continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    door: u64,
    principal: Option<Arc<str>>,
    request: [u8; 32],
}

/// What of a request's parameters belongs to the rounds, and not to the request.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) responses: Map<String, Value>,
    pub(crate) state: Option<String>,
}

impl Round {
    /// Takes it out of the parameters: what is left is what is judged.
    pub(crate) fn take(params: &mut Option<Value>) -> Result<Self, RpcError> {
        let Some(params) = params.as_mut().and_then(Value::as_object_mut) else {
            return Ok(Self::default());
        };
        let wrong = |what: &str| Err(RpcError::new(code::INVALID_PARAMS, what));
        let responses = match params.shift_remove("inputResponses") {
            None => Map::new(),
            Some(Value::Object(responses)) => responses,
            Some(_) => return wrong("\"inputResponses\" must be an object"),
        };
        let state = match params.shift_remove("requestState") {
            None => None,
            Some(Value::String(state)) => Some(state),
            Some(_) => return wrong("\"requestState\" must be a string"),
        };
        Ok(Self { responses, state })
    }
}

impl Binding {
    pub(crate) fn new(
        door: u64,
        principal: Option<Arc<str>>,
        method: &str,
        params: Option<&Value>,
    ) -> Self {
        let mut hash = Sha256::new();
        absorb_text(&mut hash, method);
        if let Some(Value::Object(params)) = params {
            absorb_object(&mut hash, params.iter().filter(|(key, _)| *key != "_meta"));
        }
        Self { door, principal, request: hash.finalize().into() }
    }
}

fn absorb_text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

fn absorb_object<'v>(hash: &mut Sha256, members: impl Iterator<Item = (&'v String, &'v Value)>) {
    let mut members: Vec<_> = members.collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    hash.update([b'{']);
    hash.update((members.len() as u64).to_be_bytes());
    for (key, value) in members {
        absorb_text(hash, key);
        absorb(hash, value);
    }
}

/// The order of members is not part of a value; how a number is written is. The depth is bounded
/// by the parser.
fn absorb(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(object) => absorb_object(hash, object.iter()),
        Value::Array(items) => {
            hash.update([b'[']);
            hash.update((items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| absorb(hash, item));
        }
        Value::String(text) => {
            hash.update([b'"']);
            absorb_text(hash, text);
        }
        Value::Number(number) => {
            hash.update([b'0']);
            absorb_text(hash, &number.to_string());
        }
        Value::Bool(flag) => hash.update([b'?', u8::from(*flag)]),
        Value::Null => hash.update([b'-']),
    }
}

/// How much a request holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// JSON values.
    pub(crate) values: usize,
    /// Bytes of its text.
    pub(crate) bytes: usize,
}

impl Size {
    /// The larger of both, of each kind.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { values: self.values.max(other.values), bytes: self.bytes.max(other.bytes) }
    }
}

/// What calls take that wait.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    calls: usize,
    size: Size,
}

impl Used {
    fn one(size: Size) -> Self {
        Self { calls: 1, size }
    }

    fn and(self, other: Self) -> Self {
        let values = self.size.values + other.size.values;
        let bytes = self.size.bytes + other.size.bytes;
        Self { calls: self.calls + other.calls, size: Size { values, bytes } }
    }

    fn less(self, other: Self) -> Self {
        let values = self.size.values.saturating_sub(other.size.values);
        let bytes = self.size.bytes.saturating_sub(other.size.bytes);
        Self { calls: self.calls.saturating_sub(other.calls), size: Size { values, bytes } }
    }

    fn fits(self, most: Self) -> bool {
        let (size, room) = (self.size, most.size);
        self.calls <= most.calls && size.values <= room.values && size.bytes <= room.bytes
    }

    /// Parts of all that there is, in 1/65536: of what it takes the most of.
    fn weight(self) -> usize {
        let part = |used: usize, most: usize| used.saturating_mul(65_536) / most;
        let size = self.size;
        part(self.calls, ALL.calls)
            .max(part(size.values, ALL.size.values))
            .max(part(size.bytes.saturating_add(size.values * VALUE), ALL.size.bytes))
    }
}

/// Calls that wait: those of all doors of a listener, each bound to its own.
#[derive(Default)]
pub(crate) struct Parked(Mutex<Table>);

#[derive(Default)]
struct Table {
    clock: u64,
    calls: HashMap<String, Call>,
    all: Used,
    /// By client.
    used: HashMap<Option<Arc<str>>, Used>,
}

struct Call {
    exchange: Arc<Exchange>,
    binding: Binding,
    used: Used,
    /// That of its request.
    size: Size,
    at: u64,
}

impl Parked {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call wait, and makes the result that asks its questions. `size` is that of its request;
    /// the questions are counted here. A client that lets many wait gives up its own.
    pub(crate) fn park(
        &self,
        exchange: &Arc<Exchange>,
        binding: &Binding,
        size: Size,
        requests: Map<String, Value>,
    ) -> Answer {
        let Some(state) = random() else {
            exchange.cancel();
            return Err(RpcError::new(code::INTERNAL, "the machine gives no random bits"));
        };
        let asked = serde_json::to_vec(&requests).map_or(0, |text| text.len());
        let used = Used::one(Size { bytes: size.bytes + asked, ..size });
        let mut dropped = Vec::new();
        let mut table = self.lock();
        let placed = table.make_room(&binding.principal, used, &mut dropped);
        if placed {
            table.clock += 1;
            let (exchange, binding) = (Arc::clone(exchange), binding.clone());
            let call = Call { exchange, binding, used, size, at: table.clock };
            table.insert(state.clone(), call);
        }
        drop(table);
        dropped.iter().for_each(|call| call.exchange.cancel());
        if !placed {
            exchange.cancel();
            let words = "too many calls wait for their clients: it cannot wait for an answer";
            return Err(RpcError::new(code::INTERNAL, words));
        }
        Ok(json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": state,
        }))
    }

    /// The call that a retry continues, and the size of the largest of its requests so far: the first
    /// one's parameters live as long as the call, however little a retry holds. From here on its state
    /// is used up.
    ///
    /// # Errors
    /// [`code::INVALID_PARAMS`] for a state that was not made here, was used, has expired, or was
    /// made for another principal or other parameters; and for an answer without the form of its
    /// question's answers, which leaves the state as it is.
    pub(crate) fn resume(
        &self,
        state: &str,
        binding: &Binding,
        responses: Map<String, Value>,
    ) -> Result<(Arc<Exchange>, Size), RpcError> {
        let refuse = |words: String| Err(RpcError::new(code::INVALID_PARAMS, words));
        let mut table = self.lock();
        let call = table.calls.get(state).filter(|call| call.binding == *binding);
        let Some(rounds) = call.and_then(|call| call.exchange.rounds()) else {
            let words = "\"requestState\" is not one that waits for this request: it was used, has \
                         expired, or was made for another one; send the request without it";
            return refuse(words.into());
        };
        if let Some(key) = rounds.misfit(&responses) {
            let key = key.escape_debug();
            return refuse(format!("the answer {key} does not have the form that was asked for"));
        }
        let Some(call) = table.remove(state) else { return refuse("it is gone".into()) };
        drop(table);
        if let Some(rounds) = call.exchange.rounds() {
            rounds.answer(responses);
        }
        // With no answer at all, the same questions are asked again.
        call.exchange.wake();
        Ok((call.exchange, call.size))
    }

    /// A call is over.
    pub(crate) fn forget(&self, exchange: &Arc<Exchange>) {
        let mut table = self.lock();
        let found = table.calls.iter().find(|(_, call)| Arc::ptr_eq(&call.exchange, exchange));
        if let Some(state) = found.map(|(state, _)| state.clone()) {
            table.remove(&state);
        }
    }

    /// Gives all of one door up.
    pub(crate) fn end(&self, door: u64) {
        let mut table = self.lock();
        let of =
            |(state, call): (&String, &Call)| (call.binding.door == door).then(|| state.clone());
        let states: Vec<_> = table.calls.iter().filter_map(of).collect();
        let calls: Vec<_> = states.iter().filter_map(|state| table.remove(state)).collect();
        drop(table);
        calls.iter().for_each(|call| call.exchange.cancel());
    }
}

impl Table {
    fn insert(&mut self, state: String, call: Call) {
        self.all = self.all.and(call.used);
        let used = self.used.entry(call.binding.principal.clone()).or_default();
        *used = used.and(call.used);
        self.calls.insert(state, call);
    }

    fn remove(&mut self, state: &str) -> Option<Call> {
        let call = self.calls.remove(state)?;
        self.all = self.all.less(call.used);
        if let Some(used) = self.used.get_mut(&call.binding.principal) {
            *used = used.less(call.used);
            if used.calls == 0 {
                self.used.remove(&call.binding.principal);
            }
        }
        Some(call)
    }

    fn oldest(&mut self, of: &Option<Arc<str>>) -> Option<Call> {
        let its = self.calls.iter().filter(|(_, call)| call.binding.principal == *of);
        let oldest = its.min_by_key(|(_, call)| call.at).map(|(state, _)| state.clone());
        oldest.and_then(|state| self.remove(&state))
    }

    /// Makes room for one more call of a client. What had to go stands in `dropped`. False when the
    /// client would have more than any other, and nothing of its own is left to give up.
    fn make_room(&mut self, of: &Option<Arc<str>>, more: Used, dropped: &mut Vec<Call>) -> bool {
        let own = |table: &Self| table.used.get(of).copied().unwrap_or_default().and(more);
        while !own(self).fits(EACH) {
            match self.oldest(of) {
                Some(call) => dropped.push(call),
                None => return false,
            }
        }
        while !self.all.and(more).fits(ALL) {
            let greedy = self.used.iter().max_by_key(|(_, used)| used.weight());
            let other = greedy.filter(|(_, used)| used.weight() > own(self).weight());
            let victim = other.map_or_else(|| of.clone(), |(who, _)| who.clone());
            match self.oldest(&victim) {
                Some(call) => dropped.push(call),
                None => return false,
            }
        }
        true
    }
}

/// 128 random bits in hexadecimal digits. `None` when the machine has none.
pub(crate) fn random() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().fold(String::with_capacity(32), |text, byte| format!("{text}{byte:02x}")))
}
