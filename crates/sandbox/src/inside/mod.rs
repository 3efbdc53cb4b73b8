//! What a wall has inside of it: the first process, which tries the sandbox, starts the agent, and ends
//! with its supervisor. The same in every kind of wall.

mod agent;
pub(crate) mod channel;
mod confine;
mod probe;
mod seccomp;
pub(crate) mod wire;

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};

pub(crate) use self::agent::Agent;
use self::channel::Channel;
pub(crate) use self::confine::{Confinement, drop_privileges, no_landlock};
use self::wire::{Order, Reply};
use crate::error::{Result, Step};
use crate::{Exit, sys};

/// Nothing in the sandbox may look into this process. The kernel resets it whenever ids change.
///
/// # Errors
/// [`crate::Error::Step`].
pub(crate) fn shut() -> Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .step("shut the init's memory")
}

/// Does what the supervisor orders, until the agent or the supervisor ends.
///
/// # Errors
/// [`crate::Error::Step`].
pub(crate) fn obey(channel: &Channel, agent: &mut Agent) -> Result<()> {
    loop {
        match receive(channel)? {
            Some((Order::Probe(targets), _)) => {
                let found = agent.probe(&targets)?;
                channel.send(&Reply::Probed(found), &[]).step("report the probe")?;
            }
            Some((Order::Start, _)) => {
                let children = sys::child_signal_fd().step("watch for ended processes")?;
                let pid = agent.start()?;
                channel.send(&Reply::Started, &[]).step("report the start")?;
                return watch(channel, &children, pid);
            }
            _ => return Ok(()),
        }
    }
}

/// The supervisor's next order.
pub(crate) fn receive(channel: &Channel) -> Result<Option<(Order, Vec<OwnedFd>)>> {
    channel.receive().step("read an order of the supervisor")
}

/// Reaps, passes signals on, and ends when the agent or the supervisor does; the kernel then kills
/// whatever else is left.
fn watch(channel: &Channel, children: &OwnedFd, agent: Pid) -> Result<()> {
    // The agent was there before the signal was watched for, and may have ended before.
    let mut more = true;
    loop {
        let mut fds = [PollFd::new(channel, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut fds, more.then_some(&now)) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).step("wait for the agent"),
        }
        let [control, ended] = fds.map(|fd| !fd.revents().is_empty());
        if ended {
            let mut buffer = [0; 128 * 4];
            let _ = rustix::io::read(children, &mut buffer);
        }
        if ended || more {
            match reap(agent)? {
                Reaped::Agent(exit) => {
                    return channel.send(&Reply::Exited(exit), &[]).step("report the end");
                }
                Reaped::All => more = false,
                Reaped::Some => more = true,
            }
        }
        if control {
            match receive(channel)? {
                Some((Order::Signal(number), _)) => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        // Gone already: then its end is reported next.
                        let _ = rustix::process::kill_process(agent, signal);
                    }
                }
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}

/// Ended processes that are collected before the supervisor is listened to again: an agent that starts and
/// ends them without pause must not be all that there is to do.
const AT_ONCE: usize = 64;

/// What was collected.
enum Reaped {
    /// The agent, with others before it.
    Agent(Exit),
    /// All that had ended; the agent has not.
    All,
    /// Some, and there may be more.
    Some,
}

/// Collects ended processes.
fn reap(agent: Pid) -> Result<Reaped> {
    for _ in 0..AT_ONCE {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == agent => {
                match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => return Ok(Reaped::Agent(Exit::Code(code))),
                    (None, Some(signal)) => return Ok(Reaped::Agent(Exit::Signal(signal))),
                    (None, None) => {}
                }
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(Reaped::All),
            Err(error) => return Err(io::Error::from(error)).step("collect ended processes"),
        }
    }
    Ok(Reaped::Some)
}
