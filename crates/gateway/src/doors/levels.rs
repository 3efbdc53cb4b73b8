//! How much servers are to log, by what each connection has asked for: a server that comes up later is
//! told too.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_bundle::ServerId;
use serde_json::Value;

/// Connections whose level is kept.
const MOST: usize = 1024;

/// The levels of one door.
#[derive(Debug, Default)]
pub(super) struct Levels(Mutex<HashMap<Arc<str>, Level>>);

#[derive(Debug, Default)]
struct Level {
    params: Option<Value>,
    /// The connections of servers that were told so.
    told: BTreeMap<ServerId, u64>,
}

impl Levels {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Level>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection wants this level from now on.
    pub(super) fn set(&self, session: &Arc<str>, params: Option<Value>) {
        let mut levels = self.lock();
        if levels.len() < MOST || levels.contains_key(session) {
            levels.insert(Arc::clone(session), Level { params, told: BTreeMap::new() });
        }
    }

    /// What a server has to be told yet over this connection of its own.
    #[allow(clippy::option_option, reason = "parameters may be absent in what is passed on")]
    pub(super) fn untold(
        &self,
        session: Option<&Arc<str>>,
        server: &ServerId,
        generation: u64,
    ) -> Option<Option<Value>> {
        let levels = self.lock();
        let level = levels.get(session?)?;
        (level.told.get(server) != Some(&generation)).then(|| level.params.clone())
    }

    /// It was told so.
    pub(super) fn told(&self, session: Option<&Arc<str>>, server: &ServerId, generation: u64) {
        let Some(session) = session else { return };
        if let Some(level) = self.lock().get_mut(session) {
            level.told.insert(server.clone(), generation);
        }
    }

    pub(super) fn ended(&self, session: &str) {
        self.lock().remove(session);
    }
}
