//! What is on the wire? RMCP lives here and nowhere else, behind plain JSON values.
//!
//! RMCP gives the protocol's models and, where we ask, the service loop (request ids, many calls at
//! once, cancellation). Its typed messages drop members they do not know, and a gateway may not: what
//! was judged is what must go on. So the loop runs here over a role of our own whose messages are
//! JSON values ([`role`]), and the two ends of Streamable HTTP, which RMCP ties to its typed messages,
//! are [`HttpDoor`] and the HTTP side of [`Upstream`]. Where we answer, over HTTP and over stdio, each
//! request is an [`exchange`]: it may stream, ask, and wait for its client to come back.

#![forbid(unsafe_code)]

mod backend;
mod client;
mod door;
mod envelope;
mod exchange;
mod header_params;
mod http_client;
mod lines;
pub mod oauth;
mod parked;
mod replies;
mod revision;
mod role;
mod serve_stdio;
pub mod strict;
#[cfg(test)]
mod testing;
mod upstream;

pub use backend::{Answer, Asker, Backend, Boxed, Client, Listening, Nobody, Party, Wanted};
pub use client::HttpClient;
pub use door::{Bearer, Carrier, DoorBody, DoorOptions, HttpDoor, HttpRefusal, Mark, route};
pub use envelope::{EnvelopeError, Id, Message, RpcError, code};
pub use header_params::HeaderParam;
pub use replies::{Held, Replies, Share};
pub use revision::Revision;
pub use serve_stdio::serve_stdio;
pub use upstream::{
    Authorize, HttpOptions, Opening, Reply, Unheard, Upstream, UpstreamError, UpstreamLimits,
    Wants, with_log_level,
};
