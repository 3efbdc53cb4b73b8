//! One request that is under way: the backend's work, and what it says to the client meanwhile.
//!
//! Work and reader are apart, so that an answer can be waited for in place, streamed, or left for
//! a client that comes back: [`Driver`] polls the backend, [`Exchange::poll_next`] hands on what it
//! said. As long as one task does both, nothing is spawned.

pub(crate) mod able;
mod hears;
mod outbox;
pub(crate) mod questions;
pub(crate) mod rounds;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::door::answer::cancelled;
use crate::envelope::call;
use crate::replies::outgoing;
use crate::role::CANCELLED;
use crate::{Answer, Boxed, Client, Held, Party, RpcError, code};

pub(crate) use hears::{Hears, LEVELS, tagged};
use outbox::{Outbox, Taken};
use questions::Questions;
use rounds::Rounds;

/// How long a question of a server that asks one by one waits for others that it asks at the same time:
/// they reach the client in one result. A server that names its questions has asked them all at once.
const TOGETHER: Duration = Duration::from_millis(100);

/// How the client of an exchange can be asked something.
pub(crate) enum Asking {
    /// Not at all.
    No,
    /// By requests of ours on its stream.
    Requests(Arc<Questions>),
    /// By ending the exchange, until the client comes back with answers.
    Rounds(Rounds),
}

/// What a reader is handed next.
pub(crate) enum Next {
    /// A message for the client.
    Message(Bytes),
    /// The exchange ends here: these questions come first.
    Round(Map<String, Value>),
    /// The last of it.
    Done(Answer),
    /// Another reader has taken over.
    Over,
}

pub(crate) struct Exchange {
    party: Party,
    capabilities: Arc<Value>,
    asking: Asking,
    hears: Hears,
    /// Messages have a way to the client beside the answer.
    streams: bool,
    outbox: Outbox,
    /// What its answer takes in memory.
    held: Mutex<Vec<Held>>,
}

impl Exchange {
    pub(crate) fn new(
        party: Party,
        capabilities: Arc<Value>,
        asking: Asking,
        hears: Hears,
        streams: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            party,
            capabilities,
            asking,
            hears,
            streams,
            outbox: Outbox::default(),
            held: Mutex::default(),
        })
    }

    /// What comes next for the reader of this number.
    pub(crate) fn poll_next(&self, reader: u64, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            return match std::task::ready!(self.outbox.poll_take(reader, cx)) {
                Taken::Message(text) => Poll::Ready(Next::Message(text)),
                Taken::Done(answer) => Poll::Ready(Next::Done(answer)),
                Taken::Over => Poll::Ready(Next::Over),
                Taken::Round => match self.round() {
                    Some(requests) => Poll::Ready(Next::Round(requests)),
                    // Whoever asked has thought better of it.
                    None => continue,
                },
            };
        }
    }

    /// The questions that are open, as `inputRequests`.
    pub(crate) fn round(&self) -> Option<Map<String, Value>> {
        match &self.asking {
            Asking::Rounds(rounds) => rounds.requests(),
            _ => None,
        }
    }

    pub(crate) fn rounds(&self) -> Option<&Rounds> {
        match &self.asking {
            Asking::Rounds(rounds) => Some(rounds),
            _ => None,
        }
    }

    /// A new reader takes over from the one before, if there is one. Its number.
    pub(crate) fn attach(&self) -> u64 {
        self.outbox.attach()
    }

    /// The reader of this number is gone; the work is given up when none comes for so long.
    pub(crate) fn detach(&self, reader: u64, wait: Duration) {
        self.outbox.detach(reader, wait);
    }

    /// Gives the work up.
    pub(crate) fn cancel(&self) {
        self.outbox.cancel();
    }

    /// Whether the work was given up.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.outbox.is_cancelled()
    }

    /// Done when the work was given up: for one that waits in place of a [`Driver`].
    pub(crate) async fn cancelled(&self) {
        std::future::poll_fn(|cx| match self.outbox.poll_cancelled(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Lets the work look again at what it waits for.
    pub(crate) fn wake(&self) {
        self.outbox.wake_driver();
    }

    /// Done when nobody has read for as long as may be.
    pub(crate) async fn abandoned(&self) {
        self.outbox.abandoned().await;
    }

    /// Done when the answer was taken.
    pub(crate) async fn taken(&self) {
        self.outbox.taken().await;
    }

    /// Its last message on its way out, with what is held for it.
    pub(crate) fn outgoing(&self, text: Vec<u8>) -> Bytes {
        let held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        outgoing(text, held)
    }

    /// Says something whether or not the client wants to hear of it. False when it did not get
    /// into the queue and will not.
    pub(crate) async fn say(&self, text: Vec<u8>) -> bool {
        self.streams && self.outbox.push(text.into()).await
    }

    async fn ask_under(&self, key: Option<&str>, method: &str, params: Option<Value>) -> Answer {
        match &self.asking {
            Asking::No => {
                let words = format!("{} cannot be asked here", method.escape_debug());
                Err(RpcError::new(code::METHOD_NOT_FOUND, words))
            }
            Asking::Requests(questions) => {
                if let Some(lack) = able::lack(&self.capabilities, method, params.as_ref()) {
                    return Err(RpcError::new(code::METHOD_NOT_FOUND, lack.words));
                }
                if !self.streams {
                    let words = "the client takes no stream, so it cannot be asked anything";
                    return Err(RpcError::new(code::METHOD_NOT_FOUND, words));
                }
                let (id, answer) = questions.open(method)?;
                let asked = Asked { exchange: self, questions, id };
                if !self.say(call(Some(id), method, params.as_ref())).await {
                    return Err(cancelled());
                }
                let answer = answer.await.unwrap_or_else(|_| Err(cancelled()));
                drop(asked);
                answer
            }
            Asking::Rounds(rounds) => {
                if let Some(lack) = able::lack(&self.capabilities, method, params.as_ref()) {
                    return Err(lack.into_error());
                }
                let put = rounds.ask(key, method, params)?;
                if let Some(key) = put.unnamed {
                    tokio::time::sleep(TOGETHER).await;
                    rounds.due(&key);
                }
                // It may have been asked outside the driver's own task.
                self.outbox.wake_driver();
                put.answer.await.unwrap_or_else(|_| Err(cancelled()))
            }
        }
    }
}

/// A question of ours that nobody may want an answer to any more.
struct Asked<'e> {
    exchange: &'e Exchange,
    questions: &'e Questions,
    id: i64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.questions.close(self.id) {
            let params = json!({ "requestId": self.id, "reason": "no longer needed" });
            let text = call(None, CANCELLED, Some(&params));
            self.exchange.outbox.push_if_room(text.into());
        }
    }
}

