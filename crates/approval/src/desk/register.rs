//! Which questions of a run are in its record without an answer. Each gets one, whatever happens: of
//! who answered, or that it was withdrawn.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use ringfence_record::{Error, Event, Recorder};

use crate::Ticket;

/// The open questions of one run, and its record. An event and what it changes here are one step, which
/// nothing comes between: whoever takes a question out writes down its answer.
pub(super) struct Register {
    recorder: Recorder,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Ids, and the digests that an answer names.
    waiting: BTreeMap<String, String>,
    /// The run ends: nothing is asked any more.
    closed: bool,
}

impl Register {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands in an event in the same step as a change, where `change` still finds something to do, and
    /// waits until it is on disk. False when it did not. Dropped while it waits for the disk, the event
    /// is in the record all the same, and so is the change.
    async fn step(
        &self,
        event: Event,
        change: impl FnOnce(&mut Open) -> bool,
    ) -> Result<bool, Error> {
        // So that the first poll below does not have to wait for room.
        self.recorder.room().await;
        let mut change = Some(change);
        let mut commit = Box::pin(self.recorder.commit(event));
        let mut stepped = true;
        let receipt = poll_fn(|context| {
            let Some(change) = change.take() else {
                return commit.as_mut().poll(context).map(Some);
            };
            let mut open = self.lock();
            if !change(&mut open) {
                stepped = false;
                return Poll::Ready(None);
            }
            commit.as_mut().poll(context).map(Some)
        })
        .await;
        match receipt {
            None => Ok(false),
            Some(receipt) => receipt.map(|_durable| stepped),
        }
    }

    /// A question is asked. False when the run ends.
    pub(super) async fn ask(&self, ticket: &Ticket, asked: Event) -> Result<bool, Error> {
        self.step(asked, |open| {
            if !open.closed {
                open.waiting.insert(ticket.id.clone(), ticket.digest.clone());
            }
            !open.closed
        })
        .await
    }

    /// It is answered so. False when it was answered before.
    pub(super) async fn answer(&self, ticket: &Ticket, answered: Event) -> Result<bool, Error> {
        self.step(answered, |open| open.waiting.remove(&ticket.id).is_some()).await
    }

    /// Nobody waits for its answer any more. Nothing when it was answered before.
    pub(super) fn withdraw(&self, ticket: &Ticket) {
        let mut open = self.lock();
        if open.waiting.remove(&ticket.id).is_some() {
            let words = "nobody waited for the answer any more";
            self.note(ticket.id.clone(), ticket.digest.clone(), words);
        }
    }

    /// The run ends: whatever waits is withdrawn, and nothing is asked any more.
    pub(super) fn close(&self) {
        let mut open = self.lock();
        open.closed = true;
        for (question, digest) in std::mem::take(&mut open.waiting) {
            self.note(question, digest, "the run ended");
        }
    }

    fn note(&self, question: String, digest: String, words: &str) {
        // A record that fails ends the run by itself.
        let _ = self.recorder.note(Event::ApprovalAnswered {
            question,
            digest,
            answer: "withdrawn".into(),
            channel: "none".into(),
            by: None,
            reason: Some(words.into()),
        });
    }
}
