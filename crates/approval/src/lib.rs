//! Did a person say yes to this call?
//!
//! A [`Desk`] keeps the questions of one run in the shared state database, where any process of this
//! machine's user can answer them ([`Questions`]), and asks its [`Channel`]s: the terminal that runs
//! the agent, signed webhooks ([`Webhook`]). An answer counts once, for the question that was asked,
//! while it waits.

#![forbid(unsafe_code)]

mod bound;
mod decision;
mod desk;
mod error;
mod poke;
mod questions;
mod ticket;
mod webhook;

pub use bound::digest;
pub use decision::{Decision, Verdict};
pub use desk::{Channel, Desk, MOST_PENDING, Parts};
pub use error::Error;
pub use questions::{Answer, Kept, Questions, Standing};
pub use ticket::{SHOWN, Ticket};
pub use webhook::{Post, Posted, Received, Webhook, check_url, is_loopback, public_text};

use std::future::Future;
use std::pin::Pin;

/// A future on the heap.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A call that waits for a person. Everything that a yes is bound to is in here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Whose tool it is.
    pub server: String,
    /// Which.
    pub tool: String,
    /// Digest of the server's declaration.
    pub server_digest: String,
    /// Digest of the tool's definition.
    pub tool_digest: String,
    /// The arguments, as the text that would be sent on.
    pub arguments: String,
    /// The other members of the request's parameters (`_meta`, `task`, a client's answers in a later
    /// round, and whatever else is sent on), as the text that would be sent on: an object, `{}`
    /// without any.
    pub other_params: String,
    /// Digest of the ruleset.
    pub ruleset: String,
    /// The rule that asks for it, as a person reads it.
    pub rule: String,
    /// The number of the call within its run.
    pub call: u64,
    /// Who calls, as in the record.
    pub caller: String,
}

/// A yes. Made by an [`Approver`], for the question that was asked and for no other; used once.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Approved {
    question: Question,
    by: String,
    via: String,
    id: String,
}

impl Approved {
    /// Made by an [`Approver`]: `by` is `terminal`, a local user's name or an approver's key, `via`
    /// the channel, `id` the question's.
    pub fn new(question: Question, by: String, via: String, id: String) -> Self {
        Self { question, by, via, id }
    }

    /// Uses it up. In words who said yes, and how, if it is for this question; the rule by which it
    /// is not otherwise.
    ///
    /// # Errors
    /// What is not as it was when it was asked.
    pub fn spend(self, now: &Question) -> Result<String, String> {
        if self.question == *now {
            return Ok(format!("approved by {} ({}, {})", self.by, self.via, self.id));
        }
        Err(format!("{}: what was approved is no longer what is called", self.id))
    }
}

/// What became of a question. Used once: an answer is for the question that was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// Somebody said yes.
    Approved(Approved),
    /// Somebody said no.
    Denied {
        /// Who.
        by: String,
        /// How.
        via: String,
        /// Names the question.
        id: String,
        /// In their words, escaped, if they gave any.
        reason: Option<String>,
    },
    /// Nobody answered in time.
    TimedOut {
        /// Names the question.
        id: String,
        /// What the manifest says to do then, as far as the machine allows it.
        then: OnTimeout,
    },
    /// Nobody could be asked.
    Unasked {
        /// In words.
        reason: String,
    },
}

/// What a timeout does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// The call is refused.
    Deny,
    /// The run is stopped.
    Abort,
    /// The call goes through.
    Proceed,
}

/// Asks people. One trait, so that a gateway can be tested without any.
pub trait Approver: Send + Sync + 'static {
    /// Asks and waits. Dropping the future withdraws the question.
    fn ask(&self, question: Question) -> Boxed<'_, Said>;
}
