//! Questions that end an exchange and are answered by the next (2026-07-28, multi-round-trip
//! requests).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::able;
use crate::{Answer, RpcError, code};

/// Questions of one request that are open at once.
const OPEN: usize = 32;
/// Bytes of a question's key.
const KEY: usize = 128;

/// The questions of one request.
#[derive(Default)]
pub(crate) struct Rounds(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Answers that came before their questions.
    given: Map<String, Value>,
    open: BTreeMap<String, Open>,
    last: u64,
    new: bool,
}

struct Open {
    method: String,
    params: Option<Value>,
    sender: oneshot::Sender<Answer>,
    /// The client has been told of it.
    told: bool,
}

/// A question that was put to the client.
pub(super) struct Put {
    pub(super) answer: oneshot::Receiver<Answer>,
    /// What it is called here, when its asker gave it no key of its own.
    pub(super) unnamed: Option<String>,
}

impl Rounds {
    /// `given`: answers that a client sent without having been asked.
    pub(crate) fn new(given: Map<String, Value>) -> Self {
        Self(Mutex::new(Table { given, ..Table::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question. Under its asker's key, it is due at once; without one, when [`Rounds::due`]
    /// says so.
    pub(super) fn ask(
        &self,
        key: Option<&str>,
        method: &str,
        params: Option<Value>,
    ) -> Result<Put, RpcError> {
        let mut table = self.lock();
        table.open.retain(|_, open| !open.sender.is_closed());
        if table.open.len() >= OPEN {
            let words = format!("the client has {OPEN} questions to answer already");
            return Err(RpcError::new(code::INTERNAL, words));
        }
        let (sender, answer) = oneshot::channel();
        let given = key.and_then(|key| table.given.shift_remove(key));
        if let Some(given) = given.filter(|given| able::fits(method, given)) {
            let _ = sender.send(Ok(given));
            return Ok(Put { answer, unnamed: None });
        }
        let named = key.is_some();
        let plain = |key: &&str| (1..=KEY).contains(&key.len()) && !table.open.contains_key(*key);
        let key = match key.filter(plain) {
            Some(key) => key.to_owned(),
            None => loop {
                table.last += 1;
                let key = format!("question-{}", table.last);
                if !table.open.contains_key(&key) {
                    break key;
                }
            },
        };
        let open = Open { method: method.to_owned(), params, sender, told: false };
        table.open.insert(key.clone(), open);
        table.new |= named;
        Ok(Put { answer, unnamed: (!named).then_some(key) })
    }

    /// The client is to be told of a question now, and of all others that came meanwhile, unless it
    /// has been.
    pub(super) fn due(&self, key: &str) {
        let mut table = self.lock();
        table.new |= table.open.get(key).is_some_and(|open| !open.told);
    }

    /// Whether something is open that the client has not been told of since the last call.
    pub(super) fn take_new(&self) -> bool {
        std::mem::take(&mut self.lock().new)
    }

    /// What is open, as `inputRequests`. From now on an answer needs a question first.
    pub(super) fn requests(&self) -> Option<Map<String, Value>> {
        let mut table = self.lock();
        table.given = Map::new();
        table.open.retain(|_, open| !open.sender.is_closed());
        table.new = false;
        let requests = table.open.iter_mut().map(|(key, open)| {
            open.told = true;
            let mut request = json!({ "method": open.method });
            if let Some(params) = &open.params {
                request["params"] = params.clone();
            } else {
                request["params"] = json!({});
            }
            (key.clone(), request)
        });
        Some(requests.collect::<Map<_, _>>()).filter(|requests| !requests.is_empty())
    }

    /// The key of an answer that has not the form of its question's answers.
    pub(crate) fn misfit<'r>(&self, responses: &'r Map<String, Value>) -> Option<&'r str> {
        let table = self.lock();
        responses.iter().find_map(|(key, answer)| {
            let open = table.open.get(key)?;
            (!able::fits(&open.method, answer)).then_some(key.as_str())
        })
    }

    /// Takes answers; what nobody asked is left out. Questions without one stay open, and are asked
    /// again.
    pub(crate) fn answer(&self, responses: Map<String, Value>) {
        let mut table = self.lock();
        for (key, answer) in responses {
            if let Some(open) = table.open.remove(&key) {
                let _ = open.sender.send(Ok(answer));
            }
        }
        table.new = !table.open.is_empty();
    }
}
