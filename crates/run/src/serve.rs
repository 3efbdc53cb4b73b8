//! Serves a trusted bundle's servers to clients outside any sandbox: `ringfence mcp` over stdio,
//! `ringfence gateway serve` over HTTP. Both end in the gateway's one function, in a session that has
//! a record of its own.

mod bundle;
mod files;
mod front;
mod http;
mod open;
mod place;
mod refused;
mod roots;
mod stdio;
mod tls;
mod tokens;

pub use http::{Folder, Listen, Listening, gateway};
pub use stdio::{Mcp, mcp};
pub use tokens::{Token, Tokens, Value, parse_lifetime};

use std::sync::Arc;
use std::time::Duration;

use ringfence_bundle::ServerId;
use tokio::sync::watch;

use crate::Request;
use crate::rooms::Counted;

/// What a person hears while clients are served: stdout may be the protocol's.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// What is served, and how it is called in the record.
#[derive(Clone)]
pub(crate) struct Wish {
    /// Folder and machine.
    pub(crate) request: Request,
    /// The words that stand for the command in the record.
    pub(crate) words: Vec<String>,
    /// A toolset by name, or the default one.
    pub(crate) toolset: Option<String>,
    /// How long calls in flight may go on when a session ends.
    pub(crate) drain: Duration,
    /// Whether whoever reads stderr is told that a call waits for a person.
    pub(crate) notices: bool,
    /// One budget for a run, whatever folders are opened one after the other, and however often a
    /// session takes over from another.
    pub(crate) counted: Counted,
    pub(crate) say: Say,
}

/// What a client sees.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    /// One server as it is.
    Server(ServerId),
    /// Whatever server the folder does not declare.
    Undeclared,
    /// The servers of the toolset as one, with `<server>__<tool>` names.
    All,
    /// Three tools that find, describe and call the tools of the toolset.
    Compact,
}

/// Waits until this is true, or whoever could say so is gone.
async fn told(of: &mut watch::Receiver<bool>) {
    let _ = of.wait_for(|told| *told).await;
}
