//! Did a person on this machine say yes to these bytes?

#![forbid(unsafe_code)]

mod error;
mod file;
pub mod review;
mod store;

pub use error::Error;
pub use store::{Grant, State, Store, TrustedBundle};
