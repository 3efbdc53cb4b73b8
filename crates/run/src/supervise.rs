//! Watches a released sandbox until it is over.

use std::future::poll_fn;
use std::io::IsTerminal;
use std::task::Poll;
use std::time::Duration;

use ringfence_record::{Event, Recorder};
use ringfence_sandbox::native::Running;
use ringfence_sandbox::{Exit, Keeper};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::execute::{Ended, EndedBy};
use crate::{Error, Plan};

/// How often watched limits are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How long an agent has to end by itself after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes that a run's record may have. Everything that is refused is recorded, so that an agent can
/// make its record grow as fast as the disk is: some 400,000 decisions are enough for anybody.
const RECORD: u64 = 256 << 20;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// What a person may send to the supervisor.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Whether someone asked to stop already.
    pub(crate) fn interrupted(&mut self) -> bool {
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        [&mut self.interrupt, &mut self.terminate, &mut self.hangup]
            .into_iter()
            .any(|signal| signal.poll_recv(&mut context).is_ready())
    }

    async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            if self.interrupt.poll_recv(context).is_ready() {
                Poll::Ready(SIGINT)
            } else if self.terminate.poll_recv(context).is_ready() {
                Poll::Ready(SIGTERM)
            } else if self.hangup.poll_recv(context).is_ready() {
                Poll::Ready(SIGHUP)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

pub(crate) async fn supervise(
    plan: &Plan,
    recorder: &Recorder,
    running: &mut Running,
    signals: &mut Signals,
) -> Result<Ended, Error> {
    let far = Instant::now() + Duration::from_secs(365 * 86_400);
    let end = plan.duration().map_or(far, |d| Instant::now() + d);
    let mut kill_at = far;
    let mut asked = false;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let watched = Watched::new(plan);
    loop {
        tokio::select! {
            exit = running.wait() => return Ok(ended(exit?, asked)),
            () = sleep_until(end) => {
                let detail = format!("{} s have passed", plan.duration().unwrap_or_default().as_secs());
                return limit(recorder, running, "duration", detail).await;
            }
            () = sleep_until(kill_at) => {
                running.kill();
                kill_at = far;
            }
            _ = look.tick() => {
                let watched = watched.any().then(|| watched.exceeded(running)).flatten();
                if let Some((name, detail)) = overfull(recorder.bytes(), RECORD).or(watched) {
                    return limit(recorder, running, name, detail).await;
                }
            }
            signal = signals.next() => {
                if asked {
                    running.kill();
                }
                asked = true;
                // From a terminal, Ctrl-C has reached the agent already; it may well go on.
                if signal == SIGINT && std::io::stdin().is_terminal() {
                    asked = false;
                } else {
                    running.signal(signal);
                    kill_at = Instant::now() + GRACE;
                }
            }
            reason = recorder.failed() => {
                running.kill();
                let _ = running.wait().await;
                return Ok(Ended {
                    exit: None,
                    by: EndedBy::Error,
                    detail: Some(format!("the record failed: {reason}")),
                });
            }
        }
    }
}

fn ended(exit: Exit, asked: bool) -> Ended {
    let by = match (asked, exit) {
        (true, _) => EndedBy::Stopped,
        (false, Exit::Code(_)) => EndedBy::Exit,
        (false, Exit::Signal(_)) => EndedBy::Signal,
    };
    Ended { exit: Some(exit), by, detail: None }
}

async fn limit(
    recorder: &Recorder,
    running: &mut Running,
    name: &str,
    detail: String,
) -> Result<Ended, Error> {
    running.kill();
    let exit = running.wait().await?;
    let _ =
        recorder.commit(Event::LimitReached { limit: name.into(), detail: detail.clone() }).await?;
    Ok(Ended { exit: Some(exit), by: EndedBy::Limit, detail: Some(format!("{name}: {detail}")) })
}

/// Whether a record of so many bytes is more than one may have.
fn overfull(bytes: u64, most: u64) -> Option<(&'static str, String)> {
    (bytes > most)
        .then(|| ("record", format!("{} MiB written, {} MiB allowed", bytes >> 20, most >> 20)))
}

/// The limits that the kernel does not keep here.
struct Watched {
    memory: Option<u64>,
    pids: Option<u64>,
}

impl Watched {
    fn new(plan: &Plan) -> Self {
        let keepers = plan.keepers();
        let watched = |name| keepers.iter().any(|(n, k)| *n == name && *k == Keeper::Watched);
        Self {
            memory: plan.limits.memory.filter(|_| watched("memory")),
            pids: plan.limits.pids.filter(|_| watched("pids")),
        }
    }

    fn any(&self) -> bool {
        self.memory.is_some() || self.pids.is_some()
    }

    fn exceeded(&self, running: &Running) -> Option<(&'static str, String)> {
        let usage = running.usage();
        if let Some(most) = self.memory.filter(|most| usage.memory > *most) {
            return Some((
                "memory",
                format!("{} MiB in use, {} MiB allowed", usage.memory >> 20, most >> 20),
            ));
        }
        self.pids
            .filter(|most| usage.pids > *most)
            .map(|most| ("pids", format!("{} processes, {most} allowed", usage.pids)))
    }
}
