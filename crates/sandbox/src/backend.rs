//! What every kind of wall gives to whoever supervises it.

use std::ffi::OsString;
use std::future::Future;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::Result;
use crate::{Exit, Guard, Probe, Usage};

/// The limit of a sandbox in which the kernel ended a process that wanted more memory than there may be.
pub(crate) fn out_of_memory() -> (&'static str, String) {
    ("memory", "the kernel ended a process that asked for more".into())
}

/// A future on the heap.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The ways out of a sandbox, as the supervisor has them.
#[derive(Debug)]
pub enum Doors {
    /// Listeners made inside, in the order of [`crate::Spec::listen`]. They accept on this side.
    Inside(Vec<TcpListener>),
    /// Listeners at a loopback address of this run's own.
    Here {
        /// In the order of [`crate::Spec::listen`].
        listeners: Vec<TcpListener>,
        /// Where they are.
        address: std::net::IpAddr,
    },
    /// A container beside the sandbox's is its one peer.
    Sidecar(Sidecar),
}

/// What connects a supervisor with its sidecar.
#[derive(Debug)]
pub struct Sidecar {
    /// The sidecar is told here what it is to do, and says here what it did. One connection.
    pub control: std::os::unix::net::UnixStream,
    /// What comes to the gate's port arrives here.
    pub gate: UnixListener,
    /// The sidecar's address, as the sandbox sees it.
    pub address: std::net::IpAddr,
}

/// A sandbox that is built and waits: nothing of the agent has run. Dropping it takes everything away
/// again.
pub trait Prepared: Send {
    /// The ways out; taken once.
    fn doors(&mut self) -> Option<Doors>;

    /// Adds to the environment of the process: what depends on where the doors are, where that is not
    /// known beforehand ([`Doors::Sidecar`]).
    fn equip(&mut self, _more: Vec<(OsString, OsString)>) {}

    /// Tries the sandbox from inside, as confined as the process will be. The doors must be served
    /// meanwhile: the positive control is an answer of the proxy.
    ///
    /// # Errors
    /// [`crate::Error::Leaky`] with the first attempt that was not as it must be;
    /// [`crate::Error::Step`].
    fn probe(&mut self) -> Boxed<'_, Result<Vec<Probe>>>;

    /// Lets the process start.
    ///
    /// # Errors
    /// [`crate::Error::Step`], for example when the program cannot be executed.
    fn release(self: Box<Self>) -> Boxed<'static, Result<Box<dyn Running>>>;
}

/// A sandbox whose process has been released. Dropping it kills everything in it.
pub trait Running: Send + Sync {
    /// Our end of the process's own terminal with [`crate::Streams::Terminal`], if one of the
    /// supervisor's streams is a terminal; taken once.
    fn take_terminal(&mut self) -> Option<OwnedFd>;

    /// Waits for the process to end and everything else in the sandbox to be gone. May be cancelled
    /// and called again.
    ///
    /// # Errors
    /// [`crate::Error::Step`]: the sandbox failed. The process is gone then too.
    fn wait(&mut self) -> Boxed<'_, Result<Exit>>;

    /// Kills everything in it.
    fn kill(&self);

    /// Passes a signal to the process (SIGINT, SIGTERM, SIGWINCH, …). Unknown numbers are ignored.
    fn signal(&self, signal: i32);

    /// Whether what a person types to end a program (Ctrl-C) reaches the process by itself.
    fn shares_terminal(&self) -> bool {
        true
    }

    /// What it uses now.
    fn usage(&self) -> Usage;

    /// Whether the kernel bounds the memory of this very sandbox. Where it does not although a limit is
    /// set, somebody must watch.
    fn keeps_memory(&self) -> bool;

    /// The limit by which the kernel ended something in it, if it did: its name, and more words. Known
    /// once it has ended.
    fn limit(&self) -> Option<(&'static str, String)> {
        None
    }

    /// What watches the names on which its mounts stand, where there are mounts.
    fn guard(&self) -> Option<Arc<Guard>> {
        None
    }

    /// Takes away all that is left of it, so that nothing has to be swept. It has ended.
    fn clear(&mut self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }
}
