//! What can the process touch? One trait, one backend a kind of wall.
#![deny(unsafe_code)]

mod backend;
pub mod docker;
mod error;
mod ground;
mod hints;
pub mod host;
mod inside;
pub mod native;
mod spec;
mod sweep;
mod sys;

pub use backend::{Boxed, Doors, Prepared, Running, Sidecar};
pub use error::Error;
/// Lets the kernel kill the process of this command when the thread that starts it ends: for a program
/// that serves a run outside its sandboxes.
pub fn dies_with_us(command: &mut std::process::Command) {
    sys::dies_with_us(command);
}

pub use ground::guard::Guard;
pub use spec::{Exit, Keeper, Limits, Missing, Mount, Probe, Rule, Spec, Streams, Usage};
pub use sweep::{Swept, has_left, sweep, sweep_after_crash};
