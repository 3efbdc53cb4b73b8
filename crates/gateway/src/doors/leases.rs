//! A toolset of the trusted bundle, selected by one connection for a task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_bundle::Id;

use crate::Selection;

/// Characters of a task that are kept.
pub(crate) const TASK: usize = 200;
/// Connections with a lease at once.
const MOST: usize = 1024;

/// What a connection has selected, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Unique within this process.
    pub id: u64,
    /// The toolset.
    pub toolset: Id,
    /// What for, in the agent's words: hostile text, at most 200 characters.
    pub task: String,
    /// Whose it is, as in the record.
    pub holder: String,
}

/// Keeps the table of leases where people can see it, held by this process's id and start time. A
/// lease whose process is gone is over.
pub trait LeaseBook: Send + Sync + 'static {
    /// A lease begins. The error is for the agent, and there is no lease.
    ///
    /// # Errors
    /// In words, without paths.
    fn began(&self, lease: &Lease) -> Result<(), String>;
    /// It is over: released, or its connection has ended.
    fn ended(&self, id: u64);
}

/// The leases of one door, by connection.
#[derive(Default)]
pub(crate) struct Leases {
    book: Option<Arc<dyn LeaseBook>>,
    held: Mutex<HashMap<Arc<str>, (Lease, Selection)>>,
}

impl Leases {
    pub(crate) fn new(book: Option<Arc<dyn LeaseBook>>) -> Self {
        Self { book, held: Mutex::default() }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, (Lease, Selection)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a connection has selected.
    pub(crate) fn selection(&self, session: Option<&Arc<str>>) -> Option<Selection> {
        self.held().get(session?).map(|(_, selection)| selection.clone())
    }

    /// Replaces what the connection held before.
    pub(crate) fn take(
        &self,
        session: &Arc<str>,
        lease: Lease,
        selection: Selection,
    ) -> Result<(), String> {
        let mut held = self.held();
        if held.len() >= MOST && !held.contains_key(session) {
            return Err(format!("{MOST} connections have a lease already"));
        }
        if let Some(book) = &self.book {
            book.began(&lease)?;
        }
        let before = held.insert(Arc::clone(session), (lease, selection));
        if let (Some(book), Some((before, _))) = (&self.book, before) {
            book.ended(before.id);
        }
        Ok(())
    }

    /// False when there was none.
    pub(crate) fn release(&self, session: &str) -> bool {
        let gone = self.held().remove(session);
        if let (Some(book), Some((lease, _))) = (&self.book, &gone) {
            book.ended(lease.id);
        }
        gone.is_some()
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        let held = std::mem::take(&mut *self.held());
        if let Some(book) = &self.book {
            held.values().for_each(|(lease, _)| book.ended(lease.id));
        }
    }
}
