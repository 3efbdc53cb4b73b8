//! Room for requests in memory. All doors of one listener have it together, and no client may take more
//! than its share: whoever is greedy waits for itself. A share is an upper bound and sets nothing
//! aside: enough clients at once can take all of the room, and then others wait. Requests of few
//! values alone have room of their own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::HttpRefusal;
use crate::parked::Parked;

/// Requests of more than [`SMALL`] bytes that are held in memory at once; the next ones wait.
const LARGE_AT_ONCE: usize = 8;
/// Those of one client, at most.
const LARGE_EACH: usize = 2;
/// JSON values in all requests of many values that are held in memory at once; the next ones wait.
/// Room for five requests of the most values.
const VALUES_AT_ONCE: usize = 500_000;
/// Those of one client, at most.
const VALUES_EACH: usize = 200_000;
/// A request of no more values than these has its client's own room, which is not shared.
const FEW: usize = 8 * 1024;
/// JSON values in such requests of one client.
const FEW_EACH: usize = 64 * 1024;
/// Bytes.
pub(super) const SMALL: usize = 64 * 1024;
/// How long a request waits for room.
const WAIT: Duration = Duration::from_secs(30);
/// Shares that are kept though nobody uses them.
const IDLE: usize = 64;

/// Who has a share: a principal, or everyone together where nobody is told apart.
type Who = Option<Arc<str>>;

pub(super) struct Room {
    large: Arc<Semaphore>,
    values: Arc<Semaphore>,
    shares: Mutex<HashMap<Who, Arc<Share>>>,
    /// Calls that wait for their clients to come back.
    pub(super) parked: Parked,
}

/// What one client may have at most.
struct Share {
    large: Arc<Semaphore>,
    values: Arc<Semaphore>,
    few: Arc<Semaphore>,
}

/// Room that is taken, until dropped.
pub(super) struct Place {
    _permits: [Option<OwnedSemaphorePermit>; 2],
    _share: Arc<Share>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            values: Arc::new(Semaphore::new(VALUES_AT_ONCE)),
            shares: Mutex::default(),
            parked: Parked::default(),
        }
    }
}

impl Room {
    fn share(&self, who: &Who) -> Arc<Share> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(who) {
            return Arc::clone(share);
        }
        if shares.len() >= IDLE {
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        // One who is alone has all of it.
        let (large, values) = match who {
            Some(_) => (LARGE_EACH, VALUES_EACH),
            None => (LARGE_AT_ONCE, VALUES_AT_ONCE),
        };
        let share = Arc::new(Share {
            large: Arc::new(Semaphore::new(large)),
            values: Arc::new(Semaphore::new(values)),
            few: Arc::new(Semaphore::new(FEW_EACH)),
        });
        shares.insert(who.clone(), Arc::clone(&share));
        share
    }

    /// Room for a large request.
    ///
    /// # Errors
    /// 503 when there is none in time.
    pub(super) async fn large(&self, who: &Who) -> Result<Place, HttpRefusal> {
        let share = self.share(who);
        in_time(async {
            let own = Arc::clone(&share.large).acquire_owned().await.ok();
            let all = Arc::clone(&self.large).acquire_owned().await.ok();
            Place { _permits: [own, all], _share: Arc::clone(&share) }
        })
        .await
    }

    /// Room for so many values.
    ///
    /// # Errors
    /// 503 when there is none in time.
    pub(super) async fn values(&self, who: &Who, values: usize) -> Result<Place, HttpRefusal> {
        let share = self.share(who);
        let some = |values: usize| u32::try_from(values).unwrap_or(u32::MAX);
        in_time(async {
            if values <= FEW {
                let few = Arc::clone(&share.few).acquire_many_owned(some(values)).await.ok();
                return Place { _permits: [few, None], _share: Arc::clone(&share) };
            }
            // Whatever the limits of a door are, there is room for one request.
            let values = some(values.min(VALUES_EACH));
            let own = Arc::clone(&share.values).acquire_many_owned(values).await.ok();
            let all = Arc::clone(&self.values).acquire_many_owned(values).await.ok();
            Place { _permits: [own, all], _share: Arc::clone(&share) }
        })
        .await
    }
}

async fn in_time(place: impl Future<Output = Place>) -> Result<Place, HttpRefusal> {
    tokio::time::timeout(WAIT, place).await.map_err(|_| {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        HttpRefusal::new(status, "requests under way take all the memory there is for them")
    })
}
