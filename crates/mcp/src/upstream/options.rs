//! How a server is reached, and how much it may send.

use std::sync::Arc;
use std::time::Duration;

use crate::{Boxed, Revision, Share};

/// Bounds on what a server may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// Bytes of one message.
    pub message: usize,
    /// Lines over stdio that are not messages, before the server is given up.
    pub junk: usize,
    /// JSON values of one message: each takes some 70 bytes of memory, however short.
    pub values: usize,
}

impl Default for UpstreamLimits {
    /// 16 MiB, 1,000 lines, 250,000 values.
    fn default() -> Self {
        Self { message: 16 * 1024 * 1024, junk: 1000, values: 250_000 }
    }
}

/// How a server is reached over HTTP.
#[derive(Clone)]
pub struct HttpOptions {
    /// Added to each request. Values are secrets: they are never shown.
    pub headers: Vec<(String, String)>,
    /// For a connection to stand. Default 10 s.
    pub connect_timeout: Duration,
    /// Certificates (DER) trusted beside the machine's.
    pub extra_roots: Vec<Vec<u8>>,
    /// Where `Authorization` comes from, when it is not among the headers.
    pub authorize: Option<Arc<dyn Authorize>>,
    /// The revision to try first. One with a handshake is named in it; without a preference the
    /// stateless one is tried first.
    pub prefer: Option<Revision>,
    /// What it may take of the memory for replies.
    pub replies: Share,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            extra_roots: Vec::new(),
            authorize: None,
            prefer: None,
            replies: Share::default(),
        }
    }
}

impl std::fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpOptions").field("headers", &names).finish_non_exhaustive()
    }
}

/// Has the credentials of one HTTP server beside its declared headers.
pub trait Authorize: Send + Sync + 'static {
    /// The value of `Authorization` for the next request, if there is one. A secret.
    ///
    /// # Errors
    /// In words, for the person at the machine: what to do about it.
    fn header(&self) -> Boxed<'_, Result<Option<String>, String>>;

    /// The server answered with 401 or 403 and this `WWW-Authenticate`. True when there are other
    /// credentials now, so that asking again is worth it.
    fn challenged<'a>(&'a self, status: u16, challenge: Option<&'a str>) -> Boxed<'a, bool>;
}

/// How to begin with a server over stdio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// `initialize`: the safe way, since servers older than 2026-07-28 may hang on or die of
    /// anything else.
    Handshake,
    /// `server/discover`: for a server that ended when it was sent `initialize`.
    Stateless,
}
