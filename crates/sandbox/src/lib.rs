//! What can the process touch? One trait, one backend a kind of wall.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

/// How a file system path outside or inside the project is presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// It is there.
    Present,
    /// A placeholder folder is made on the host for the time of the run, and taken away after.
    Dir,
    /// A placeholder file with these bytes.
    File(Vec<u8>),
    /// A folder is made and stays: a declared write scope that is not there yet.
    Keep,
}

/// What is done with a path in the project. Applied in the order given, parents first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// May be written.
    Writable,
    /// May be read only; a mount point of its own, so that it cannot be renamed.
    ReadOnly,
    /// Writable, but a mount point of its own (`.git`): it cannot be renamed away.
    Pinned,
    /// Nothing of it can be read: an empty folder or file stands in its place.
    Masked,
}

/// One path of the project and its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Relative to the project, no `..`, no symlink on the way (checked when it is mounted).
    pub path: PathBuf,
    /// What is done.
    pub rule: Rule,
    /// What is done when it is missing.
    pub missing: Missing,
}

/// The limits. `None` means not limited.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of scratch space (HOME, `/tmp`, `/dev/shm` together).
    pub disk: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// CPUs.
    pub cpus: Option<f64>,
    /// Wall-clock time; kept by the caller, here for the plan.
    pub duration: Option<Duration>,
}

/// Who keeps a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeper {
    /// The kernel.
    Enforced,
    /// The supervisor looks, and stops the run.
    Watched,
}

/// Standard streams of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// The supervisor's own.
    Inherit,
    /// Pipes for stdin and stdout (an MCP server); stderr goes to the given file of the run.
    Piped,
}

/// Everything a backend needs to start one process. No policy in it: policy has been decided.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Program and arguments; the program is an absolute host path.
    pub command: Vec<OsString>,
    /// The name by which the process sees itself (`argv[0]`).
    pub arg0: OsString,
    /// The whole environment; `HOME`, `PATH`, `TMPDIR`, `USER`, `SHELL` are set by the backend when absent.
    pub env: Vec<(OsString, OsString)>,
    /// The project folder, mounted read-only at its own path; also the working folder.
    pub project: PathBuf,
    /// Rules for paths in the project.
    pub mounts: Vec<Mount>,
    /// Absolute host paths outside the project that are mounted read-only.
    pub read: Vec<PathBuf>,
    /// Limits.
    pub limits: Limits,
    /// Streams.
    pub streams: Streams,
    /// Where stderr goes with [`Streams::Piped`].
    pub stderr: Option<PathBuf>,
    /// Loopback ports on which the backend listens inside, handed out to the caller.
    pub listen: Vec<u16>,
    /// A folder of the run (host side, 0700) for what must be cleaned after a crash.
    pub run_dir: PathBuf,
}

/// One attempt of the probe.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Probe {
    /// What was tried, for example `connect 1.1.1.1:443`.
    pub check: String,
    /// `blocked`, `reachable`, or `control`.
    pub result: String,
    /// Whether that is what must be.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With a status.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// What a running sandbox uses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Bytes resident, all processes.
    pub memory: u64,
    /// CPU time, all processes.
    pub cpu: Duration,
    /// Processes.
    pub pids: u64,
}

/// Why a sandbox could not be built. One variant a failing step, each with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A step failed.
    #[error("{step}: {source}{}", .hint.as_deref().map(|h| format!("\n{h}")).unwrap_or_default())]
    Step {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        source: std::io::Error,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The probe found a way out.
    #[error("the sandbox is not tight: {}", .0.check)]
    Leaky(Probe),
    /// The specification cannot be honoured.
    #[error("{0}")]
    Spec(String),
}

/// The native backend: namespaces, Landlock, seccomp; no daemon, no root, no image.
pub mod native {
    use super::{
        Duration, Error, Exit, Keeper, Limits, OwnedFd, PathBuf, Probe, Spec, TcpListener, Usage,
    };

    /// A sandbox that is built and waits: its init is in place, nothing of the agent has run.
    #[derive(Debug)]
    pub struct Prepared {}

    /// A sandbox whose process has been released.
    #[derive(Debug)]
    pub struct Running {}

    /// Who keeps each limit on this machine, as `(limit name, keeper)` for those that are set.
    #[must_use]
    pub fn keepers(_limits: &Limits) -> Vec<(&'static str, Keeper)> {
        todo!()
    }

    /// Whether this machine can run it, tried for real; the error says which setting to change.
    ///
    /// # Errors
    /// [`Error::Step`].
    pub fn available() -> Result<(), Error> {
        todo!()
    }

    /// Builds a sandbox. Must be called on the thread that outlives the run: the kernel kills the
    /// sandbox when that thread ends.
    ///
    /// # Errors
    /// [`Error`].
    pub fn prepare(_spec: &Spec) -> Result<Prepared, Error> {
        todo!()
    }

    /// Puts back what crashed runs left (placeholders, cgroups), by the files in their run folders.
    /// The caller says which run folders are dead.
    ///
    /// # Errors
    /// [`Error::Step`].
    pub fn sweep(_dead_run_dir: &std::path::Path) -> Result<(), Error> {
        todo!()
    }

    /// The program's entry as a sandbox's init: called by `main` before anything else when the
    /// process was started as one (see `is_init`). Never returns.
    pub fn init_main() -> ! {
        todo!()
    }

    /// Whether this process was started as a sandbox's init.
    #[must_use]
    pub fn is_init() -> bool {
        todo!()
    }

    impl Prepared {
        /// The listeners made inside, in the order of `Spec::listen`. They accept on this side.
        pub fn listeners(&mut self) -> Vec<TcpListener> {
            todo!()
        }

        /// Tries the sandbox from inside, with the confinement the process will have. Call it while
        /// the listeners are being served: the positive control connects to the first of them and
        /// must get an answer.
        ///
        /// # Errors
        /// [`Error::Leaky`] with the first attempt that was not as it must be; [`Error::Step`].
        pub fn probe(&mut self) -> Result<Vec<Probe>, Error> {
            todo!()
        }

        /// Lets the process start.
        ///
        /// # Errors
        /// [`Error::Step`], for example when the program cannot be executed.
        pub fn release(self) -> Result<Running, Error> {
            todo!()
        }
    }

    impl Running {
        /// Stdin and stdout with [`super::Streams::Piped`]; taken once.
        pub fn take_streams(&mut self) -> Option<(OwnedFd, OwnedFd)> {
            todo!()
        }

        /// Waits for the process to end and everything else in the sandbox to be gone.
        pub async fn wait(&mut self) -> Result<Exit, Error> {
            todo!()
        }

        /// Kills everything in it.
        pub fn kill(&self) {
            todo!()
        }

        /// Passes a signal to the process (SIGINT, SIGTERM, SIGWINCH, …).
        pub fn signal(&self, _signal: i32) {
            todo!()
        }

        /// What it uses now.
        #[must_use]
        pub fn usage(&self) -> Usage {
            todo!()
        }

        /// Its init's process id on the host.
        #[must_use]
        pub fn pid(&self) -> u32 {
            todo!()
        }
    }

    const _: fn() -> (Duration, PathBuf) = || (Duration::ZERO, PathBuf::new());
}
