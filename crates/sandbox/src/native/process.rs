//! The init as its supervisor sees it: started, spoken to, waited for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::error::{Error, Result, Step};
use crate::ground::ids::Identity;
use crate::hints;
use crate::inside::channel::Channel;
use crate::inside::wire::{Order, Reply};
use crate::sys::{self, Child};

/// A sandbox's init. Dropping it kills the sandbox and waits for its end.
#[derive(Debug)]
pub(crate) struct Init {
    child: Child,
    channel: Channel,
    reaped: bool,
}

impl Init {
    /// Starts one in new namespaces. It waits for [`begin`](Self::begin).
    ///
    /// # Errors
    /// [`Error::Step`], with the setting to change.
    pub(crate) fn spawn(identity: Identity) -> Result<Self> {
        let step = "make the control channel";
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .step(step)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let null = rustix::fs::open("/dev/null", flags, Mode::empty()).step("open /dev/null")?;
        // Above those that the child rearranges.
        let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 16).step(step);
        let (theirs, null) = (high(&theirs)?, high(&null)?);
        let child = sys::spawn_init(ours.as_fd(), theirs.as_fd(), null.as_fd())
            .step_hint("make namespaces", hints::user_namespaces)?;
        let init = Self { child, channel: Channel::new(ours), reaped: false };
        identity.map(init.child.pid)?;
        Ok(init)
    }

    /// Lets it go on to its exec.
    ///
    /// # Errors
    /// [`Error::Step`]: it is gone.
    pub(crate) fn begin(&self) -> Result<()> {
        rustix::net::send(&self.channel, &[1], rustix::net::SendFlags::NOSIGNAL)
            .map(drop)
            .step("start the sandbox's init")
    }

    pub(crate) fn order(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<()> {
        match self.channel.send(order, fds) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(self.ended()),
            other => other.step("send the sandbox's init an order"),
        }
    }

    /// Its next answer; a failure in it is an error here.
    pub(crate) fn reply(&self) -> Result<(Reply, Vec<OwnedFd>)> {
        match self.channel.receive().step("read the answer of the sandbox's init")? {
            Some((Reply::Failed(failure), _)) => Err(failure.into()),
            Some(answer) => Ok(answer),
            None => Err(self.ended()),
        }
    }

    /// What it said last, once it is gone.
    pub(crate) fn last_word(&self) -> Option<Reply> {
        self.channel.receive().ok().flatten().map(|(reply, _)| reply)
    }

    /// Why it ended when it should not have.
    fn ended(&self) -> Error {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::PidFd(self.child.pidfd.as_fd()), options);
        // Before its exec it exits with the number of the error.
        let number = status.ok().flatten().and_then(|s| s.exit_status()).filter(|n| *n != 0);
        let source = number
            .map_or_else(|| io::Error::other("it ended too early"), io::Error::from_raw_os_error);
        let hint = number.and_then(|_| hints::user_namespaces(&source));
        Error::Step { step: "start the sandbox's init".into(), source, hint }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Readable when everything in the sandbox has ended.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.child.pidfd.as_fd()
    }

    pub(crate) fn kill(&self) {
        // Ended already is as good.
        let _ = rustix::process::pidfd_send_signal(&self.child.pidfd, Signal::KILL);
    }

    /// Waits until it and everything in its pid namespace is gone. Only the first call waits.
    pub(crate) fn reap(&mut self) {
        while !self.reaped {
            let id = WaitId::PidFd(self.child.pidfd.as_fd());
            match rustix::process::waitid(id, WaitIdOptions::EXITED) {
                Err(rustix::io::Errno::INTR) => {}
                _ => self.reaped = true,
            }
        }
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}

/// An answer that does not fit the question.
pub(crate) fn unexpected() -> Error {
    Error::Step {
        step: "read the answer of the sandbox's init".into(),
        source: io::ErrorKind::InvalidData.into(),
        hint: None,
    }
}
