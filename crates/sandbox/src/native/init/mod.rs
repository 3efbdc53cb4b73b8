//! The sandbox's init: process 1 inside, which builds the sandbox, starts the agent, and ends with
//! its supervisor.

mod confine;
mod devices;
mod etc;
mod root;
mod rules;

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Signal;
use rustix::thread::{Gid, Uid};

use crate::error::{Error, Result, Step};
use crate::ground::ids::INSIDE;
use crate::inside::channel::Channel;
use crate::inside::wire::{Blueprint, Order, Reply};
use crate::inside::{self, Agent, drop_privileges};
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
    let (blueprint, fds) = match inside::receive(channel)? {
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
    inside::obey(channel, &mut agent)
}

/// Nothing in the sandbox may look into us, and we end with the thread that made us. Both are
/// reset by the kernel whenever ids change.
fn tie_to_supervisor() -> Result<()> {
    inside::shut()?;
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
    drop_privileges()?;
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
