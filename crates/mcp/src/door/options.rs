//! What a door is told about the place it stands in.

use std::sync::Arc;
use std::time::Duration;

use super::room::Room;
use crate::strict::Limits;

/// Knows whose a bearer token is. Compare in constant time.
pub trait Bearer: Send + Sync + 'static {
    /// The principal of this token; `None` when it is nobody's.
    fn principal(&self, token: &str) -> Option<Arc<str>>;
}

impl<F: Fn(&str) -> Option<Arc<str>> + Send + Sync + 'static> Bearer for F {
    fn principal(&self, token: &str) -> Option<Arc<str>> {
        self(token)
    }
}

/// How a door is reached and by whom. Clones share the room for requests in memory, so that several
/// doors of one listener take no more of it than one. Each principal has a share of that room.
#[derive(Clone)]
pub struct DoorOptions {
    /// Bounds on a request.
    pub limits: Limits,
    /// What `Host` may say: lower case, with the port unless it is the scheme's own.
    pub hosts: Vec<String>,
    /// What `Origin` may say: lower case, `scheme://host[:port]`. A request without one is let in:
    /// browsers send it.
    pub origins: Vec<String>,
    /// Who may come in. `None` lets everyone in, as the same principal.
    pub bearer: Option<Arc<dyn Bearer>>,
    /// How long a broken stream of a session waits for its client before what it carries is
    /// cancelled. Default 30 s.
    pub resume_wait: Duration,
    pub(super) room: Arc<Room>,
}

impl DoorOptions {
    /// For a listener on loopback at this port: it answers to that address alone, and asks for no
    /// token.
    #[must_use]
    pub fn loopback(port: u16) -> Self {
        Self::at(["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}")).into())
    }

    /// For a listener that only one peer reaches, who knows it by these names: `host:port`. It asks
    /// for no token.
    #[must_use]
    pub fn at(hosts: Vec<String>) -> Self {
        Self {
            limits: Limits::default(),
            origins: hosts.iter().map(|host| format!("http://{host}")).collect(),
            hosts,
            bearer: None,
            resume_wait: Duration::from_secs(30),
            room: Arc::default(),
        }
    }
}

impl std::fmt::Debug for DoorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DoorOptions")
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .field("bearer", &self.bearer.is_some())
            .finish_non_exhaustive()
    }
}
