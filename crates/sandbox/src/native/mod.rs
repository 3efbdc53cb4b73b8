//! The native backend: namespaces, Landlock, seccomp; no daemon, no root, no image.
//!
//! The supervisor clones a child into new namespaces, which executes this program again as the
//! sandbox's *init* (process 1 inside). The init builds the root file system, opens the listeners,
//! gives up every capability, and waits. The probe and then the agent are its children, confined by
//! the same code. Either end of the control channel that closes ends the sandbox.
//!
//! What it does not do:
//! - an ordinary user's supplementary groups stay with the agent: the kernel lets nobody drop them
//!   without privilege. None of their sockets and devices is visible, though.
//! - a socket that a daemon keeps somewhere in `/usr`, outside of `var` and `run`, can be connected
//!   to before Landlock ABI 9.
//! - who on the host replaces a file (by rename) on which a rule stands takes the rule's mount away
//!   for the rest of the run. The agent cannot do that itself; rules on folders do not suffer from
//!   it.
//! - a socket that a process of the host makes in the project while the run goes on can be connected
//!   to, and so can a denied file be read that comes into being then.
//! - where memory is only watched, what no process has mapped is not seen: `memfd` files, System V
//!   segments, buffers of pipes and sockets.
//! - a run cannot be suspended from its terminal: the supervisor goes on, so that limits are kept.

pub(crate) mod cgroup;
mod init;
mod launch;
mod process;
mod program;
mod running;
mod targets;
mod usage;
mod wall;

pub(crate) use launch::random_id;
pub use launch::{Prepared, prepare};
pub use running::Running;
pub(crate) use targets::{host_addresses, host_names, host_sockets, system_name_servers};

use std::path::Path;

use crate::error::Result;
use crate::{Keeper, Limits, sweep, sys};

use crate::ground::ids;
use crate::ground::journal::Journal;
use crate::ground::placeholder;
use crate::inside::wire;

/// Who keeps each limit on this machine, as `(limit name, keeper)` for those that are set. Memory
/// and CPU are tried for real, by making a cgroup.
#[must_use]
pub fn keepers(limits: &Limits) -> Vec<(&'static str, Keeper)> {
    let kept = |kept| if kept { Keeper::Enforced } else { Keeper::Watched };
    let tried = Limits { memory: limits.memory, cpus: limits.cpus, ..Limits::default() };
    let (mut memory, mut cpu) = (false, false);
    if let Ok(id) = random_id() {
        let name = format!("{}{id}", cgroup::TRY_PREFIX);
        let plan = cgroup::Plan::new(&name, &tried);
        plan.remove_old_tries();
        let group = plan.make(&tried);
        (memory, cpu) = (group.keeps_memory(), group.keeps_cpu());
        let folders = group.folders.into_iter().map(std::path::PathBuf::into_os_string);
        cgroup::remove(folders.collect());
    }
    // Without a cgroup, affinity keeps whole CPUs.
    let whole = limits.cpus.is_some_and(|cpus| cpus.fract() == 0.0);
    [
        (limits.memory.is_some(), "memory", kept(memory)),
        (limits.disk.is_some(), "disk", Keeper::Enforced),
        (limits.pids.is_some(), "pids", Keeper::Enforced),
        (limits.cpus.is_some(), "cpus", kept(cpu || whole)),
        (limits.duration.is_some(), "duration", Keeper::Watched),
    ]
    .into_iter()
    .filter(|(set, ..)| *set)
    .map(|(_, name, keeper)| (name, keeper))
    .collect()
}

/// Whether this machine can run it, tried for real; the error says which setting to change. The
/// program must call [`init_main`] first thing when [`is_init`] says so.
///
/// # Errors
/// [`crate::Error::Step`].
pub fn available() -> Result<()> {
    let identity = ids::Identity::choose()?;
    let init = process::Init::spawn(identity)?;
    init.begin()?;
    init.order(&wire::Order::Try { take_identity: identity.is_other() }, &[])?;
    match init.reply()? {
        (wire::Reply::Here, _) => Ok(()),
        _ => Err(process::unexpected()),
    }
}

/// The program's entry as a sandbox's init: called by `main` before anything else when the
/// process was started as one (see [`is_init`]). Never returns.
pub fn init_main() -> ! {
    init::run()
}

/// Whether a path lies in a folder of the host that every sandbox sees.
#[must_use]
pub fn is_system(path: &Path) -> bool {
    program::SYSTEM.iter().any(|folder| path.starts_with(folder))
}

/// Makes this process go on when its terminal asks it to stop. What runs in a sandbox shares the
/// terminal, can put itself in its foreground and choose its keys: a supervisor that it could stop
/// would watch no limit any more. Call it before a sandbox starts; sandboxes start with the
/// defaults again.
pub fn ignore_terminal_stops() {
    sys::ignore_terminal_stops();
}

/// Waits until the process that started this one is gone. Pending for ever where that cannot be seen.
/// Within a tokio runtime.
pub async fn parent_gone() {
    use rustix::process::{PidfdFlags, getppid, pidfd_open};
    let Some(parent) = getppid() else { return std::future::pending().await };
    let Ok(handle) = pidfd_open(parent, PidfdFlags::empty()) else {
        return std::future::pending().await;
    };
    // It was gone before it could be watched: somebody else is the parent now.
    if getppid() != Some(parent) {
        return;
    }
    match sys::watch_readable(handle) {
        Ok(handle) if handle.readable().await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Whether this process was started as a sandbox's init: process 1, under the init's name.
#[must_use]
pub fn is_init() -> bool {
    let named = std::env::args_os().next().is_some_and(|name| {
        std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str()) == sys::INIT_NAME.to_bytes()
    });
    named && rustix::process::getpid() == rustix::process::Pid::INIT
}

/// What must be put back when a sandbox is gone.
#[derive(Debug)]
pub(crate) struct Cleanup {
    journal: Journal,
    ground: placeholder::Ground,
    done: bool,
}

impl Cleanup {
    /// Puts it back, once.
    fn run(&mut self) {
        if !self.done {
            self.done = true;
            sweep::clean(&mut self.journal, Some(&self.ground), sweep::After::End);
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.run();
    }
}
