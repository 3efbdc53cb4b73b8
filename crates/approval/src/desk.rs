//! Asks, waits, and gives out what was answered, once.

mod register;

use std::collections::HashMap;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use ringfence_bundle::shown;
use ringfence_record::{Event, Recorder};
use ringfence_state::State;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};

use self::register::Register;
use crate::poke::Ear;
use crate::{
    Answer, Approved, Approver, Boxed, Error, OnTimeout, Question, Questions, Said, Standing,
    Ticket,
};

/// Questions of one run that wait at once; the next is refused at once.
pub const MOST_PENDING: usize = 32;
/// Those of one client, where a run has several.
const MOST_EACH: usize = 8;
/// Bytes of arguments and other parameters that are put before a person.
const MOST_BYTES: usize = 1 << 20;
/// How often the database is looked at when nothing was heard: answers from another host.
const LOOK: Duration = Duration::from_secs(2);

/// Somewhere a person can be asked, besides the commands.
pub trait Channel: Send + Sync + 'static {
    /// Asks, and waits. `None` when nobody can be asked here any more; the question waits on.
    /// Dropping the future takes the question away.
    fn ask<'a>(&'a self, ticket: &'a Ticket) -> Boxed<'a, Option<Answer>>;
}

/// What a desk is made of.
pub struct Parts {
    /// The shared database.
    pub state: State,
    /// The machine's folder.
    pub home: PathBuf,
    /// The run.
    pub run: String,
    /// Its project folder.
    pub project: String,
    /// Its evidence.
    pub recorder: Recorder,
    /// How long a question waits.
    pub timeout: Duration,
    /// What happens then: what the manifest says, as far as the machine allows it.
    pub on_timeout: OnTimeout,
    /// Who is asked.
    pub channels: Vec<Arc<dyn Channel>>,
}

/// The [`Approver`] of one run.
pub struct Desk {
    questions: Questions,
    run: String,
    project: String,
    register: Register,
    timeout: Duration,
    on_timeout: OnTimeout,
    channels: Vec<Arc<dyn Channel>>,
    pending: Arc<Pending>,
    heard: watch::Receiver<u64>,
    listening: JoinHandle<()>,
}