impl Client for Exchange {
    fn capabilities(&self) -> &Value {
        &self.capabilities
    }

    fn party(&self) -> Party {
        self.party.clone()
    }

    fn keep(&self, held: Held) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(held);
    }

    fn notify<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, ()> {
        Box::pin(async move {
            if self.streams
                && let Some(params) = self.hears.pass(method, params)
            {
                self.outbox.push(call(None, method, params.as_ref()).into()).await;
            }
        })
    }

    fn ask<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, Answer> {
        Box::pin(self.ask_under(None, method, params))
    }

    fn ask_as<'a>(
        &'a self,
        key: &'a str,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        Box::pin(self.ask_under(Some(key), method, params))
    }
}

/// The backend's work on one exchange. Dropping it gives the work up.
pub(crate) struct Driver {
    work: Option<Boxed<'static, Answer>>,
    exchange: Arc<Exchange>,
}

impl Driver {
    pub(crate) fn new(work: Boxed<'static, Answer>, exchange: Arc<Exchange>) -> Self {
        Self { work: Some(work), exchange }
    }

    pub(crate) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Lets the backend work. Ready when it is done or given up; its answer waits in the exchange.
    pub(crate) fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(work) = &mut self.work else { return Poll::Ready(()) };
        let answer = if self.exchange.outbox.poll_cancelled(cx) {
            Err(cancelled())
        } else {
            match work.as_mut().poll(cx) {
                Poll::Ready(answer) => answer,
                Poll::Pending => {
                    if self.exchange.rounds().is_some_and(Rounds::take_new) {
                        self.exchange.outbox.round();
                    }
                    return Poll::Pending;
                }
            }
        };
        self.work = None;
        self.exchange.outbox.finish(answer);
        Poll::Ready(())
    }

    /// Works until it is done, until nobody reads any more, or until it is given up; then stays
    /// until the answer was taken.
    pub(crate) async fn run(mut self) {
        let exchange = Arc::clone(&self.exchange);
        let work = std::future::poll_fn(|cx| self.poll_work(cx));
        let done = tokio::select! {
            () = exchange.abandoned() => false,
            () = work => true,
        };
        drop(self);
        if done {
            tokio::select! {
                () = exchange.abandoned() => {}
                () = exchange.taken() => {}
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.work.take().is_some() {
            self.exchange.outbox.finish(Err(cancelled()));
        }
    }
}
