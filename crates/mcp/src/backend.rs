//! Who answers the requests that a door lets in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

use crate::{Revision, RpcError};

/// What a backend says to a request: the JSON-RPC `result`, or an error.
pub type Answer = Result<Value, RpcError>;

/// Who asks, as the door knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The session, on the revisions that have sessions over HTTP.
    pub session: Option<Arc<str>>,
    /// The revision that the request is in.
    pub revision: Revision,
}

/// Answers requests. Values are the messages' own: nothing is dropped or added on the way.
///
/// A door answers `ping` itself, and asks for `initialize` and `server/discover` with the same
/// expectation: an object with `capabilities`, `serverInfo` and, if there are any, `instructions`.
/// The revision in the reply is the door's own.
pub trait Backend: Send + Sync + 'static {
    /// Answers one request. When the asker goes away or cancels, the future is dropped.
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        method: &'a str,
        params: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

    /// Takes one notification. Handshake and cancellation notifications end at the door.
    fn notification<'a>(
        &'a self,
        asker: &'a Asker,
        method: &'a str,
        params: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let _ = (asker, method, params);
        Box::pin(std::future::ready(()))
    }
}
