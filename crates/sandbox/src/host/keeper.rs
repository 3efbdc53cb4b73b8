//! The process between supervisor and agent: what the agent starts ends with the agent, the run and the
//! supervisor, as far as that can be had without a wall.
//!
//! It adopts every descendant whose parent is gone (`PR_SET_CHILD_SUBREAPER`), and ends them all. An agent
//! that means to can kill it, and lives no longer then; what that agent had let go of before may.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open,
    set_child_subreaper, waitpid,
};

use crate::{Exit, sys};

/// The name by which it is started, and known again.
pub(super) const NAME: &str = "ringfence-keeper";
/// The signal by which the supervisor asks for the end of everything.
pub(super) const END: Signal = Signal::USR1;
/// How often what cannot be killed is waited for, a second each time.
const TRIES: u32 = 10;

/// What it is told before the agent's own words: its end of the channel and the supervisor's process.
pub(super) fn words(channel: i32) -> [OsString; 2] {
    [channel.to_string().into(), getpid().as_raw_nonzero().to_string().into()]
}

/// What it says: that the agent has started, or an error number; then how the agent ended.
pub(super) fn started(said: [u8; 4]) -> io::Result<()> {
    match i32::from_ne_bytes(said) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// How the agent ended.
pub(super) fn ended(said: [u8; 4]) -> Exit {
    match i32::from_ne_bytes(said) {
        code if code >= 0 => Exit::Code(code),
        signal => Exit::Signal(signal.saturating_neg()),
    }
}

/// Whether this process was started as a keeper.
pub(super) fn is_keeper() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Keeps an agent to its end.
pub(super) fn main() -> ! {
    let status = match keep() {
        Ok(()) => 0,
        // The supervisor finds that nothing was said.
        Err(_) => 255,
    };
    sys::exit_now(status)
}

fn keep() -> io::Result<()> {
    let missing = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut words = std::env::args_os().skip(1);
    let mut number = || words.next()?.to_str()?.parse::<i32>().ok();
    let channel = sys::inherited(number().ok_or_else(missing)?)?;
    let supervisor = number().and_then(Pid::from_raw).ok_or_else(missing)?;
    let arg0 = words.next().ok_or_else(missing)?;
    let program = words.next().ok_or_else(missing)?;

    // Before the agent, so that nothing of it escapes.
    set_child_subreaper(Some(getpid()))?;
    let signals = sys::keeper_signal_fd()?;
    let watched = pidfd_open(supervisor, PidfdFlags::empty())?;
    if getppid() != Some(supervisor) {
        return Err(io::Error::from(Errno::SRCH));
    }
    let mut agent = Command::new(program);
    agent.arg0(arg0).args(words);
    sys::dies_with_us(&mut agent);
    let started = agent.spawn();
    let errno = started.as_ref().err().map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO));
    rustix::io::write(&channel, &errno.to_ne_bytes())?;
    let id = i32::try_from(started?.id()).ok().and_then(Pid::from_raw).ok_or_else(missing)?;
    let mut family = Family { agent: id, exit: None };
    family.watch(&signals, &watched, supervisor);
    family.end(&signals);
    let said = match family.exit {
        Some(Exit::Code(code)) => code,
        Some(Exit::Signal(signal)) => -signal,
        None => -libc::SIGKILL,
    };
    // Nobody listens where the supervisor is gone.
    let _ = rustix::io::write(&channel, &said.to_ne_bytes());
    Ok(())
}

/// The agent, and everything that it started.
struct Family {
    agent: Pid,
    exit: Option<Exit>,
}

impl Family {
    /// Passes signals on until the agent has ended, the supervisor is gone, or it asks for the end.
    fn watch(&mut self, signals: &OwnedFd, watched: &OwnedFd, supervisor: Pid) {
        while self.exit.is_none() {
            let mut both = [signals.as_fd(), watched.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if !both[1].revents().is_empty() {
                return;
            }
            while let Some((signal, sender)) = sys::next_signal(signals) {
                // What a terminal sends has reached the agent too.
                let ours = sender == Some(supervisor);
                match Signal::from_named_raw(signal) {
                    Some(Signal::CHILD) => while self.reap() == Some(true) {},
                    Some(END) if ours => return,
                    // Not reaped yet: its id is its own.
                    Some(signal) if ours && self.exit.is_none() => {
                        let _ = kill_process(self.agent, signal);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Takes in one that has ended. `None` when there is no child any more, `false` when all live.
    fn reap(&mut self) -> Option<bool> {
        match waitpid(None, WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if pid == self.agent {
                    self.exit = Some(match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Exit::Code(code),
                        (None, signal) => Exit::Signal(signal.unwrap_or(libc::SIGKILL)),
                    });
                }
                Some(true)
            }
            Ok(None) => Some(false),
            Err(Errno::INTR) => Some(true),
            Err(_) => None,
        }
    }

    /// Kills all, generation after generation: the children of one that is gone become ours.
    fn end(&mut self, signals: &OwnedFd) {
        let mut tries = 0;
        while tries < TRIES {
            for pid in children() {
                let _ = kill_process(pid, Signal::KILL);
            }
            match self.reap() {
                None => return,
                Some(true) => continue,
                Some(false) => {}
            }
            let mut one = [PollFd::new(signals, PollFlags::IN)];
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            // Another user's (`sudo`) cannot be killed: it is left after a while.
            tries += u32::from(matches!(poll(&mut one, Some(&second)), Ok(0)));
            while sys::next_signal(signals).is_some() {}
        }
    }
}

/// Every process whose parent is this one (`proc(5)`, field 4 of `stat`).
fn children() -> Vec<Pid> {
    let us = getpid();
    let parent = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // The name in parentheses may hold anything, so count from its end.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Pid::from_raw(parent)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| parent(*pid) == Some(us))
        .collect()
}
