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
mod private;
mod resolver;
mod scrub;
mod secret;
mod signins;
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
pub use signins::{Kept, SignIn, SignIns, Stamp, Turn};
pub use source::{Answer, Asked, Source};
pub use varlock::Varlock;

/// What the agent can do with the file of this name in the project folder.
pub type Reach = std::sync::Arc<dyn Fn(&str) -> Reached + Send + Sync>;

/// What the agent can do with a file: where it can do anything, the file is no source of secrets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// It can read it, and so would have the secrets of servers.
    pub read: bool,
    /// It can write it, or could have made it in an earlier run, and so would choose them.
    pub write: bool,
}
