//! A proxy at the far end of a socket: it runs in a container beside the agent's (the *sidecar*), and its
//! ruleset, its resolver, its address check and its record are the supervisor's.
//!
//! The sidecar judges by the ruleset itself and dials itself. Everything that depends on the machine (what
//! a name resolves to, which addresses are the machine's own) and all evidence is on this side. When the
//! socket ends the sidecar ends, and with it the agent's only peer.

mod far;
mod near;
mod wire;

pub use far::{is_sidecar, sidecar_main};
pub use near::{Attending, Ended, Remote, Setup};
pub use wire::Relay;

/// The name by which the sidecar is started, and known again.
pub const SIDECAR_NAME: &str = "ringfence-sidecar";
/// Where the sidecar finds the sockets that it connects to.
pub const SIDECAR_FOLDER: &str = "/run/ringfence";
/// In that folder: where it gets its orders.
pub const CONTROL: &str = "control";

#[cfg(test)]
mod tests;
