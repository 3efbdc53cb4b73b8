//! What waits between a backend and the client: bounded, and nothing waits when nobody reads.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::Answer;

/// Messages that wait for a reader; the next one waits to get in.
const MESSAGES: usize = 32;
/// Bytes of them, unless one message alone is larger.
const BYTES: usize = 256 * 1024;
/// Bytes that are kept for a client that is away; the next message is dropped.
const AWAY: usize = 16 * 1024;

/// What a reader takes.
pub(super) enum Taken {
    Message(Bytes),
    Round,
    Done(Answer),
    Over,
}

#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    /// Room, or nobody to wait for.
    room: Notify,
    /// A reader came, went, or took the last of it.
    readers: Notify,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Bytes>,
    bytes: usize,
    round: bool,
    done: Option<Answer>,
    finished: bool,
    taken: bool,
    cancelled: bool,
    reader: u64,
    away: Option<Duration>,
    reading: Option<Waker>,
    working: Option<Waker>,
}

enum Pushed {
    Yes,
    No,
    Full,
}

impl State {
    fn push(&mut self, text: &Bytes) -> Pushed {
        if self.finished || self.cancelled {
            return Pushed::No;
        }
        let bytes = self.bytes + text.len();
        let fits = self.queue.len() < MESSAGES && (bytes <= BYTES || self.queue.is_empty());
        match self.away {
            Some(_) if !fits || bytes > AWAY => Pushed::No,
            None if !fits => Pushed::Full,
            _ => {
                self.bytes = bytes;
                self.queue.push_back(text.clone());
                Pushed::Yes
            }
        }
    }
}

fn wake(waker: Option<Waker>) {
    waker.into_iter().for_each(Waker::wake);
}

fn keep(slot: &mut Option<Waker>, cx: &Context<'_>) {
    if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *slot = Some(cx.waker().clone());
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_push(&self, text: &Bytes) -> Pushed {
        let mut state = self.lock();
        let pushed = state.push(text);
        let reading = matches!(pushed, Pushed::Yes).then(|| state.reading.take()).flatten();
        drop(state);
        wake(reading);
        pushed
    }

    /// Queues a message, and waits for room while there is a reader. False when it never got in.
    pub(super) async fn push(&self, text: Bytes) -> bool {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match self.try_push(&text) {
                Pushed::Yes => return true,
                Pushed::No => return false,
                Pushed::Full => room.await,
            }
        }
    }

    /// Queues a message, or not.
    pub(super) fn push_if_room(&self, text: Bytes) {
        let _ = self.try_push(&text);
    }

    /// Questions wait for the reader to end this exchange with.
    pub(super) fn round(&self) {
        let mut state = self.lock();
        state.round = true;
        let reading = state.reading.take();
        drop(state);
        wake(reading);
    }

    /// The last of it.
    pub(super) fn finish(&self, answer: Answer) {
        let mut state = self.lock();
        if !state.finished {
            state.finished = true;
            state.done = Some(answer);
        }
        let reading = state.reading.take();
        drop(state);
        wake(reading);
        self.room.notify_waiters();
    }

    pub(super) fn poll_take(&self, reader: u64, cx: &Context<'_>) -> Poll<Taken> {
        let mut state = self.lock();
        if state.reader != reader {
            return Poll::Ready(Taken::Over);
        }
        if let Some(text) = state.queue.pop_front() {
            state.bytes -= text.len();
            drop(state);
            self.room.notify_waiters();
            return Poll::Ready(Taken::Message(text));
        }
        if let Some(answer) = state.done.take() {
            state.taken = true;
            drop(state);
            self.readers.notify_waiters();
            return Poll::Ready(Taken::Done(answer));
        }
        if state.taken {
            return Poll::Ready(Taken::Over);
        }
        if std::mem::take(&mut state.round) {
            return Poll::Ready(Taken::Round);
        }
        keep(&mut state.reading, cx);
        Poll::Pending
    }

    /// True when the work is not wanted any more; otherwise its task is woken when that changes.
    pub(super) fn poll_cancelled(&self, cx: &Context<'_>) -> bool {
        let mut state = self.lock();
        if !state.cancelled {
            keep(&mut state.working, cx);
        }
        state.cancelled
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    pub(super) fn wake_driver(&self) {
        let working = self.lock().working.take();
        wake(working);
    }

    pub(super) fn cancel(&self) {
        let mut state = self.lock();
        state.cancelled = true;
        let working = state.working.take();
        drop(state);
        wake(working);
        self.room.notify_waiters();
    }

    pub(super) fn attach(&self) -> u64 {
        let mut state = self.lock();
        state.reader += 1;
        state.away = None;
        let (reader, before) = (state.reader, state.reading.take());
        drop(state);
        wake(before);
        self.readers.notify_waiters();
        reader
    }

    pub(super) fn detach(&self, reader: u64, wait: Duration) {
        let mut state = self.lock();
        if state.reader != reader {
            return;
        }
        state.away = Some(wait);
        state.reading = None;
        drop(state);
        self.room.notify_waiters();
        self.readers.notify_waiters();
    }

    /// Done when a client has been away for as long as it may.
    pub(super) async fn abandoned(&self) {
        loop {
            let change = self.readers.notified();
            tokio::pin!(change);
            change.as_mut().enable();
            let away = self.lock().away;
            match away {
                None => change.await,
                Some(wait) => {
                    if tokio::time::timeout(wait, change).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Done when the answer was taken.
    pub(super) async fn taken(&self) {
        loop {
            let change = self.readers.notified();
            tokio::pin!(change);
            change.as_mut().enable();
            if self.lock().taken {
                return;
            }
            change.await;
        }
    }
}
