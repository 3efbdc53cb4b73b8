//! The door to a run's budget.

use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

use crate::Usd;

/// A future on the heap.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A priced call, before it is let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Whose tool it is.
    pub server: String,
    /// Which.
    pub tool: String,
    /// The number of the call within its run.
    pub call: u64,
}

/// What a budget says to a call.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// There is no price, or no cap: nothing is kept.
    Free {
        /// As a person reads it.
        rule: String,
    },
    /// The most that it may cost is set aside.
    Reserved(Reservation),
    /// A cap is reached, or the budget cannot be known.
    Refused {
        /// As a person reads it.
        rule: String,
        /// Nothing more can be paid for in this run: it is to be stopped.
        stop: bool,
    },
}

/// What became of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// What was charged.
    pub cost: Usd,
    /// Why the run is to be stopped: the cap was crossed, or the usage was not to be understood.
    pub stop: Option<String>,
    /// A person is to be warned, once: so much of a cap is used.
    pub warning: Option<String>,
}

/// What is set aside for one call, on disk. To be settled or released. Dropped, it is given back, or, once
/// it was said that the call goes out ([`Reservation::sent`]), spent whole.
#[must_use]
pub struct Reservation {
    /// How much.
    pub amount: Usd,
    /// As a person reads it: the caps, and what is left of them.
    pub rule: String,
    held: Box<dyn Held>,
}

/// The purse's side of a reservation.
pub trait Held: Send + Sync {
    /// See [`Reservation::settle`].
    fn settle<'a>(self: Box<Self>, reply: Option<&'a Value>) -> Boxed<'a, Settled>;
    /// See [`Reservation::release`].
    fn release(self: Box<Self>) -> Boxed<'static, ()>;
    /// See [`Reservation::sent`].
    fn sent(&mut self, sent: bool);
}

impl Reservation {
    /// Made by a [`Purse`].
    pub fn new(amount: Usd, rule: String, held: Box<dyn Held>) -> Self {
        Self { amount, rule, held }
    }

    /// Charges what a reply says that it cost. The reply is a whole JSON-RPC response, as the meters'
    /// paths read it; `None` when the server gave none that could say so. Then, and when the usage in
    /// it is not to be understood, all of what was set aside is spent, and the run is to be stopped.
    /// (Where the client gave up on a call that was sent, drop the reservation instead: it is spent whole,
    /// and nobody is stopped.)
    ///
    /// It is under way when this returns; the future may be awaited later, and says what came of it
    /// before that is on disk.
    #[must_use]
    pub fn settle(self, reply: Option<&Value>) -> Boxed<'_, Settled> {
        self.held.settle(reply)
    }

    /// To be said before the call goes out: from here on a server may have done something with it, and
    /// what is dropped is spent whole. Taken back where it turns out that nothing was sent.
    pub fn sent(&mut self, sent: bool) {
        self.held.sent(sent);
    }

    /// Gives it back: the call did not reach the server.
    #[must_use]
    pub fn release(self) -> Boxed<'static, ()> {
        self.held.release()
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").field("amount", &self.amount).finish_non_exhaustive()
    }
}

/// What a budget says as soon as it can.
#[derive(Debug)]
#[must_use]
pub enum Early {
    /// All of it.
    Known(Verdict),
    /// Room is found and written; being on disk is under way.
    Pending(Pending),
}

/// A reservation that is not on disk yet, so that a call cannot be made with it: meanwhile the decision
/// can be written to the record, and both are waited for together. Dropped, it is given back.
#[must_use]
pub struct Pending {
    /// How much.
    pub amount: Usd,
    /// As a person reads it: the caps, and what is left of them.
    pub rule: String,
    durable: Boxed<'static, Result<Reservation, String>>,
}

impl Pending {
    /// Made by a [`Purse`].
    pub fn new(
        amount: Usd,
        rule: String,
        durable: Boxed<'static, Result<Reservation, String>>,
    ) -> Self {
        Self { amount, rule, durable }
    }

    /// Waits for the disk.
    ///
    /// # Errors
    /// In words, when it did not get there: the call is to be refused.
    pub async fn durable(self) -> Result<Reservation, String> {
        self.durable.await
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("amount", &self.amount).finish_non_exhaustive()
    }
}

/// The budget of a run. One trait, so that a gateway can be tested without a database.
pub trait Purse: Send + Sync + 'static {
    /// Sets aside what a call may cost. What comes back is durable.
    fn reserve(&self, asked: Asked) -> Boxed<'_, Verdict>;

    /// As [`Purse::reserve`], and says so before it is durable.
    fn reserve_early(&self, asked: Asked) -> Boxed<'_, Early> {
        let verdict = self.reserve(asked);
        Box::pin(async move { Early::Known(verdict.await) })
    }

    /// A warning that no settlement could say yet: to be asked for at the end of a run, when all of them are
    /// written.
    fn warning(&self) -> Option<String> {
        None
    }
}
