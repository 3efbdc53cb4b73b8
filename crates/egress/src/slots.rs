//! Room for connections: of one listener, and of all of a run.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The room of one listener, within that of the run.
#[derive(Debug)]
pub(crate) struct Slots {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
    size: u32,
}

/// A place that is taken; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Slots {
    pub(crate) fn new(size: usize, all: Arc<Semaphore>) -> Self {
        let size = size.min(1 << 20);
        let own = Arc::new(Semaphore::new(size));
        // It was cut to 20 bits.
        Self { own, all, size: u32::try_from(size).unwrap_or(1 << 20) }
    }

    /// Waits for a place.
    pub(crate) async fn take(&self) -> Slot {
        let shut = "these semaphores are never closed";
        let own = Arc::clone(&self.own).acquire_owned().await.expect(shut);
        let all = Arc::clone(&self.all).acquire_owned().await.expect(shut);
        Slot { _own: own, _all: all }
    }

    /// A place, if there is one now.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        let own = Arc::clone(&self.own).try_acquire_owned().ok()?;
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Slot { _own: own, _all: all })
    }

    /// Ends when nobody holds a place of this listener.
    pub(crate) async fn empty(&self) {
        let _ = self.own.acquire_many(self.size).await;
    }
}
