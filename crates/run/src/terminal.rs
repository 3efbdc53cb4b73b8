//! The terminal that runs the agent, as a place where its person is asked.
//!
//! The agent has a terminal of its own, in a session of its own; we carry the bytes. While a question
//! is on the person's terminal nothing is carried: the agent can neither see nor write there.

mod modes;
mod prompt;
mod relay;

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ringfence_approval::{Answer, Boxed, Channel, Ticket, Verdict};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OnceCell, oneshot};

use relay::{Order, Relay, State};

/// The person's terminal, when we are in its foreground.
pub(crate) struct Tty {
    tty: OwnedFd,
    saved: rustix::termios::Termios,
}

impl Tty {
    /// The controlling terminal, if there is one and it is ours to use now.
    pub(crate) fn open() -> Option<Self> {
        // An open file of its own: that it does not block is nobody else's matter.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let tty = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let saved = rustix::termios::tcgetattr(&tty).ok()?;
        let front = rustix::termios::tcgetpgrp(&tty).ok()?;
        (front == rustix::process::getpgrp()).then_some(Self { tty, saved })
    }
}

/// The thread that carries bytes and asks, once it runs.
#[derive(Clone, Default)]
pub(crate) struct Front {
    running: Arc<OnceCell<Running>>,
}

struct Running {
    orders: Sender<Order>,
    wake: OwnedFd,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    fn tell(&self, order: Order) -> bool {
        let told = self.orders.send(order).is_ok();
        // Full: then it wakes anyway.
        let _ = rustix::io::write(&self.wake, &[1]);
        told
    }
}

impl Front {
    /// Starts to carry bytes for an agent that has just been released, and to ask. `agent` is our end
    /// of its terminal, if it has one; with `between` it is one on the way to that.
    ///
    /// # Errors
    /// What the system says when it has no descriptors left.
    pub(crate) fn start(
        &self,
        tty: Tty,
        agent: Option<OwnedFd>,
        between: bool,
    ) -> std::io::Result<()> {
        if let Some(agent) = &agent {
            let flags = rustix::fs::fcntl_getfl(agent)?;
            rustix::fs::fcntl_setfl(agent, flags | OFlags::NONBLOCK)?;
        }
        let (wake, wakes) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (orders, inbox) = channel();
        let typed = agent.is_some() && rustix::termios::isatty(rustix::stdio::stdin());
        let term = std::env::var("TERM").unwrap_or_default();
        let relay = Relay {
            tty: tty.tty,
            agent,
            between,
            typed,
            smart: !matches!(term.as_str(), "" | "dumb"),
            orders: inbox,
            wake,
            state: State::new(tty.saved),
        };
        let mut sizes = signal(SignalKind::window_change())?;
        let thread = std::thread::Builder::new().name("terminal".into()).spawn(|| relay.run())?;
        let running = Running { orders, wake: wakes, thread: Mutex::new(Some(thread)) };
        let _ = self.running.set(running);
        let running = Arc::clone(&self.running);
        tokio::spawn(async move {
            while sizes.recv().await.is_some() {
                if !running.get().is_some_and(|running| running.tell(Order::Size)) {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Carries the agent's last words, and leaves the terminal as it was found.
    pub(crate) fn end(&self) {
        let Some(running) = self.running.get() else { return };
        running.tell(Order::End);
        let thread = running.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Channel for Front {
    fn ask<'a>(&'a self, ticket: &'a Ticket) -> Boxed<'a, Option<Answer>> {
        /// Takes the question off the screen when nobody waits for it any more.
        struct Shown<'a>(&'a Running, &'a str);
        impl Drop for Shown<'_> {
            fn drop(&mut self) {
                self.0.tell(Order::Gone(self.1.to_owned()));
            }
        }
        Box::pin(async move {
            let running = self.running.get()?;
            let (answer, answered) = oneshot::channel();
            if !running.tell(Order::Ask(Box::new(ticket.clone()), answer)) {
                return None;
            }
            let _shown = Shown(running, &ticket.id);
            let verdict = if answered.await.ok()? { Verdict::Approve } else { Verdict::Deny };
            let by = format!("uid {}", rustix::process::getuid().as_raw());
            Some(Answer { verdict, by, channel: "terminal", reason: None })
        })
    }
}

/// Tells whoever reads stderr that a question waits, and how it is answered. Never on a terminal, where
/// an agent may have drawn its own screen.
pub(crate) struct Notice;

impl Channel for Notice {
    fn ask<'a>(&'a self, ticket: &'a Ticket) -> Boxed<'a, Option<Answer>> {
        Box::pin(async move {
            let id = &ticket.id;
            let mut stderr = std::io::stderr();
            // Nobody reads it: then others are asked.
            let _ =
                writeln!(stderr, "ringfence: a call waits for you: ringfence approvals show {id}");
            None
        })
    }
}
