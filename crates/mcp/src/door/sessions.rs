//! The sessions of one door.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::Session;

/// More than any agent opens; beyond it the one that was unused for longest ends: one of the same
/// principal, if it has any.
const MOST: usize = 1024;

#[derive(Default)]
pub(super) struct Sessions(Mutex<Table>);

#[derive(Default)]
struct Table {
    clock: u64,
    open: HashMap<Arc<str>, (u64, Arc<Session>)>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session. Gives back the one that had to end for it.
    #[must_use]
    pub(super) fn open(&self, session: &Arc<Session>) -> Option<Arc<Session>> {
        let mut table = self.lock();
        let mut ended = None;
        if table.open.len() >= MOST {
            let same = |other: &Session| other.principal() == session.principal();
            let oldest = |mine: bool| {
                let open = table.open.values().filter(|(_, other)| !mine || same(other));
                open.min_by_key(|(used, _)| *used).map(|(_, other)| Arc::clone(other.name()))
            };
            let name = oldest(true).or_else(|| oldest(false));
            ended = name.and_then(|name| table.open.remove(&name)).map(|(_, session)| session);
        }
        table.clock += 1;
        let entry = (table.clock, Arc::clone(session));
        table.open.insert(Arc::clone(session.name()), entry);
        ended
    }

    /// The session of this name, if it is this principal's.
    pub(super) fn find(&self, name: &str, principal: Option<&str>) -> Option<Arc<Session>> {
        let mut table = self.lock();
        table.clock += 1;
        let clock = table.clock;
        let (used, session) = table.open.get_mut(name)?;
        if session.principal() != principal {
            return None;
        }
        *used = clock;
        Some(Arc::clone(session))
    }

    /// Takes a session out of the table. True when it was there.
    pub(super) fn remove(&self, name: &str) -> bool {
        self.lock().open.remove(name).is_some()
    }

    /// Takes all of them out.
    pub(super) fn drain(&self) -> Vec<Arc<Session>> {
        self.lock().open.drain().map(|(_, (_, session))| session).collect()
    }
}
