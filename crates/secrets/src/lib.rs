//! Where does this name's value come from?
//!
//! A [`Resolver`] answers that for one run: policy first, then the source, then evidence, and only
//! then the value. A [`Scrubber`] takes values out of what comes back from outside.
#![forbid(unsafe_code)]

mod environment;
mod error;
mod needles;
mod resolver;
mod scrub;
mod secret;
mod view;

pub use environment::{Environment, ProcessEnvironment};
pub use error::Error;
pub use resolver::Resolver;
pub use scrub::{MIN_BYTES, Scrubber};
pub use secret::Secret;
