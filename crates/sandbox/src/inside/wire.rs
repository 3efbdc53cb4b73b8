//! What the supervisor and a sandbox's init say to each other.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::{Exit, Probe, Rule};

/// From the supervisor to the init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Build the sandbox. Comes with the descriptors that the blueprint counts on.
    Build(Box<Blueprint>),
    /// Take up a container that stands already.
    Enter(Box<Blueprint>),
    /// Try what a machine may refuse, say how it went, and end.
    Try {
        /// See [`Blueprint::take_identity`].
        take_identity: bool,
    },
    /// Try the sandbox from inside.
    Probe(Targets),
    /// Start the agent.
    Start,
    /// Send the agent a signal.
    Signal(i32),
}

/// From the init to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The sandbox stands; the listeners come with it.
    Built,
    /// Answer to `Try`: all of it works.
    Here,
    /// What the probe found.
    Probed(Vec<Probe>),
    /// The agent's program runs.
    Started,
    /// A step failed; nothing has run.
    Failed(Failure),
    /// The agent ended.
    Exited(Exit),
}

/// An [`Error`] in a form that can be sent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// See [`Error::Step`].
    Step { step: String, errno: i32, hint: Option<String> },
    /// See [`Error::Spec`].
    Spec(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Step { step, source, hint } => Self::Step {
                step: step.into_owned(),
                errno: source.raw_os_error().unwrap_or(libc::EIO),
                hint,
            },
            other => Self::Spec(other.to_string()),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Step { step, errno, hint } => Self::Step {
                step: step.into(),
                source: std::io::Error::from_raw_os_error(errno),
                hint,
            },
            Failure::Spec(message) => Self::Spec(message),
        }
    }
}

/// What the init builds. Paths are absolute host paths unless they say otherwise.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Blueprint {
    /// The agent's program.
    pub(crate) program: OsString,
    /// `argv` of the agent, its name first.
    pub(crate) argv: Vec<OsString>,
    /// The agent's environment, complete.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The project, mounted at its own path; also the working folder.
    pub(crate) project: Tree,
    /// Rules within the project, in order; paths relative to it.
    pub(crate) rules: Vec<(OsString, Rule)>,
    /// What else is mounted read-only at its own path.
    pub(crate) read: Vec<Tree>,
    /// Symlinks to recreate: where, and to what.
    pub(crate) links: Vec<(OsString, OsString)>,
    /// Whether the agent leads a session of its own, without the supervisor's terminal.
    pub(crate) own_session: bool,
    /// Which of the standard streams becomes the terminal of that session.
    pub(crate) terminal: Option<u8>,
    /// Loopback ports to listen on.
    pub(crate) listen: Vec<u16>,
    /// Whether the init must take on the inside uid and gid itself (started by root).
    pub(crate) take_identity: bool,
    /// Bounds.
    pub(crate) bounds: Bounds,
    /// What must be found where somebody else has mounted it: path, device, inode.
    #[serde(default)]
    pub(crate) expected: Vec<(OsString, u64, u64)>,
    /// Whether the program may be what somebody else has mounted, and not the image's.
    #[serde(default)]
    pub(crate) mounted_program: bool,
}

/// A file or folder of the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tree {
    /// Where it is, outside and inside.
    pub(crate) path: OsString,
    /// Its device, to notice an exchange.
    pub(crate) dev: u64,
    /// Its inode.
    pub(crate) ino: u64,
    /// Whether it is a folder.
    pub(crate) folder: bool,
    /// Whether a detached mount of it comes as a descriptor. Otherwise the init opens the path.
    pub(crate) passed: bool,
}

/// The limits that the init sets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// Bytes of the scratch file system.
    pub(crate) scratch: u64,
    /// Bytes that one file may have.
    pub(crate) file_size: Option<u64>,
    /// Processes and threads of the agent.
    pub(crate) pids: Option<u64>,
    /// CPUs that the agent may use, kept by affinity.
    pub(crate) cpus: Option<u32>,
}

/// What the probe must not reach, beyond what it always tries.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Targets {
    /// Addresses of the host's interfaces.
    pub(crate) host_addresses: Vec<IpAddr>,
    /// The host's name servers.
    pub(crate) name_servers: Vec<IpAddr>,
    /// A loopback port on which the supervisor listens outside.
    pub(crate) host_port: Option<u16>,
    /// Names of the host's abstract sockets; natively one is the supervisor's own.
    pub(crate) host_abstract: Vec<Vec<u8>>,
    /// Socket paths.
    pub(crate) sockets: Vec<OsString>,
    /// Paths that must not be readable.
    pub(crate) unseen: Vec<OsString>,
    /// What must answer: the proxy.
    pub(crate) control: Option<SocketAddr>,
    /// Set where there is a network, on which all of this must stay silent.
    #[serde(default)]
    pub(crate) network: Option<Network>,
}

/// What is tried in a sandbox that has a network.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Network {
    /// Connections.
    pub(crate) connect: Vec<SocketAddr>,
    /// Names that must not have an address.
    pub(crate) names: Vec<OsString>,
}
