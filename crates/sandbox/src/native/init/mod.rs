//! The sandbox's init: process 1 inside, which builds the sandbox, starts the agent, and ends with
//! its supervisor.

mod agent;
mod confine;
mod devices;
mod etc;
mod probe;
mod root;
mod rules;
mod seccomp;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use rustix::thread::{Gid, Uid};

use self::agent::Agent;
use super::channel::Channel;
use super::ids::INSIDE;
use super::wire::{Blueprint, Order, Reply};
use crate::Exit;
use crate::error::{Error, Result, Step};
use crate::sys;

/// The host name inside.
const HOST_NAME: &str = "sandbox";

/// Runs until the agent or the supervisor ends.
pub(crate) fn run() -> ! {
    let channel = Channel::new(sys::control_channel());
    // The supervisor reads the failure; if it is gone, there is nobody to tell.
    if let Err(error) = serve(&channel) {
        let _ = channel.send(&Reply::Failed(error.into()), &[]);
    }
    sys::exit_now(0)
}

fn serve(channel: &Channel) -> Result<()> {
    tie_to_supervisor()?;
    sys::ignore_terminal_stops();
    let (blueprint, fds) = match receive(channel)? {
        Some((Order::Build(blueprint), fds)) => (blueprint, fds),
        Some((Order::Try { take_identity }, _)) => {
            if take_identity {
                self::take_identity()?;
            }
            root::attempt()?;
            confine::attempt()?;
            return channel.send(&Reply::Here, &[]).step("answer");
        }
        _ => return Ok(()),
    };
    let (mut agent, listeners) = build(*blueprint, fds)?;
    let passed: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    channel.send(&Reply::Built, &passed).step("hand over the listeners")?;
    drop(passed);
    drop(listeners);
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

fn receive(channel: &Channel) -> Result<Option<(Order, Vec<OwnedFd>)>> {
    channel.receive().step("read an order of the supervisor")
}

/// Nothing in the sandbox may look into us, and we end with the thread that made us. Both are
/// reset by the kernel whenever ids change.
fn tie_to_supervisor() -> Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .step("shut the init's memory")?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .step("tie the init to its supervisor")
}

fn build(blueprint: Blueprint, fds: Vec<OwnedFd>) -> Result<(Agent, Vec<TcpListener>)> {
    rustix::process::umask(rustix::fs::Mode::empty());
    if blueprint.take_identity {
        take_identity()?;
    }
    unshare_cgroup()?;
    rustix::system::sethostname(HOST_NAME.as_bytes()).step("set the host name")?;
    let listeners = listen(&blueprint.listen)?;
    let mut fds = fds.into_iter();
    let stdio = [(); 3].map(|()| fds.next());
    let [Some(stdin), Some(stdout), Some(stderr)] = stdio else {
        return Err(Error::Spec("the standard streams did not come with the blueprint".into()));
    };
    let built = root::build(&blueprint, &mut fds)?;
    let confinement = confine::prepare(&blueprint.bounds, &built, &[&stdin, &stdout, &stderr])?;
    confine::drop_privileges()?;
    Ok((Agent::new(blueprint, [stdin, stdout, stderr], confinement), listeners))
}

/// Becomes the agent's uid and gid. Until here we were the host's root without its capabilities.
fn take_identity() -> Result<()> {
    let (uid, gid) = (Uid::from_raw(INSIDE), Gid::from_raw(INSIDE));
    rustix::thread::set_thread_groups(&[]).step("drop supplementary groups")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("take the agent's gid")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("take the agent's uid")?;
    tie_to_supervisor()
}

/// Hides where in the host's cgroups we are. Done here, after the supervisor has put us there.
fn unshare_cgroup() -> Result<()> {
    match sys::unshare(libc::CLONE_NEWCGROUP) {
        // A kernel without cgroups has nothing to hide.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other.step("make a cgroup namespace"),
    }
}

fn listen(ports: &[u16]) -> Result<Vec<TcpListener>> {
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
            .step("open a socket")?;
    sys::loopback_up(&socket).step("bring the loopback interface up")?;
    let bind = |port: &u16| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, *port))
            .step(format!("listen on port {port} inside"))
    };
    ports.iter().map(bind).collect()
}

/// Reaps, passes signals on, and ends when the agent or the supervisor does; the kernel then kills
/// whatever else is left.
fn watch(channel: &Channel, children: &OwnedFd, agent: Pid) -> Result<()> {
    // It was there before the signal was watched for, and may have ended before.
    if let Some(exit) = reap(agent)? {
        return channel.send(&Reply::Exited(exit), &[]).step("report the end");
    }
    loop {
        let mut fds = [PollFd::new(channel, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).step("wait for the agent"),
        }
        let [control, ended] = fds.map(|fd| !fd.revents().is_empty());
        if ended {
            let mut buffer = [0; 128 * 4];
            let _ = rustix::io::read(children, &mut buffer);
            if let Some(exit) = reap(agent)? {
                return channel.send(&Reply::Exited(exit), &[]).step("report the end");
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

/// Collects all ended processes; the agent's exit if it is among them.
fn reap(agent: Pid) -> Result<Option<Exit>> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == agent => {
                return Ok(Some(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => continue,
                }));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(None),
            Err(error) => return Err(io::Error::from(error)).step("collect ended processes"),
        }
    }
}
