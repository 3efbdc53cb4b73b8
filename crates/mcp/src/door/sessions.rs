//! The sessions of one door.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::Session;

/// More than any agent opens; beyond it the one that was unused for longest ends, of those of the
/// principal that has the most.
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
            let mut each: HashMap<Option<&str>, usize> = HashMap::new();
            each.insert(session.principal(), 1);
            for (_, other) in table.open.values() {
                *each.entry(other.principal()).or_default() += 1;
            }
            // Of those with the most it is this one's, if it is among them.
            let most = each.iter().max_by_key(|(who, n)| (**n, **who == session.principal()));
            let most = most.map(|(who, _)| *who);
            let its = table.open.values().filter(|(_, other)| Some(other.principal()) == most);
            let oldest = its.min_by_key(|(used, _)| *used);
            let name = oldest.map(|(_, other)| Arc::clone(other.name()));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{MOST, Session, Sessions};
    use crate::Revision;

    fn open(sessions: &Sessions, who: &str, n: usize) -> Option<Arc<str>> {
        let name = format!("{who}-{n}").into();
        let session = Session::new(name, Revision::HANDSHAKE, Some(who.into()), Arc::default());
        sessions.open(&session).map(|ended| Arc::clone(ended.name()))
    }

    #[test]
    fn whoever_has_the_most_sessions_makes_room() {
        let sessions = Sessions::default();
        assert_eq!(open(&sessions, "bert", 0), None);
        for n in 0..MOST - 1 {
            assert_eq!(open(&sessions, "anna", n), None);
        }
        assert_eq!(open(&sessions, "carl", 0).as_deref(), Some("anna-0"));
        assert_eq!(open(&sessions, "anna", MOST).as_deref(), Some("anna-1"));
        assert!(sessions.find("bert-0", Some("bert")).is_some());
        assert!(sessions.find("bert-0", Some("anna")).is_none());
    }
}
