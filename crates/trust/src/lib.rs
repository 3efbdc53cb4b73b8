//! Did a person on this machine say yes to these bytes?

#![forbid(unsafe_code)]

mod carry;
mod error;
mod file;
mod gate;
mod list;
mod moved;
mod prior;
pub mod review;
mod store;
mod watch;

pub use carry::{Carried, TrustCarry};
pub use error::Error;
pub use gate::{Gate, gate};
pub use list::{Listed, Standing};
pub use moved::Moved;
pub use prior::{Deliverable, File, PriorTrust};
pub use review::Review;
pub use store::{Grant, State, Store, TrustedBundle};
pub use watch::Watch;