impl Desk {
    /// Opens the database and listens for answers. The runtime that this is called on must outlive it.
    ///
    /// # Errors
    /// [`Error::State`], [`Error::Io`].
    pub async fn open(parts: Parts) -> Result<Self, Error> {
        let Parts { state, home, run, project, recorder, timeout, on_timeout, channels } = parts;
        let questions = Questions::open(&state, &home).await?;
        let ear = Ear::new(&home, &run)?;
        let pending = Arc::<Pending>::default();
        let (tell, heard) = watch::channel(0);
        let waiting = Arc::clone(&pending);
        let listening = tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = ear.hear() => {}
                    () = sleep(LOOK) => {
                        if waiting.is_empty() {
                            continue;
                        }
                    }
                }
                tell.send_modify(|number| *number += 1);
            }
        });
        Ok(Self {
            questions,
            run,
            project,
            register: Register::new(recorder),
            timeout,
            on_timeout,
            channels,
            pending,
            heard,
            listening,
        })
    }

    /// Withdraws whatever still waits, at the end of the run: in the record, before it is sealed, and in
    /// the database.
    ///
    /// # Errors
    /// [`Error::State`].
    pub async fn close(&self) -> Result<(), Error> {
        self.register.close();
        self.listening.abort();
        self.questions.end_all(&self.run).await
    }

    async fn asked(&self, question: Question) -> Result<Said, Error> {
        let unasked = |reason: String| Ok(Said::Unasked { reason });
        let _place = match Place::take(&self.pending, &question.caller) {
            Ok(place) => place,
            Err(reason) => return unasked(reason),
        };
        if question.arguments.len().saturating_add(question.other_params.len()) > MOST_BYTES {
            return unasked("its arguments are longer than a person can be shown".into());
        }
        let ticket = Ticket::new(&question, &self.run, &self.project, self.timeout)?;
        // From here on, by the clock that nobody sets.
        let end = tokio::time::Instant::now() + self.timeout;
        let asked = Event::ApprovalAsked {
            question: ticket.id.clone(),
            call: ticket.call,
            principal: ticket.caller.clone(),
            server: ticket.server.clone(),
            tool: shown(&ticket.tool, 200),
            rule: ticket.rule.clone(),
            digest: ticket.digest.clone(),
            expires: ticket.expires.clone(),
        };
        // From here on it is in the record, and whatever happens to this call, so is its answer.
        let mut withdrawal = Withdrawal { desk: self, ticket: &ticket, kept: false };
        match self.register.ask(&ticket, asked).await {
            Ok(true) => {}
            Ok(false) => return unasked("the run ends".into()),
            Err(error) => return unasked(format!("the record cannot be written: {error}")),
        }
        let mut heard = self.heard.clone();
        heard.mark_unchanged();
        let lasts = i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX);
        withdrawal.kept = true;
        if let Err(error) = self.questions.put(&ticket, lasts).await {
            let reason = error.to_string();
            self.note(&ticket, "failed", None, Some(reason.clone())).await;
            return unasked(reason);
        }
        let answer = self.wait(&ticket, end, &mut heard).await;
        if answer.is_err() {
            // Whatever was wrong: no later answer is to look like one that counts.
            let _ = self.questions.end(&ticket, Standing::Withdrawn).await;
        }
        let (word, who, reason) = match &answer {
            Ok(Settled::Approved(kept)) => ("approved", Some(kept), None),
            Ok(Settled::Denied(kept)) => ("denied", Some(kept), kept.reason.clone()),
            Ok(Settled::TimedOut) => ("timed_out", None, None),
            Err(error) => ("failed", None, Some(error.to_string())),
        };
        if !self.note(&ticket, word, who, reason).await {
            return unasked("the record cannot be written, or the run ends".into());
        }
        withdrawal.kept = false;
        let id = ticket.id.clone();
        Ok(match answer? {
            Settled::Approved(Answer { by, channel, .. }) => {
                Said::Approved(Approved::new(question, by, channel.into(), id))
            }
            Settled::Denied(Answer { by, channel, reason, .. }) => Said::Denied {
                by,
                via: channel.into(),
                id,
                reason: reason.map(|text| shown(&text, 1000)),
            },
            Settled::TimedOut => Said::TimedOut { id, then: self.on_timeout },
        })
    }

    /// Until it is settled: in the database, which all agree on.
    async fn wait(
        &self,
        ticket: &Ticket,
        end: tokio::time::Instant,
        heard: &mut watch::Receiver<u64>,
    ) -> Result<Settled, Error> {
        let mut asking: Vec<_> = self.channels.iter().map(|channel| channel.ask(ticket)).collect();
        loop {
            tokio::select! {
                answer = first(&mut asking) => {
                    match self.questions.answer(&ticket.id, &ticket.digest, &answer).await {
                        // Somebody was faster: what they said counts.
                        Ok(_) | Err(Error::Settled { .. } | Error::Expired(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                told = heard.changed() => {
                    if told.is_err() {
                        return Err(Error::Unknown("any more: the run ends".into()));
                    }
                }
                () = sleep_until(end) => {
                    // An answer that came in before this counts.
                    if self.questions.end(ticket, Standing::TimedOut).await? {
                        return Ok(Settled::TimedOut);
                    }
                }
            }
            // A database that is locked for a while is asked again at the next look.
            let Ok(kept) = self.questions.get(&ticket.id).await else { continue };
            let answer = |verdict| Answer {
                verdict,
                // The database may be shared, and is not believed in what it spells.
                by: shown(kept.by.as_deref().unwrap_or_default(), 200),
                channel: channel(kept.channel.as_deref()),
                reason: kept.reason.clone(),
            };
            match kept.standing {
                Standing::Pending => {}
                Standing::Denied => return Ok(Settled::Denied(answer(crate::Verdict::Deny))),
                Standing::TimedOut => return Ok(Settled::TimedOut),
                // Used up here, and never again.
                Standing::Approved if self.questions.take(ticket).await? => {
                    return Ok(Settled::Approved(answer(crate::Verdict::Approve)));
                }
                other => {
                    let standing = other.word().to_owned();
                    return Err(Error::Settled { id: ticket.id.clone(), standing });
                }
            }
        }
    }

    /// Whether it is on disk as the answer to this question, which has one.
    async fn note(
        &self,
        ticket: &Ticket,
        word: &str,
        who: Option<&Answer>,
        reason: Option<String>,
    ) -> bool {
        let event = Event::ApprovalAnswered {
            question: ticket.id.clone(),
            digest: ticket.digest.clone(),
            answer: word.into(),
            channel: who.map_or("none", |answer| answer.channel).into(),
            by: who.map(|answer| answer.by.clone()),
            reason: reason.map(|text| shown(&text, 1000)),
        };
        self.register.answer(ticket, event).await.unwrap_or(false)
    }
}

impl Approver for Desk {
    fn ask(&self, question: Question) -> Boxed<'_, Said> {
        Box::pin(async move {
            match self.asked(question).await {
                Ok(said) => said,
                Err(error) => Said::Unasked { reason: error.to_string() },
            }
        })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// How it was settled.
enum Settled {
    Approved(Answer),
    Denied(Answer),
    TimedOut,
}

/// The channels that there are.
fn channel(word: Option<&str>) -> &'static str {
    match word {
        Some("terminal") => "terminal",
        Some("webhook") => "webhook",
        _ => "command",
    }
}

/// The first answer of any channel. Those that have none are not asked again; pending when none is
/// left.
async fn first(asking: &mut Vec<Boxed<'_, Option<Answer>>>) -> Answer {
    poll_fn(|context| {
        let mut at = 0;
        while let Some(one) = asking.get_mut(at) {
            match one.as_mut().poll(context) {
                Poll::Ready(Some(answer)) => {
                    drop(asking.swap_remove(at));
                    return Poll::Ready(answer);
                }
                Poll::Ready(None) => drop(asking.swap_remove(at)),
                Poll::Pending => at += 1,
            }
        }
        Poll::Pending
    })
    .await
}

/// How many questions of each caller wait.
#[derive(Default)]
struct Pending(Mutex<HashMap<String, usize>>);

impl Pending {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// One of the questions that wait.
struct Place {
    of: Arc<Pending>,
    caller: String,
}

impl Place {
    /// # Errors
    /// Why there is none.
    fn take(of: &Arc<Pending>, caller: &str) -> Result<Self, String> {
        let mut pending = of.lock();
        if pending.values().sum::<usize>() >= MOST_PENDING {
            return Err(format!("{MOST_PENDING} questions of this run wait already"));
        }
        // An agent has its run to itself.
        let shares = caller.starts_with("client:");
        let own = pending.entry(caller.to_owned()).or_default();
        if shares && *own >= MOST_EACH {
            return Err(format!("{MOST_EACH} questions of this client wait already"));
        }
        *own += 1;
        Ok(Self { of: Arc::clone(of), caller: caller.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut pending = self.of.lock();
        let left = pending.get_mut(&self.caller).map_or(0, |own| {
            *own -= 1;
            *own
        });
        if left == 0 {
            pending.remove(&self.caller);
        }
    }
}

/// Takes a question back when nobody waits for its answer any more.
struct Withdrawal<'d> {
    desk: &'d Desk,
    ticket: &'d Ticket,
    /// It may stand in the database.
    kept: bool,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        self.desk.register.withdraw(self.ticket);
        if !self.kept {
            return;
        }
        let (questions, ticket) = (self.desk.questions.clone(), self.ticket.clone());
        // Where the runtime is gone, the end of the run has withdrawn all of them.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ = questions.end(&ticket, Standing::Withdrawn).await;
                let _ = questions.take(&ticket).await;
            });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
