//! May this connection leave, and to which address? The built-in proxy, and Squid by the same rules.
//!
//! A client speaks HTTP/1.1 to the proxy: `CONNECT host:port`, or a request whose target is an
//! absolute `http://` URI. Every request is judged on its own, in this order: the run's token, the
//! form of the request, the ruleset, and only then the name is resolved, every address of the answer
//! is checked, and a checked address is dialled. In a tunnel nothing goes out before the TLS
//! ClientHello has named the same host.

#![forbid(unsafe_code)]

mod address;
mod admit;
mod body;
mod connection;
#[cfg(test)]
mod corpus;
mod decide;
mod dial;
mod engine;
mod forward;
mod head;
mod hello;
mod http2;
mod local;
mod proxy;
mod registry;
pub mod remote;
mod reply;
mod request;
mod resolve;
mod slots;
mod squid;
#[cfg(test)]
mod support;
mod target;
mod token;
mod traffic;
mod tunnel;

pub use address::{AddressError, CheckedAddr, check_addresses};
pub use dial::{DialError, dial};
pub use engine::Strictness;
pub use hello::{Hello, HelloReader, Progress, asks_for_retry};
pub use local::Locals;
pub use proxy::{Begun, Proxy};
pub use resolve::{ResolveError, Resolver};
pub use squid::{Setup as SquidSetup, Squid, clear as clear_squid};
pub use token::Token;

/// Why the proxy could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system has no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
    /// The resolver could not be set up; nothing may be resolved, so nothing runs.
    #[error("no resolver: {0}")]
    Resolver(String),
    /// Squid cannot be used here: it is not there, too old, or did not start.
    #[error("engine = \"squid\": {reason}")]
    Squid {
        /// Why.
        reason: String,
        /// What to type next, where there is one thing.
        next: Option<&'static str>,
    },
    /// A rule that Squid cannot be told exactly. The built-in proxy can keep it.
    #[error("engine = \"squid\": {0}")]
    Rule(String),
    /// The sidecar refuses or is gone: nothing can leave, so nothing runs.
    #[error("the sidecar: {0}")]
    Sidecar(String),
    /// The listener could not be used.
    #[error("proxy listener: {0}")]
    Listener(#[from] std::io::Error),
}
