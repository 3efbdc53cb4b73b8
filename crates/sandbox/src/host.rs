//! The agent on this machine, behind no wall: advisory.
//!
//! It has a composed environment, the proxy and the gate, and may pass both by. It and what it starts end
//! with the run and with the supervisor, by a process between the two that an agent may kill. No limit is
//! kept but the time.

mod keeper;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::backend::{self, Boxed, Doors};
use crate::error::{Error, Result, Step};
use crate::{Exit, Probe, Spec, Usage, sys};

/// What of the person's environment stays.
const KEPT: [&str; 4] = ["HOME", "USER", "SHELL", "TMPDIR"];
/// How often another address is tried.
const TRIES: u32 = 32;

/// An agent that has not started.
#[derive(Debug)]
pub struct Prepared {
    spec: Spec,
    doors: Option<(Vec<TcpListener>, IpAddr)>,
}

/// Opens the doors, at a loopback address of this run's own.
///
/// # Errors
/// [`Error::Step`]: no address could be had; [`Error::Spec`]: no command.
pub fn prepare(spec: &Spec) -> Result<Prepared> {
    if spec.command.is_empty() {
        return Err(Error::Spec("no command".into()));
    }
    let step = "open the doors on loopback";
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    for _ in 0..TRIES {
        let random =
            getrandom::u32().map_err(|e| std::io::Error::other(e.to_string())).step(step)?;
        let [_, b, c, d] = random.to_be_bytes();
        // 127.0.0.0/8 is loopback, all of it; the addresses that others use are left alone.
        let address = Ipv4Addr::new(127, b | 64, c, d.clamp(1, 254));
        let open = || spec.listen.iter().map(|port| TcpListener::bind((address, *port))).collect();
        match open() {
            Ok(listeners) => {
                let doors = Some((listeners, IpAddr::V4(address)));
                return Ok(Prepared { spec: spec.clone(), doors });
            }
            Err(error) => last = error,
        }
    }
    Err(last).step(step)
}

impl Prepared {
    fn start(self) -> Result<Running> {
        let Spec { command, arg0, env, project, .. } = self.spec;
        let (program, args) =
            command.split_first().ok_or_else(|| Error::Spec("no command".into()))?;
        let step = || format!("execute {}", program.display());
        let (ours, theirs) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step(step())?;
        let mut keeper = Command::new("/proc/self/exe");
        keeper.arg0(keeper::NAME).args(keeper::words(theirs.as_raw_fd()));
        keeper.arg(arg0).arg(program).args(args).current_dir(&project).env_clear();
        let kept = KEPT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        keeper.envs(kept).envs(env);
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).step(step())?;
        let child = keeper.spawn().step(step())?;
        drop(theirs);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::Spec("the agent has no process id".into()))?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).step(step())?;
        // Another program that is started at this moment may hold the channel's other end: its keeper's end
        // is looked for too.
        let mut both = [&ours, &pidfd].map(|fd| PollFd::new(fd, PollFlags::IN));
        while let Err(rustix::io::Errno::INTR) = poll(&mut both, None) {}
        let running = Running { child, pidfd, channel: ours, exit: None };
        let said = running.said().ok_or_else(|| std::io::Error::other("its keeper has ended"));
        said.and_then(keeper::started).step(step())?;
        Ok(running)
    }
}

impl backend::Prepared for Prepared {
    fn doors(&mut self) -> Option<Doors> {
        self.doors.take().map(|(listeners, address)| Doors::Here { listeners, address })
    }

    fn equip(&mut self, more: Vec<(OsString, OsString)>) {
        self.spec.env.extend(more);
    }

    fn probe(&mut self) -> Boxed<'_, Result<Vec<Probe>>> {
        // There is no wall to try.
        Box::pin(async { Ok(Vec::new()) })
    }

    fn release(self: Box<Self>) -> Boxed<'static, Result<Box<dyn backend::Running>>> {
        Box::pin(async {
            let running: Box<dyn backend::Running> = Box::new(self.start()?);
            Ok(running)
        })
    }
}

/// An agent that runs. Dropping it kills it and what it started.
#[derive(Debug)]
struct Running {
    child: Child,
    pidfd: OwnedFd,
    channel: OwnedFd,
    exit: Option<Exit>,
}

/// Whether this process was started as an agent's keeper.
#[must_use]
pub fn is_keeper() -> bool {
    keeper::is_keeper()
}

/// Keeps an agent to its end; for a program that [`is_keeper`].
pub fn keeper_main() -> ! {
    keeper::main()
}

impl Running {
    /// The next thing that the keeper has said, if it has.
    fn said(&self) -> Option<[u8; 4]> {
        let mut there = [PollFd::new(&self.channel, PollFlags::IN)];
        let now = rustix::event::Timespec::default();
        let ready = poll(&mut there, Some(&now)).ok()? > 0;
        let mut said = [0; 4];
        let read = ready.then(|| rustix::io::read(&self.channel, &mut said)).and_then(|r| r.ok());
        (read == Some(4)).then_some(said)
    }

    async fn ended(&mut self) -> Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let step = "wait for the agent";
        let watched = self.pidfd.try_clone().and_then(sys::watch_readable).step(step)?;
        watched.readable().await.step(step)?.retain_ready();
        self.child.wait().step(step)?;
        // A keeper that was killed takes the agent with it.
        let exit = self.said().map_or(Exit::Signal(libc::SIGKILL), keeper::ended);
        self.exit = Some(exit);
        Ok(exit)
    }
}

impl backend::Running for Running {
    fn take_terminal(&mut self) -> Option<OwnedFd> {
        None
    }

    fn wait(&mut self) -> Boxed<'_, Result<Exit>> {
        Box::pin(self.ended())
    }

    fn kill(&self) {
        // Ended already is as good. It may have been stopped.
        for signal in [keeper::END, Signal::CONT] {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        }
    }

    fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        }
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn keeps_memory(&self) -> bool {
        // Nobody does, and nobody watches: the plan says that only the time is kept.
        true
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.exit.is_none() {
            backend::Running::kill(self);
            let _ = self.child.wait();
        }
    }
}
