//! Memory for what servers answer: one account for all of them, and a share of it for each, so that
//! no server takes what the others need.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::strict;
use crate::upstream::UpstreamLimits;

/// Bytes of all replies that are held at once: from the moment they are read until their client has
/// them.
const ALL: usize = 512 << 20;
/// Those of one server.
const EACH: usize = 128 << 20;
/// Bytes of one unit of the account.
const UNIT: usize = 1024;
/// Bytes that one JSON value takes beside its text.
const VALUE: usize = 70;
/// What takes no more than this is not counted: requests under way are bounded in number.
const SMALL: usize = 16 * 1024;
/// Bytes of a reply that are read before there has to be room for the rest of it.
pub(crate) const BEGUN: usize = 64 * 1024;
/// How long the rest of it may take then: room is not kept for a server that does not go on.
pub(crate) const REST: Duration = Duration::from_secs(60);

/// The memory for replies that several servers have together.
#[derive(Debug, Clone)]
pub struct Replies {
    all: Arc<Semaphore>,
    each: usize,
}

impl Replies {
    /// Room for so many bytes in all, and for so many of each server.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all / UNIT)), each: (each / UNIT).min(all / UNIT) }
    }

    /// That of this process: 512 MiB, 128 MiB of each server.
    #[must_use]
    pub fn of_process() -> Self {
        static PROCESS: LazyLock<Replies> = LazyLock::new(|| Replies::new(ALL, EACH));
        PROCESS.clone()
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits() * UNIT
    }

    /// The share of one server, whatever its connections.
    #[must_use]
    pub fn share(&self) -> Share {
        Share(Arc::new(Own {
            own: Arc::new(Semaphore::new(self.each)),
            replies: self.clone(),
            waiting: AtomicUsize::new(0),
        }))
    }
}

/// One server's part of the memory for replies.
#[derive(Debug, Clone)]
pub struct Share(Arc<Own>);

#[derive(Debug)]
struct Own {
    own: Arc<Semaphore>,
    replies: Replies,
    /// Replies that wait for room.
    waiting: AtomicUsize,
}

impl Default for Share {
    fn default() -> Self {
        Replies::of_process().share()
    }
}

/// What a reply takes, until this is dropped.
#[derive(Debug)]
pub struct Held {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

struct Waiting<'s>(&'s AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a text takes: itself, its values, and itself once more on its way out.
fn cost(text: &[u8]) -> usize {
    2 * text.len() + VALUE * strict::values(text)
}

impl Share {
    async fn take(&self, bytes: usize) -> Held {
        // However little there is, there is room for one.
        let units = bytes.div_ceil(UNIT).min(self.0.replies.each);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.0.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.0.waiting);
        loop {
            let own = Arc::clone(&self.0.own).acquire_many_owned(units).await;
            let all = Arc::clone(&self.0.replies.all).acquire_many_owned(units).await;
            // Neither is ever closed.
            if let (Ok(own), Ok(all)) = (own, all) {
                return Held { own, all };
            }
        }
    }

    /// Whether a reply of this server waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.waiting.load(Ordering::Acquire) > 0
    }

    /// Room for the largest reply there may be, for one that has [`BEGUN`].
    pub(crate) async fn begun(&self, limits: UpstreamLimits) -> Held {
        self.take(2 * limits.message + VALUE * limits.values.min(limits.message / 2 + 1)).await
    }

    /// Room for this reply, before it is parsed; `begun` is what was taken for it already.
    pub(crate) async fn whole(&self, text: &[u8], begun: Option<Held>) -> Option<Held> {
        let cost = cost(text);
        match begun {
            Some(mut held) => {
                held.shrink(cost);
                Some(held)
            }
            None if cost <= SMALL => None,
            None => Some(self.take(cost).await),
        }
    }
}

impl Held {
    /// No more than so many bytes are needed.
    fn shrink(&mut self, bytes: usize) {
        let needed = bytes.div_ceil(UNIT);
        for permit in [&mut self.own, &mut self.all] {
            drop(permit.split(permit.num_permits().saturating_sub(needed)));
        }
    }
}

/// A text on its way to a client, with what is held for it until the last of it is gone.
pub(crate) fn outgoing(text: Vec<u8>, held: Vec<Held>) -> Bytes {
    struct Outgoing {
        text: Vec<u8>,
        _held: Vec<Held>,
    }
    impl AsRef<[u8]> for Outgoing {
        fn as_ref(&self) -> &[u8] {
            &self.text
        }
    }
    if held.is_empty() { text.into() } else { Bytes::from_owner(Outgoing { text, _held: held }) }
}

#[cfg(test)]
mod tests {
    use super::{BEGUN, Replies, UNIT, cost, outgoing};
    use crate::upstream::UpstreamLimits;

    #[tokio::test(start_paused = true)]
    async fn a_server_waits_for_its_own_share_and_for_no_other_s() {
        let replies = Replies::new(1 << 20, 400 << 10);
        let (greedy, other) = (replies.share(), replies.share());
        let first = greedy.take(300 << 10).await;
        let wait = std::time::Duration::from_secs(1);
        assert!(!greedy.is_waiting());
        let mut second = Box::pin(greedy.take(300 << 10));
        assert!(tokio::time::timeout(wait, &mut second).await.is_err());
        assert!(greedy.is_waiting() && !other.is_waiting());
        let theirs = other.take(300 << 10).await;
        drop(first);
        let second = second.await;
        drop((second, theirs));
        // All of them together have no more than there is.
        let shares: Vec<_> = (0..3).map(|_| replies.share()).collect();
        let two = (shares[0].take(400 << 10).await, shares[1].take(400 << 10).await);
        assert!(tokio::time::timeout(wait, shares[2].take(400 << 10)).await.is_err());
        drop(two);
        // One that could never fit takes all of the share.
        drop(shares[2].take(usize::MAX >> 2).await);
        assert_eq!(replies.free(), 1 << 20);
    }

    #[tokio::test]
    async fn what_is_held_is_what_it_takes_until_the_last_of_it_is_gone() {
        let replies = Replies::new(64 << 20, 64 << 20);
        let share = replies.share();
        let limits = UpstreamLimits { message: 1 << 20, junk: 0, values: 1000 };
        let text = format!("[{}]", "1,".repeat(50_000));
        assert!(text.len() > BEGUN);
        let begun = share.begun(limits).await;
        assert_eq!(replies.free(), (64 << 20) - ((2 << 20) + 70_000_usize.div_ceil(UNIT) * UNIT));
        let held = share.whole(text.as_bytes(), Some(begun)).await.unwrap();
        let bytes = outgoing(text.clone().into_bytes(), vec![held]);
        let taken = (64 << 20) - replies.free();
        assert!(taken <= cost(text.as_bytes()) + UNIT, "{taken}");
        let part = bytes.slice(..10);
        drop(bytes);
        assert!(replies.free() < 64 << 20);
        drop(part);
        assert_eq!(replies.free(), 64 << 20);
        assert!(share.whole(b"{}", None).await.is_none(), "the small ones are free");
        assert!(share.whole(text.as_bytes(), None).await.is_some());
    }
}
