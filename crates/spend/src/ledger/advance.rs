//! Money that a process sets aside for calls to come, so that not each of them waits for the disk.
//!
//! An advance is on disk before a call is paid from it, as a call's own reservation is. It is small
//! beside the tightest cap, and smaller still when little is left, so that what one process holds is
//! missing to no other; near a cap there is none, and each call is admitted by itself. What a process
//! that dies leaves of it stays spent, as a call in flight does.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::books::{Kind, Scopes};
use crate::{Caps, Usd};

use super::Told;

/// How long one is used. What is left of it then is given back.
const LASTS: Duration = Duration::from_secs(10);
/// The most calls that one is for.
const CALLS: u64 = 256;
/// For fewer calls than that it is not worth it.
const FEWEST: u64 = 8;
/// It is at most this part of the tightest cap,
const OF_A_CAP: u64 = 1_000;
/// and at most this part of what is left of it.
const OF_WHAT_IS_LEFT: u64 = 16;
/// So many calls of a process were admitted one by one before it has one.
const CALLS_BEFORE: u64 = 8;

/// Whose money, of which run, how much there is, and what of it is set aside in advance.
pub(crate) struct Account {
    pub(crate) who: String,
    pub(crate) run: String,
    /// Where the cap of one run counts: whose book, and the run in it. Its own, but where a process has
    /// several runs and one budget for all of them.
    pub(crate) counted: (String, String),
    pub(crate) caps: Caps,
    /// Calls that were admitted one by one.
    admitted: AtomicU64,
    /// Calls in flight that are paid from an advance.
    flying: AtomicUsize,
    side: Mutex<Side>,
}

#[derive(Default)]
struct Side {
    advance: Option<Advance>,
    /// Somebody asked for more of it.
    asked: bool,
    /// Calls that cost more than they may, and are not written down yet: meanwhile nothing is paid in
    /// advance.
    dear: usize,
    /// What is to be said with the next settlement.
    told: Told,
}

/// What is left of an advance.
pub(super) struct Advance {
    /// The day that it counts in.
    pub(super) day: Arc<str>,
    pub(super) left: Usd,
    /// What it was when it was last granted.
    full: Usd,
    until: Instant,
    /// As a person reads it: the caps, as they were.
    rule: Arc<str>,
}

/// A call that is paid from an advance.
pub(super) struct Drawn {
    pub(super) day: Arc<str>,
    pub(super) rule: Arc<str>,
    /// Little is left: more is to be asked for.
    pub(super) low: bool,
}

impl Account {
    pub(crate) fn new(who: &str, run: &str, counted: (String, String), caps: Caps) -> Self {
        Self {
            who: who.to_owned(),
            run: run.to_owned(),
            counted,
            caps,
            admitted: AtomicU64::new(0),
            flying: AtomicUsize::new(0),
            side: Mutex::default(),
        }
    }

    fn side(&self) -> MutexGuard<'_, Side> {
        self.side.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pays a call, where there is an advance with enough left.
    pub(super) fn draw(&self, wanted: Usd) -> Option<Drawn> {
        let mut side = self.side();
        if side.dear > 0 {
            return None;
        }
        let advance = side.advance.as_mut()?;
        if advance.until <= Instant::now() || advance.left < wanted {
            return None;
        }
        advance.left = advance.left.saturating_sub(wanted);
        let few = advance.left.units() < advance.full.units() / 2;
        let (day, rule) = (Arc::clone(&advance.day), Arc::clone(&advance.rule));
        let low = few && !std::mem::replace(&mut side.asked, true);
        self.flying.fetch_add(1, Ordering::SeqCst);
        Some(Drawn { day, rule, low })
    }

    /// A call that was paid from an advance is over, and its charge is about to be written.
    pub(super) fn landed(&self) {
        self.flying.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether calls in flight are paid from an advance.
    pub(super) fn has_flying(&self) -> bool {
        self.flying.load(Ordering::SeqCst) > 0
    }

    /// A call cost more than it may: what is set aside for calls is not enough, and until that is written
    /// down none is paid in advance.
    pub(super) fn dear(&self) {
        self.side().dear += 1;
        self.end();
    }

    /// It is written down.
    pub(super) fn dear_is_written(&self) {
        let mut side = self.side();
        side.dear = side.dear.saturating_sub(1);
    }

    /// No call is paid from this advance any more.
    pub(super) fn end(&self) {
        if let Some(advance) = self.side().advance.as_mut() {
            advance.until = Instant::now();
        }
    }

    /// Takes all that is left of the advance, to be given back.
    pub(super) fn reclaim(&self) -> Option<Advance> {
        let mut side = self.side();
        side.asked = false;
        side.advance.take()
    }

    /// Until when the advance is used.
    pub(super) fn until(&self) -> Option<Instant> {
        self.side().advance.as_ref().map(|advance| advance.until)
    }

    /// Puts what was set aside in advance at the disposal of calls: it is on disk, and of the same day as
    /// what is left of an earlier one.
    pub(super) fn grant(&self, day: &Arc<str>, amount: Usd, rule: &str) {
        let mut side = self.side();
        side.asked = false;
        let left = side.advance.take().map_or(Usd::ZERO, |advance| advance.left);
        let left = left.saturating_add(amount);
        side.advance = Some(Advance {
            day: Arc::clone(day),
            left,
            full: left,
            until: Instant::now() + LASTS,
            rule: rule.into(),
        });
    }

    /// The day that the advance is of.
    pub(super) fn day(&self) -> Option<Arc<str>> {
        self.side().advance.as_ref().map(|advance| Arc::clone(&advance.day))
    }

    /// Counts a call that was admitted by itself, and says whether there are so many that an advance is
    /// worth it.
    pub(super) fn is_busy(&self) -> bool {
        self.admitted.fetch_add(1, Ordering::Relaxed) >= CALLS_BEFORE
    }

    /// How much more to set aside in advance for calls that cost at most `wanted`: `scopes` are what is
    /// used now, with what the account already holds in advance.
    pub(super) fn more(&self, wanted: Usd, scopes: &Scopes) -> Option<Usd> {
        let each = wanted.units();
        let held = self.side().advance.as_ref().map_or(0, |advance| advance.left.units());
        let mut most = each.checked_mul(CALLS)?;
        for (kind, scope) in Kind::ALL.into_iter().zip(scopes) {
            let Some(cap) = self.caps.of(kind) else { continue };
            let left = cap.amount.saturating_sub(scope.used()).units().saturating_add(held);
            most = most.min(cap.amount.units() / OF_A_CAP).min(left / OF_WHAT_IS_LEFT);
        }
        let calls = most.checked_div(each)?;
        let more = calls.saturating_sub(held.div_ceil(each));
        (calls >= FEWEST && more >= calls / 2).then(|| Usd::from_units(more * each))
    }

    /// Keeps what is to be said until somebody settles.
    pub(super) fn tell(&self, told: Told) {
        let (stop, warning) = told;
        let mut side = self.side();
        side.told.0 = side.told.0.take().or(stop);
        side.told.1 = match (side.told.1.take(), warning) {
            (Some(one), Some(other)) => Some(format!("{one}; {other}")),
            (one, other) => one.or(other),
        };
    }

    /// What was kept.
    pub(crate) fn told(&self) -> Told {
        std::mem::take(&mut self.side().told)
    }
}

#[cfg(test)]
mod tests;
