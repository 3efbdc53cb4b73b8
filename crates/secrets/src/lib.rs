//! Where does this name's value come from?
//!
//! A [`Chain`] asks its [`Source`]s in order: the environment, varlock, the keychain, the project's
//! `.env`. A [`Resolver`] does so for one run: policy first, then the chain, then evidence, and only
//! then the value. A [`Scrubber`] takes values out of what comes back from outside.
#![forbid(unsafe_code)]

mod beneath;
mod chain;
mod dotenv;
mod environment;
mod error;
mod keychain;
mod needles;
mod resolver;
mod scrub;
mod secret;
mod source;
mod varlock;
mod view;

pub use chain::{Chain, Found};
pub use dotenv::DotEnv;
pub use environment::Environment;
pub use error::Error;
pub use keychain::Keychain;
pub use resolver::Resolver;
pub use scrub::{MIN_BYTES, Scrubber};
pub use secret::{MAX_BYTES, Secret};
pub use source::{Answer, Asked, Source};
pub use varlock::Varlock;

/// Whether the agent may write the file of this name in the project folder.
pub type MayWrite = std::sync::Arc<dyn Fn(&str) -> bool + Send + Sync>;
