//! The Docker backend: the agent in a container on a network of its own, and beside it one other
//! container, the *sidecar*, which is its only peer.
//!
//! Both networks are made for the run. The agent's has no way out: it is internal, has no address on the
//! host's side, and no IPv6. The sidecar is on both; it runs Ringfence's own proxy and passes what comes to
//! the gate on to a Unix socket of the supervisor that is mounted into it alone. Process 1 of the agent's
//! container is Ringfence's own too: it speaks with the supervisor through the sidecar, tries the sandbox,
//! starts the agent, and ends everything in the container when that line is cut, by whatever death.
//!
//! What it does not do:
//! - a remote engine: the project and the sidecar's sockets are folders of this machine.
//! - IPv6: the networks have none, so hosts that have no IPv4 address are not reached.
//! - the engine itself, and whoever may use its socket, are trusted: they are root on this machine.

mod bodies;
mod engine;
mod image;
mod init;
mod made;
mod place;
mod prepare;
mod running;
mod stdio;
mod sweep;
mod targets;

use std::path::PathBuf;

pub use engine::Engine;
pub use image::Image;
pub use init::{init_main, is_init};
pub use prepare::{Prepared, prepare};
pub(crate) use sweep::{FOLDER, remove, remove_folder};

/// What the names of the two files begin with that are mounted for process 1 of the agent's container. Between
/// that and the end stands what no image can know: at a name of its own it could have a link.
const OWN_FILES: &str = "/.ringfence-";
/// The end of the name by which process 1 is started, and known again.
const INIT_FILE: &str = "-init";
/// The end of the name of the file in which it finds the sidecar's address.
const DOOR_FILE: &str = "-door";
/// The port by which the sidecar leads to the supervisor.
pub(crate) const INIT_PORT: u16 = 3130;
/// The label that every container and network of a run has; its value is the run's id.
const LABEL: &str = "dev.ringfence.run";
/// The socket in the sidecar's folder to which [`INIT_PORT`] leads.
pub const INIT_SOCKET: &str = "init";
/// The socket in the sidecar's folder to which the gate's port leads.
pub const GATE_SOCKET: &str = "gate";

/// The port of the line between the container and its supervisor, to be passed on to [`INIT_SOCKET`].
#[must_use]
pub fn init_port() -> u16 {
    INIT_PORT
}

/// What a container is made from.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The agent's image.
    pub image: Image,
    /// An OCI runtime by the name that the engine knows it by; the engine's default without one.
    pub runtime: Option<String>,
    /// The run's id.
    pub run: String,
    /// Whether the command may be a path to what is mounted from this machine: a person typed it, or it was
    /// proven to be what was reviewed.
    pub mounted_program: bool,
    /// This very program.
    pub program: PathBuf,
    /// A file of the machine's state in which is kept which image was made from it.
    pub kept: PathBuf,
    /// The name by which the program is started as a sidecar.
    pub sidecar_name: &'static str,
    /// The sidecar's folder, and the socket in it where it gets its orders.
    pub sidecar_folder: &'static str,
    /// See `sidecar_folder`.
    pub control_socket: &'static str,
}
