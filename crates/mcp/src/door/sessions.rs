//! The sessions of one door.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::{Id, Revision};

/// More than any agent opens; beyond it the one that was unused for longest ends.
const MOST: usize = 1024;

#[derive(Default)]
pub(super) struct Sessions(Mutex<Table>);

#[derive(Default)]
struct Table {
    clock: u64,
    open: HashMap<Arc<str>, Session>,
}

struct Session {
    revision: Revision,
    used: u64,
    in_flight: HashMap<Id, CancellationToken>,
}

/// Whether a request may begin.
pub(super) enum Slot<'s> {
    Open(InFlight<'s>),
    /// The id is in use, or the session has just ended.
    Taken,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session with 128 random bits of name. `None` when the machine has no randomness.
    pub(super) fn open(&self, revision: Revision) -> Option<HeaderValue> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        let name = bytes.iter().fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
        let mut value = HeaderValue::from_str(&name).ok()?;
        value.set_sensitive(true);
        let mut table = self.lock();
        if table.open.len() >= MOST {
            let oldest = table.open.iter().min_by_key(|(_, session)| session.used);
            let oldest = oldest.map(|(name, _)| Arc::clone(name));
            oldest.and_then(|name| table.open.remove(&name)).iter().for_each(Session::cancel);
        }
        table.clock += 1;
        let session = Session { revision, used: table.clock, in_flight: HashMap::new() };
        table.open.insert(name.into(), session);
        Some(value)
    }

    pub(super) fn find(&self, name: &str) -> Option<(Arc<str>, Revision)> {
        let mut table = self.lock();
        table.clock += 1;
        let clock = table.clock;
        let (name, _) = table.open.get_key_value(name)?;
        let name = Arc::clone(name);
        let session = table.open.get_mut(&name)?;
        session.used = clock;
        Some((name, session.revision.clone()))
    }

    /// Ends a session and cancels what it waits for.
    pub(super) fn end(&self, name: &str) {
        self.lock().open.remove(name).iter().for_each(Session::cancel);
    }

    pub(super) fn begin<'s>(&'s self, name: &Arc<str>, id: &Id) -> Slot<'s> {
        let mut table = self.lock();
        let Some(session) = table.open.get_mut(name) else { return Slot::Taken };
        if session.in_flight.contains_key(id) {
            return Slot::Taken;
        }
        let token = CancellationToken::new();
        session.in_flight.insert(id.clone(), token.clone());
        Slot::Open(InFlight { sessions: self, name: Arc::clone(name), id: id.clone(), token })
    }

    /// Cancels what `notifications/cancelled` names, in its own session alone.
    pub(super) fn cancel(&self, name: &str, params: Option<&Value>) {
        let id = match params.and_then(|params| params.get("requestId")) {
            Some(Value::Number(number)) => number.as_i64().map(Id::Number),
            Some(Value::String(text)) => Some(Id::Text(text.clone())),
            _ => None,
        };
        let table = self.lock();
        let session = table.open.get(name);
        if let Some(token) = id.and_then(|id| session?.in_flight.get(&id)) {
            token.cancel();
        }
    }
}

impl Session {
    fn cancel(&self) {
        self.in_flight.values().for_each(CancellationToken::cancel);
    }
}

/// A request that is waiting; leaves the table when dropped.
pub(super) struct InFlight<'s> {
    sessions: &'s Sessions,
    name: Arc<str>,
    id: Id,
    token: CancellationToken,
}

impl InFlight<'_> {
    pub(super) fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.lock().open.get_mut(&self.name) {
            session.in_flight.remove(&self.id);
        }
    }
}
