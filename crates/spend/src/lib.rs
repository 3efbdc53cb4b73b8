//! What did it cost, and is there budget left?

#![forbid(unsafe_code)]

mod usd;

use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

pub use usd::Usd;

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

/// What is set aside for one call. To be settled or released; dropped, it is spent whole.
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
}

impl Reservation {
    /// Made by a [`Purse`].
    pub fn new(amount: Usd, rule: String, held: Box<dyn Held>) -> Self {
        Self { amount, rule, held }
    }

    /// Charges what a reply says that it cost; `None` when there was no reply that could say so, and
    /// all of it is spent. The reply is a whole JSON-RPC response, as the meters' paths read it.
    #[must_use]
    pub fn settle(self, reply: Option<&Value>) -> Boxed<'_, Settled> {
        self.held.settle(reply)
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

/// The budget of a run. One trait, so that a gateway can be tested without a database.
pub trait Purse: Send + Sync + 'static {
    /// Sets aside what a call may cost. What comes back is durable.
    fn reserve(&self, asked: Asked) -> Boxed<'_, Verdict>;
}
