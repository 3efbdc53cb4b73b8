//! The one thread that appends to a run's file: it takes all that waits, signs it as one group,
//! writes once, syncs once, and then wakes whoever asked for proof.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use ringfence_identity::Signer;
use tokio::sync::{Notify, oneshot, watch};

use crate::Error;
use crate::line::{self, Chain};

/// How much may wait to be written. A disk that is this far behind stops the run.
pub(crate) const MAX_QUEUED: usize = 16_384;
pub(crate) const MAX_QUEUED_BYTES: usize = 16 << 20;

/// How much may wait before those who can wait do: far enough below, that all who had room at the
/// same moment still find it.
const CROWDED: usize = 1024;
const CROWDED_BYTES: usize = 2 << 20;

/// How long events for which nobody waits wait for one for which somebody does: they then share its
/// group, and nobody waits for a sync of theirs.
const PATIENCE: Duration = Duration::from_millis(20);

/// So many of them are a group of their own at once.
const ENOUGH: usize = 256;

/// Where the last group had so many that somebody waited for, as many are on their way again: it is worth
/// waiting a little for them, and signing once for all.
const SOME: usize = 4;
const A_LITTLE: Duration = Duration::from_micros(500);

/// What a buffer may keep between groups.
const KEPT_BYTES: usize = 64 << 10;

/// Why the writer stopped, for every waiter to have a copy.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    path: PathBuf,
    kind: io::ErrorKind,
    errno: Option<i32>,
    text: String,
}

impl Failure {
    fn new(path: &std::path::Path, error: &io::Error) -> Self {
        let (kind, errno) = (error.kind(), error.raw_os_error());
        Self { path: path.to_owned(), kind, errno, text: error.to_string() }
    }

    pub(crate) fn error(&self) -> Error {
        let source = match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text.clone()),
        };
        Error::Write { path: self.path.clone(), source }
    }
}

pub(crate) type Outcome = Result<u64, Failure>;

/// Who waits for an event's group.
pub(crate) enum Waiter {
    Nobody,
    Task(oneshot::Sender<Outcome>),
    Thread(mpsc::SyncSender<Outcome>),
}

impl Waiter {
    fn wake(self, outcome: Outcome) {
        // A waiter that has gone away needs no answer; its event is in the file all the same.
        match self {
            Self::Nobody => {}
            Self::Task(sender) => drop(sender.send(outcome)),
            Self::Thread(sender) => drop(sender.try_send(outcome)),
        }
    }
}

struct Queued {
    at: String,
    event: Vec<u8>,
    waiter: Waiter,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    bytes: usize,
    /// How many of them somebody waits for.
    awaited: usize,
    /// While the writer waits for company: how many are enough.
    enough: Option<usize>,
    closing: bool,
    failed: bool,
}

impl State {
    /// Whether what is queued is written now.
    fn is_due(&self) -> bool {
        let much = self.queue.len() >= ENOUGH || self.bytes >= CROWDED_BYTES / 2;
        self.awaited > 0 || self.closing || self.failed || much
    }
}

/// What the callers and the thread share.
pub(crate) struct Shared {
    state: Mutex<State>,
    work: Condvar,
    space: Condvar,
    pub(crate) space_for_tasks: Notify,
    failure: watch::Sender<Option<Failure>>,
    /// Bytes of the file that are durable.
    pub(crate) durable: AtomicU64,
}

