//! What can the process touch? One trait, one backend a kind of wall.
#![deny(unsafe_code)]

mod error;
pub mod native;
mod spec;
mod sys;

pub use error::Error;
pub use spec::{Exit, Keeper, Limits, Missing, Mount, Probe, Rule, Spec, Streams, Usage};
