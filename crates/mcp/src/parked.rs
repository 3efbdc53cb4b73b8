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

/// Calls of one door that wait at once; beyond them the oldest is given up.
const CALLS: usize = 256;
/// JSON values in their requests, all together.
const VALUES: usize = 500_000;
/// How long one waits: a person may have to find something out first.
pub(crate) const WAIT: Duration = Duration::from_secs(600);

/// Methods that may be answered with questions (2026-07-28, multi-round-trip requests).
pub(crate) const METHODS: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// What a retry must have in common with the call that it continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
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
    pub(crate) fn new(principal: Option<Arc<str>>, method: &str, params: Option<&Value>) -> Self {
        let mut hash = Sha256::new();
        absorb_text(&mut hash, method);
        if let Some(Value::Object(params)) = params {
            absorb_object(&mut hash, params.iter().filter(|(key, _)| *key != "_meta"));
        }
        Self { principal, request: hash.finalize().into() }
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

/// The calls of one door that wait.
#[derive(Default)]
pub(crate) struct Parked(Mutex<Table>);

#[derive(Default)]
struct Table {
    clock: u64,
    values: usize,
    calls: HashMap<String, Call>,
}

struct Call {
    exchange: Arc<Exchange>,
    binding: Binding,
    values: usize,
    at: u64,
}

impl Parked {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call wait, and makes the result that asks its questions. `values`: how many JSON
    /// values its request holds.
    pub(crate) fn park(
        &self,
        exchange: &Arc<Exchange>,
        binding: &Binding,
        values: usize,
        requests: Map<String, Value>,
    ) -> Answer {
        let Some(state) = random() else {
            exchange.cancel();
            return Err(RpcError::new(code::INTERNAL, "the machine gives no random bits"));
        };
        let mut dropped = Vec::new();
        let mut table = self.lock();
        while table.calls.len() >= CALLS || (table.values + values > VALUES && table.values > 0) {
            let oldest = table.calls.iter().min_by_key(|(_, call)| call.at);
            let oldest = oldest.map(|(state, _)| state.clone());
            let Some(call) = oldest.and_then(|state| table.remove(&state)) else { break };
            dropped.push(call);
        }
        table.clock += 1;
        let (exchange, binding) = (Arc::clone(exchange), binding.clone());
        let call = Call { exchange, binding, values, at: table.clock };
        table.values += values;
        table.calls.insert(state.clone(), call);
        drop(table);
        dropped.iter().for_each(|call| call.exchange.cancel());
        Ok(json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": state,
        }))
    }

    /// The call that a retry continues. From here on its state is used up.
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
    ) -> Result<Arc<Exchange>, RpcError> {
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
        Ok(call.exchange)
    }

    /// A call is over.
    pub(crate) fn forget(&self, exchange: &Arc<Exchange>) {
        let mut table = self.lock();
        let found = table.calls.iter().find(|(_, call)| Arc::ptr_eq(&call.exchange, exchange));
        if let Some(state) = found.map(|(state, _)| state.clone()) {
            table.remove(&state);
        }
    }

    /// Gives all of them up.
    pub(crate) fn end(&self) {
        let calls = std::mem::take(&mut *self.lock()).calls;
        calls.values().for_each(|call| call.exchange.cancel());
    }
}

impl Table {
    fn remove(&mut self, state: &str) -> Option<Call> {
        let call = self.calls.remove(state)?;
        self.values -= call.values;
        Some(call)
    }
}

/// 128 random bits in hexadecimal digits. `None` when the machine has none.
pub(crate) fn random() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().fold(String::with_capacity(32), |text, byte| format!("{text}{byte:02x}")))
}
