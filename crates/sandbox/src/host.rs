//! The agent on this machine, behind no wall: advisory.
//!
//! It has a composed environment, the proxy and the gate, and may pass both by. Its process dies with its
//! supervisor; what it started itself may not.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};

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
        let mut agent = Command::new(program);
        agent.arg0(arg0).args(args).current_dir(&project).env_clear();
        let kept = KEPT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        agent.envs(kept).envs(env);
        sys::dies_with_us(&mut agent);
        let step = || format!("execute {}", program.display());
        let child = agent.spawn().step(step())?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::Spec("the agent has no process id".into()))?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).step(step())?;
        Ok(Running { child, pidfd, exit: None })
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

/// An agent that runs. Dropping it kills its process.
#[derive(Debug)]
struct Running {
    child: Child,
    pidfd: OwnedFd,
    exit: Option<Exit>,
}

impl Running {
    async fn ended(&mut self) -> Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let step = "wait for the agent";
        let watched = self.pidfd.try_clone().and_then(sys::watch_readable).step(step)?;
        watched.readable().await.step(step)?.retain_ready();
        let status = self.child.wait().step(step)?;
        let exit = match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(libc::SIGKILL)),
        };
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
        // Ended already is as good.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
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
        // Nobody does, and nobody says so: the plan names no limit but the time.
        true
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.exit.is_none() {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
