//! Watches a released sandbox until it is over.

use std::future::poll_fn;
use std::io::IsTerminal;
use std::task::Poll;
use std::time::Duration;

use ringfence_gateway::Stop;
use ringfence_record::{Event, Recorder};
use ringfence_sandbox::{Exit, Guard, Limits, Running, native};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::execute::{Ended, EndedBy};
use crate::{Error, Plan, live};

/// How often watched limits are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(200);
/// How long an agent has to end by itself after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// How long the end of an agent that is dead takes to reach us, at most.
const ENDED_ALREADY: Duration = Duration::from_millis(20);
/// How long an agent has to read the last reply, before a run that the gateway ended is killed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes that a run's record may have. Everything that is refused is recorded, so that an agent can
/// make its record grow as fast as the disk is: some 400,000 decisions are enough for anybody.
const RECORD: u64 = 256 << 20;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;

/// What a person may send to the supervisor.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes the signals. Those by which a terminal stops a process are ignored from now on.
    pub(crate) fn new() -> std::io::Result<Self> {
        native::ignore_terminal_stops();
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The signal by which someone asked to stop already.
    pub(crate) fn pending(&mut self) -> Option<i32> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match self.poll(&mut context) {
            Poll::Ready(signal) => Some(signal),
            Poll::Pending => None,
        }
    }

    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut std::task::Context<'_>) -> Poll<i32> {
        let all = [
            (&mut self.interrupt, SIGINT),
            (&mut self.terminate, SIGTERM),
            (&mut self.hangup, SIGHUP),
        ];
        for (signal, number) in all {
            if signal.poll_recv(context).is_ready() {
                return Poll::Ready(number);
            }
        }
        Poll::Pending
    }
}

pub(crate) async fn supervise(
    plan: &Plan,
    recorder: &Recorder,
    running: &mut dyn Running,
    signals: &mut Signals,
    halt: &Stop,
) -> Result<Ended, Error> {
    let far = Instant::now() + Duration::from_secs(365 * 86_400);
    let end = plan.duration().map_or(far, |d| Instant::now() + d);
    let mut kill_at = far;
    let mut asked = false;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let watched = Watched::new(&plan.limits, running);
    let guard = running.guard();
    loop {
        tokio::select! {
            // In this order: an agent that has ended by itself was not stopped.
            biased;
            exit = running.wait() => {
                let exit = exit?;
                return match running.limit() {
                    // The kernel may end any process of a sandbox; only the agent's own end is the run's.
                    Some((name, detail)) if !asked && exit == Exit::Signal(SIGKILL) => {
                        reached(recorder, exit, name, detail).await
                    }
                    _ => Ok(ended(exit, asked)),
                };
            }
            () = sleep_until(end) => {
                let detail = format!("{} s have passed", plan.duration().unwrap_or_default().as_secs());
                return limit(recorder, running, "duration", detail).await;
            }
            () = sleep_until(kill_at) => {
                running.kill();
                kill_at = far;
            }
            () = disturbed(guard.as_deref()) => look.reset_immediately(),
            _ = look.tick() => {
                let uncovered = guard.as_deref().and_then(uncovered);
                let watched = watched.any().then(|| watched.exceeded(running)).flatten();
                let reached = uncovered.or_else(|| overfull(recorder.bytes(), RECORD)).or(watched);
                if let Some((name, detail)) = reached {
                    return limit(recorder, running, name, detail).await;
                }
            }
            signal = signals.next() => {
                // One that ended before the request was heard ended by itself; its end may be on its
                // way to us.
                if !asked && let Ok(exit) = timeout(ENDED_ALREADY, running.wait()).await {
                    return Ok(ended(exit?, false));
                }
                if asked {
                    live::record_stop(recorder).await?;
                    running.kill();
                }
                asked = true;
                // From a terminal, Ctrl-C has reached the agent already; it may well go on.
                let typed = signal == SIGINT && std::io::stdin().is_terminal();
                if typed && running.shares_terminal() {
                    asked = false;
                    // It may have been stopped from the terminal, where we go on: then it would
                    // not hear of it.
                    running.signal(SIGCONT);
                } else {
                    live::record_stop(recorder).await?;
                    running.signal(signal);
                    kill_at = Instant::now() + GRACE;
                }
            }
            halt = halt.wait() => {
                // Nothing goes through any more. The reply that was the last one still arrives.
                let _ = timeout(LAST_WORDS, running.wait()).await;
                let mut ended = limit(recorder, running, halt.limit, halt.detail).await?;
                if halt.limit == "approval" {
                    ended.by = EndedBy::Approval;
                }
                return Ok(ended);
            }
            reason = recorder.failed() => {
                running.kill();
                let _ = running.wait().await;
                return Ok(Ended {
                    exit: None,
                    by: EndedBy::Error,
                    limit: None,
                    detail: Some(format!("the record failed: {reason}")),
                });
            }
        }
    }
}

/// Waits until something may have been uncovered.
async fn disturbed(guard: Option<&Guard>) {
    match guard {
        Some(guard) => guard.disturbed().await,
        None => std::future::pending().await,
    }
}

/// What a sandbox does not keep from its process any more, as the limit that ends it.
pub(crate) fn uncovered(guard: &Guard) -> Option<(&'static str, String)> {
    let path = guard.displaced()?;
    let detail = format!(
        "{} was replaced or removed from outside while it was held: it could be read or written since; \
         look at it before you use it",
        path.display()
    );
    Some(("guard", detail))
}

fn ended(exit: Exit, asked: bool) -> Ended {
    let by = match (asked, exit) {
        (true, _) => EndedBy::Stopped,
        (false, Exit::Code(_)) => EndedBy::Exit,
        (false, Exit::Signal(_)) => EndedBy::Signal,
    };
    Ended { exit: Some(exit), by, limit: None, detail: None }
}

async fn limit(
    recorder: &Recorder,
    running: &mut dyn Running,
    name: &str,
    detail: String,
) -> Result<Ended, Error> {
    running.kill();
    let exit = running.wait().await?;
    reached(recorder, exit, name, detail).await
}

/// A limit that has ended a sandbox.
async fn reached(
    recorder: &Recorder,
    exit: Exit,
    name: &str,
    detail: String,
) -> Result<Ended, Error> {
    let _ =
        recorder.commit(Event::LimitReached { limit: name.into(), detail: detail.clone() }).await?;
    Ok(Ended {
        exit: Some(exit),
        by: EndedBy::Limit,
        limit: Some(name.to_owned()),
        detail: Some(format!("{name}: {detail}")),
    })
}

/// Whether a record of so many bytes is more than one may have.
fn overfull(bytes: u64, most: u64) -> Option<(&'static str, String)> {
    (bytes > most)
        .then(|| ("record", format!("{} MiB written, {} MiB allowed", bytes >> 20, most >> 20)))
}

/// The limits of one sandbox that the kernel does not keep for it.
pub(crate) struct Watched {
    memory: Option<u64>,
}

impl Watched {
    pub(crate) fn new(limits: &Limits, running: &dyn Running) -> Self {
        Self { memory: limits.memory.filter(|_| !running.keeps_memory()) }
    }

    pub(crate) fn any(&self) -> bool {
        self.memory.is_some()
    }

    /// The limit that is exceeded, and how.
    pub(crate) fn exceeded(&self, running: &dyn Running) -> Option<(&'static str, String)> {
        let usage = running.usage();
        let most = self.memory.filter(|most| usage.memory > *most)?;
        let detail = format!("{} MiB in use, {} MiB allowed", usage.memory >> 20, most >> 20);
        Some(("memory", detail))
    }
}