/// Why an event was not queued; the full queue gives the event back.
pub(crate) enum Refused {
    Full(Vec<u8>, Waiter),
    Closed,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            space: Condvar::new(),
            space_for_tasks: Notify::new(),
            failure: watch::Sender::new(None),
            durable: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock, so a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: Vec<u8>, waiter: Waiter) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closing || state.failed {
            return Err(Refused::Closed);
        }
        let fits = state.queue.is_empty() || state.bytes + event.len() <= MAX_QUEUED_BYTES;
        if state.queue.len() >= MAX_QUEUED || !fits {
            return Err(Refused::Full(event, waiter));
        }
        state.bytes += event.len();
        state.awaited += usize::from(!matches!(waiter, Waiter::Nobody));
        // The time is taken under the lock, so that times in the file are in the file's order.
        state.queue.push_back(Queued { at: line::now(), event, waiter });
        let wake = match state.enough {
            Some(enough) => state.awaited == enough || state.queue.len() == ENOUGH,
            // The first one starts the writer's patience.
            None => state.queue.len() == 1 || state.is_due(),
        };
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Waits until the queue has room or the writer has stopped.
    pub(crate) fn wait_for_space(&self) {
        let state = self.lock();
        let full = |state: &mut State| {
            let full = state.queue.len() >= MAX_QUEUED || state.bytes >= MAX_QUEUED_BYTES / 2;
            full && !state.closing && !state.failed
        };
        drop(self.space.wait_while(state, full).unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether so much waits that more should wait outside.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = self.lock();
        let much = state.queue.len() >= CROWDED || state.bytes >= CROWDED_BYTES;
        much && !state.closing && !state.failed
    }

    /// No event after this; what is queued is still written.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
        self.announce_space();
    }

    /// Fails closed: everything that waits is told, and nothing is taken any more.
    pub(crate) fn fail(&self, failure: &Failure) {
        let waiting = {
            let mut state = self.lock();
            state.failed = true;
            state.bytes = 0;
            std::mem::take(&mut state.queue)
        };
        self.failure
            .send_if_modified(|first| first.is_none() && first.replace(failure.clone()).is_none());
        for queued in waiting {
            queued.waiter.wake(Err(failure.clone()));
        }
        self.work.notify_one();
        self.announce_space();
    }

    /// Takes nothing any more because the disk does not keep up. What waits is still written: whoever
    /// can make it wait may not make it vanish.
    pub(crate) fn overrun(&self, path: &std::path::Path) {
        let error =
            io::Error::other(format!("{MAX_QUEUED} events wait: the disk does not keep up"));
        let failure = Failure::new(path, &error);
        self.failure.send_if_modified(|first| first.is_none() && first.replace(failure).is_none());
        self.close();
    }

    pub(crate) fn failures(&self) -> watch::Receiver<Option<Failure>> {
        self.failure.subscribe()
    }

    fn announce_space(&self) {
        self.space.notify_all();
        self.space_for_tasks.notify_waiters();
    }

    /// Everything that waits, once something does and is due; `None` when there will be nothing more.
    /// `last` is how many somebody waited for in the last group, and becomes that of this one.
    fn take(&self, into: &mut VecDeque<Queued>, last: &mut usize) -> Option<()> {
        let state = self.lock();
        let idle = |state: &mut State| state.queue.is_empty() && !state.closing && !state.failed;
        let state = self.work.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        let early = |state: &mut State| !state.is_due();
        let waited = self.work.wait_timeout_while(state, PATIENCE, early);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *last >= SOME && state.awaited > 0 {
            let enough = *last;
            state.enough = Some(enough);
            let few = |state: &mut State| {
                let much = state.queue.len() >= ENOUGH || state.awaited >= enough;
                !much && !state.closing && !state.failed
            };
            let waited = self.work.wait_timeout_while(state, A_LITTLE, few);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.enough = None;
        }
        if state.failed || state.queue.is_empty() {
            return None;
        }
        std::mem::swap(&mut state.queue, into);
        state.bytes = 0;
        *last = std::mem::take(&mut state.awaited);
        drop(state);
        self.announce_space();
        Some(())
    }
}

/// The thread's own side.
pub(crate) struct Writer {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) chain: Chain,
    pub(crate) signer: Signer,
    /// Bytes of the file that are durable.
    pub(crate) length: u64,
    /// Times of the first and the last event.
    pub(crate) span: Option<(String, String)>,
}

impl Writer {
    /// Writes groups until the record is closed or a write fails. Gives itself back, so that the
    /// file stays locked until the seal is in the machine log.
    pub(crate) fn work(mut self, shared: &Shared) -> Result<Self, Failure> {
        let mut group = VecDeque::new();
        let (mut lines, mut awaited) = (Vec::new(), 0);
        while shared.take(&mut group, &mut awaited).is_some() {
            let first = self.chain.seq;
            for queued in &group {
                self.chain.append(&mut lines, &queued.at, &queued.event);
            }
            self.chain.commit(&mut lines, &line::now(), &self.signer);
            if let Err(error) = self.write(&lines) {
                let failure = Failure::new(&self.path, &error);
                // First shut, then tell: whoever hears of it finds the record closed.
                shared.fail(&failure);
                for queued in group.drain(..) {
                    queued.waiter.wake(Err(failure.clone()));
                }
                return Err(failure);
            }
            shared.durable.store(self.length, Ordering::Release);
            if let (Some(from), Some(to)) = (group.front(), group.back()) {
                let start = self.span.take().map_or_else(|| from.at.clone(), |(start, _)| start);
                self.span = Some((start, to.at.clone()));
            }
            for (seq, queued) in (first..).zip(group.drain(..)) {
                queued.waiter.wake(Ok(seq));
            }
            lines.clear();
            lines.shrink_to(KEPT_BYTES);
            group.shrink_to(64);
        }
        match &*shared.failure.borrow() {
            Some(failure) => Err(failure.clone()),
            None => Ok(self),
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.length += lines.len() as u64,
            // Nobody was told that these bytes are evidence: take them back where that works. If it
            // does not, the file ends in an unsigned tail, and nothing is ever written behind it.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }
}

#[cfg(test)]
mod tests;
