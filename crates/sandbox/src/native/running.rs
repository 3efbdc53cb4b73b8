//! A sandbox whose process runs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::process::{Init, unexpected};
use super::{Cleanup, cgroup, usage};
use crate::error::{Error, Step};
use crate::inside::wire::{Order, Reply};
use crate::{Exit, Guard, Usage, sys};

/// A sandbox whose process has been released. Dropping it kills everything in it.
#[derive(Debug)]
pub struct Running {
    // In this order: the processes go before what they stand on is cleaned.
    pub(crate) init: Init,
    pub(crate) cleanup: Cleanup,
    pub(crate) group: cgroup::Group,
    pub(crate) streams: Option<(OwnedFd, OwnedFd)>,
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) exit: Option<Exit>,
    pub(crate) out_of_memory: bool,
    pub(crate) guard: Arc<Guard>,
}

impl Running {
    /// Stdin and stdout with [`crate::Streams::Piped`]; taken once.
    pub fn take_streams(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        self.streams.take()
    }

    /// Our end of the process's own terminal with [`crate::Streams::Terminal`], if one of the
    /// supervisor's streams is a terminal; taken once.
    pub fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    /// Waits for the process to end and everything else in the sandbox to be gone. May be
    /// cancelled and called again.
    ///
    /// # Errors
    /// [`Error::Step`]: the sandbox's init failed. The process is gone then too.
    pub async fn wait(&mut self) -> Result<Exit, Error> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let pidfd = self.init.pidfd().try_clone_to_owned();
        let ended = pidfd.and_then(sys::watch_readable).step("watch the sandbox's init")?;
        ended.readable().await.step("wait for the sandbox's init")?.retain_ready();
        drop(ended);
        self.init.reap();
        // Nobody is left to write: what the init said last is there, or nothing will be.
        let exit = match self.init.last_word() {
            None => Exit::Signal(libc::SIGKILL),
            Some(Reply::Exited(exit)) => exit,
            Some(Reply::Failed(failure)) => {
                self.cleanup.run();
                return Err(failure.into());
            }
            Some(_) => return Err(unexpected()),
        };
        self.exit = Some(exit);
        // Afterwards there is nobody to ask.
        self.out_of_memory = self.group.out_of_memory();
        self.cleanup.run();
        Ok(exit)
    }

    /// Kills everything in it.
    pub fn kill(&self) {
        self.init.kill();
    }

    /// Passes a signal to the process (SIGINT, SIGTERM, SIGWINCH, …). Unknown numbers are ignored.
    pub fn signal(&self, signal: i32) {
        // Gone already: then `wait` tells.
        let _ = self.init.order(&Order::Signal(signal), &[]);
    }

    /// What it uses now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut used = usage::of(self.init.pid());
        self.group.usage(&mut used);
        used
    }

    /// What watches the names on which its mounts stand.
    #[must_use]
    pub fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.guard)
    }

    /// Whether the kernel has ended a process in it that asked for more memory than the limit.
    /// Known once it has ended.
    #[must_use]
    pub fn out_of_memory(&self) -> bool {
        self.out_of_memory
    }

    /// Whether the kernel bounds the memory of this very sandbox. Where it does not although it
    /// could ([`super::keepers`]), somebody must watch.
    #[must_use]
    pub fn keeps_memory(&self) -> bool {
        self.group.keeps_memory()
    }

    /// Its init's process id on the host.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.init.pid().as_raw_nonzero().get().unsigned_abs()
    }
}
