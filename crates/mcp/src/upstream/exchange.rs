//! A request that is under way: who asks, how long there is, what was told meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::UpstreamError;
use super::desk::Asked;
use super::mailbox::{Mailbox, Told};
use super::questions::{Question, Questions};
use super::tied::Whose;
use crate::{Client, Held, Share};

/// However much progress there is, a request takes no longer, beside the time in which the client
/// thinks.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);
/// How long what was told before an answer may take to reach the client, once the answer is there.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// One request.
pub(crate) struct Exchange {
    /// Unique on the connection; the progress token that the server is given.
    pub(crate) key: u64,
    pub(crate) whose: Whose,
    pub(crate) method: String,
    /// The server has said what became of it.
    answered: AtomicBool,
    /// The client's own token.
    token: Option<Value>,
    pub(crate) questions: Questions,
    pub(crate) told: Mailbox,
    clock: Arc<Clock>,
    failed: Mutex<Option<UpstreamError>>,
    replies: Share,
}

/// How long there is. It stands still while the client thinks.
struct Clock {
    patience: Duration,
    state: Mutex<Time>,
    changed: Notify,
}

struct Time {
    due: Instant,
    latest: Instant,
    thinking: usize,
    since: Instant,
}

impl Clock {
    fn lock(&self) -> std::sync::MutexGuard<'_, Time> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause(&self) {
        let mut time = self.lock();
        if time.thinking == 0 {
            time.since = Instant::now();
        }
        time.thinking += 1;
    }

    fn resume(&self) {
        let mut time = self.lock();
        time.thinking = time.thinking.saturating_sub(1);
        if time.thinking == 0 {
            let thought = time.since.elapsed();
            time.due += thought;
            time.latest += thought;
        }
        drop(time);
        self.changed.notify_one();
    }

    fn progress(&self) {
        let mut time = self.lock();
        time.due = (Instant::now() + self.patience).min(time.latest).max(time.due);
    }
}

impl Exchange {
    pub(crate) fn new(
        key: u64,
        client: &Arc<dyn Client>,
        method: &str,
        token: Option<Value>,
        patience: Duration,
        replies: Share,
    ) -> Arc<Self> {
        let now = Instant::now();
        let time = Time {
            due: now + patience,
            latest: now + LONGEST.max(patience),
            thinking: 0,
            since: now,
        };
        Arc::new(Self {
            key,
            whose: Whose::of(client),
            method: method.to_owned(),
            answered: AtomicBool::new(false),
            token,
            questions: Questions::new(Arc::clone(client)),
            told: Mailbox::default(),
            clock: Arc::new(Clock { patience, state: Mutex::new(time), changed: Notify::new() }),
            failed: Mutex::new(None),
            replies,
        })
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// A progress notification for the client: with its own token. `None` when it is not about this
    /// request, or was not asked for.
    pub(crate) fn progress(&self, mut told: Told) -> Option<Told> {
        let token = told.params.as_mut()?.get_mut("progressToken")?;
        if token.as_u64() != Some(self.key) {
            return None;
        }
        *token = self.token.clone()?;
        self.clock.progress();
        Some(told)
    }

    /// Of several requests of one client, the one whose question comes next: the only one whose
    /// client has nothing to answer already or, when each has, the newest. `None` when it may be
    /// either.
    pub(crate) fn next_to_ask(of: &[&Arc<Self>]) -> Option<Arc<Self>> {
        let mut free = of.iter().filter(|request| request.clock.lock().thinking == 0);
        match (free.next(), free.next()) {
            (Some(one), None) => Some(Arc::clone(one)),
            (Some(_), Some(_)) => None,
            (None, _) => of.iter().max_by_key(|request| request.key).map(|one| Arc::clone(one)),
        }
    }

    /// Puts a server's question to the client.
    pub(crate) fn ask(&self, question: Question, given_up: CancellationToken, asked: Asked) {
        self.clock.pause();
        let clock = Arc::clone(&self.clock);
        let done = move || {
            drop(asked);
            clock.resume();
        };
        if self.questions.put(question, given_up, done).is_err() {
            self.fail(UpstreamError::Nonsense { reason: "it asks questions without end".into() });
        }
    }

    /// Its reply takes so much, until its client has it.
    pub(crate) fn keep(&self, held: Option<Held>) {
        if let Some(held) = held {
            self.questions.client().keep(held);
        }
    }

    /// Ends the request.
    pub(crate) fn fail(&self, error: UpstreamError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.clock.changed.notify_one();
    }

    /// Waits until there is no more time, or it has failed.
    async fn stopped(&self) -> UpstreamError {
        loop {
            let changed = self.clock.changed.notified();
            if let Some(error) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return error;
            }
            let due = {
                let time = self.clock.lock();
                (time.thinking == 0).then_some(time.due)
            };
            match due {
                None => changed.await,
                Some(due) if due <= Instant::now() => {
                    let after = self.clock.patience;
                    return match self.replies.is_waiting() {
                        true => UpstreamError::Crowded { after },
                        false => UpstreamError::Timeout { after },
                    };
                }
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = changed => {}
                },
            }
        }
    }

    async fn pass(&self) {
        while let Some(told) = self.told.take().await {
            self.questions.client().notify(&told.method, told.params).await;
        }
    }

    /// Waits for the answer, and passes on what is told before it. The client hears all of that
    /// before it has the answer.
    pub(crate) async fn carry<T>(
        &self,
        answer: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let passing = self.pass();
        tokio::pin!(answer, passing);
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            error = self.stopped() => return Err(error),
            // The box is closed below, or with the request.
            () = &mut passing => return Err(UpstreamError::Cancelled),
        };
        if matches!(answer, Ok(_) | Err(UpstreamError::Rpc(_))) {
            self.answered.store(true, Ordering::Release);
        }
        self.told.close();
        let _ = tokio::time::timeout(AFTERWARDS, passing).await;
        answer
    }
}
