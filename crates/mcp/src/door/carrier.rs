//! Which connections carry a session: one that nothing carries any more has lost its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::Inner;
use super::session::Session;

/// A session that does nothing for so long has lost its client, whatever carries it: a proxy may
/// keep connections for clients that are gone.
const IDLE: Duration = Duration::from_secs(3600);

static CARRIERS: AtomicU64 = AtomicU64::new(1);

/// One connection of a listener, for as long as it lasts. Its [`Carrier::mark`] belongs into the
/// extensions of each request that comes over it.
#[derive(Debug)]
pub struct Carrier {
    mark: Mark,
    _gone: DropGuard,
}

/// Names the connection that a request came over.
#[derive(Debug, Clone)]
pub struct Mark {
    number: u64,
    gone: CancellationToken,
}

impl Default for Carrier {
    fn default() -> Self {
        let gone = CancellationToken::new();
        let number = CARRIERS.fetch_add(1, Ordering::Relaxed);
        Self { mark: Mark { number, gone: gone.clone() }, _gone: gone.drop_guard() }
    }
}

impl Carrier {
    /// A connection that was accepted just now.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For its requests.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark.clone()
    }
}

impl Inner {
    /// A request of a session has come over this connection. When it was the last that carried the
    /// session, and the client does not come back over another, the backend is told.
    pub(super) fn carried(self: &Arc<Self>, session: &Arc<Session>, mark: Option<&Mark>) {
        let Some(mark) = mark.filter(|mark| session.carry(mark.number)) else { return };
        let (door, session, mark) = (Arc::clone(self), Arc::clone(session), mark.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = door.stop.cancelled() => {}
                () = session.over() => {}
                () = door.lost(&session, &mark) => {}
            }
        });
    }

    /// Waits until a connection is gone, and sees what becomes of the session then.
    async fn lost(&self, session: &Session, mark: &Mark) {
        let idle = async {
            loop {
                tokio::time::sleep(IDLE).await;
                if session.idle().is_some_and(|idle| idle >= IDLE) {
                    self.backend.away(session.name());
                }
            }
        };
        tokio::select! {
            () = mark.gone.cancelled() => {}
            () = idle => {}
        }
        if session.put_down(mark.number) {
            return;
        }
        loop {
            tokio::time::sleep(self.options.resume_wait).await;
            if session.is_carried() {
                // Whoever carries it now sees to it.
                return;
            }
            // What is under way is given up by itself.
            if session.idle().is_some() {
                return self.backend.away(session.name());
            }
        }
    }
}
