//! Assemble the plan, supervise it, tear it down.

mod error;
mod program;
mod project;

pub use error::{Error, Kind};
