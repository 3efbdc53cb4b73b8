//! What a backend is told: one process, its files, its limits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What is done when a path is missing. One that is there stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The sandbox is refused.
    Present,
    /// A placeholder folder is made on the host for the time of the run, and taken away after.
    Dir,
    /// A placeholder file with these bytes.
    File(Vec<u8>),
    /// A folder is made and stays: a declared write scope that is not there yet.
    Keep,
}

/// What is done with a path in the project. Applied in the order given, parents first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
    /// Nobody.
    Nobody,
}

/// Standard streams of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// The supervisor's own.
    Inherit,
    /// Pipes for stdin and stdout (an MCP server); stderr goes to the given file of the run. The
    /// process has no controlling terminal.
    Piped,
    /// The supervisor's own, but a terminal of its own in the place of each that is a terminal: the
    /// supervisor has the other end and carries bytes between the two. The process cannot reach the
    /// supervisor's terminal by any name.
    Terminal,
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
    /// Where stderr goes with [`Streams::Piped`]: a file that is appended to, or a descriptor of the
    /// caller's by its path in `/proc/self/fd`.
    pub stderr: Option<PathBuf>,
    /// Loopback ports on which the backend listens inside, handed out to the caller.
    pub listen: Vec<u16>,
    /// A folder of the run (host side, 0700) for what must be cleaned after a crash. More than one
    /// sandbox may share it.
    pub run_dir: PathBuf,
    /// Host paths that must not be readable inside (the machine's state): the probe looks.
    pub must_not_see: Vec<PathBuf>,
}

/// One attempt of the probe.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Probe {
    /// What was tried, for example `connect 1.1.1.1:443`.
    pub check: String,
    /// `blocked`, `reachable`, `unclear` where it could not be tried, or `control`.
    pub result: String,
    /// Whether that is what must be.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
