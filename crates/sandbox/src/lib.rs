//! What can the process touch? One trait, one backend a kind of wall.
#![deny(unsafe_code)]

mod backend;
pub mod docker;
mod error;
mod ground;
mod hints;
mod inside;
pub mod native;
mod spec;
mod sweep;
mod sys;

pub use backend::{Boxed, Doors, Prepared, Running, Sidecar};
pub use error::Error;
pub use spec::{Exit, Keeper, Limits, Missing, Mount, Probe, Rule, Spec, Streams, Usage};
pub use sweep::{has_left, sweep, sweep_after_crash};
