//! Who answers the requests that a door lets in, and the client behind a request that is under way.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::{HeaderParam, Held, Revision, RpcError, code};

/// What a backend says to a request: the JSON-RPC `result`, or an error.
pub type Answer = Result<Value, RpcError>;

/// A future on the heap.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who asks, as the door knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The connection or session, on the revisions that have them. `None` where each request stands
    /// alone.
    pub session: Option<Arc<str>>,
    /// The revision that the request is in.
    pub revision: Revision,
    /// Whom the door knows by a bearer token. `None` on a door that asks for none.
    pub principal: Option<Arc<str>>,
}

/// Who is behind a [`Client`], as far as its door knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Party {
    /// The gateway itself, which asks for things of its own.
    Gateway,
    /// Whoever came through a door.
    Caller {
        /// As in [`Asker::principal`].
        principal: Option<Arc<str>>,
        /// As in [`Asker::session`].
        session: Option<Arc<str>>,
    },
    /// Not known: the same as no other client.
    Unknown,
}

impl From<&Asker> for Party {
    fn from(asker: &Asker) -> Self {
        Self::Caller { principal: asker.principal.clone(), session: asker.session.clone() }
    }
}

/// The client behind a request that is under way, or behind a stream that it listens to.
///
/// On the revisions with a handshake a question is a request on the client's stream; on the
/// stateless one it ends the exchange with `input_required`, and the client's retry carries the
/// answer on: the door keeps the two apart, a backend does not see which it was.
pub trait Client: Send + Sync + 'static {
    /// What it declared that it can do: an object with `sampling`, `elicitation`, `roots`, ….
    fn capabilities(&self) -> &Value;

    /// Whose it is: nobody else is asked what a server asks about its requests.
    fn party(&self) -> Party {
        Party::Unknown
    }

    /// Keeps what stands for the memory of a reply until this client has its answer.
    fn keep(&self, held: Held) {
        drop(held);
    }

    /// Passes on a notification that belongs to this request or stream. Waits while the client reads
    /// slowly; does nothing when it is gone.
    fn notify<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, ()>;

    /// Asks it (`sampling/createMessage`, `elicitation/create`, `roots/list`) and waits for its
    /// answer, for as long as a person may need.
    ///
    /// # Errors
    /// [`code::METHOD_NOT_FOUND`] when it has not declared that it can answer this (on the stateless
    /// revision [`code::MISSING_CAPABILITY`]), [`code::CANCELLED`] when it went away; or its own
    /// error.
    fn ask<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, Answer>;

    /// Asks it under a key that the asking server chose. On the stateless revision the client sees
    /// the question under this key, unless it is taken or longer than 128 bytes; elsewhere a key
    /// means nothing.
    ///
    /// # Errors
    /// As [`Client::ask`].
    fn ask_as<'a>(
        &'a self,
        key: &'a str,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        let _ = key;
        self.ask(method, params)
    }
}

/// Nobody: is told nothing and answers nothing.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Client for Nobody {
    fn capabilities(&self) -> &Value {
        static NONE: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));
        &NONE
    }

    fn party(&self) -> Party {
        Party::Gateway
    }

    fn notify<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn ask<'a>(&'a self, method: &'a str, _params: Option<Value>) -> Boxed<'a, Answer> {
        let words = format!("{} is not offered", method.escape_debug());
        Box::pin(std::future::ready(Err(RpcError::new(code::METHOD_NOT_FOUND, words))))
    }
}

/// What a client wants to hear of outside its requests, or what of that it is granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `notifications/tools/list_changed`
    pub tools: bool,
    /// `notifications/prompts/list_changed`
    pub prompts: bool,
    /// `notifications/resources/list_changed`
    pub resources: bool,
    /// `notifications/resources/updated` of these.
    pub uris: BTreeSet<String>,
    /// Whatever else a server of a revision with a handshake says or asks outside a request: log
    /// messages, `roots/list`, ….
    pub rest: bool,
}

/// A stream that a client listens to.
pub struct Listening {
    /// What it will hear of.
    pub granted: Wanted,
    /// Passes notifications on to the client while it is polled; done when there will be no more.
    pub passing: Boxed<'static, ()>,
}

/// Answers requests. Values are the messages' own: nothing is dropped or added on the way.
///
/// A door answers `ping` itself, and asks for `initialize` and `server/discover` with the same
/// expectation: an object with `capabilities`, `serverInfo` and, if there are any, `instructions`.
/// The revision in the reply is the door's own. So are `subscriptions/listen`, which is a
/// [`Backend::listen`], and the round trips of a request that needs input.
pub trait Backend: Send + Sync + 'static {
    /// Answers one request. When the asker goes away or cancels, the future is dropped.
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer>;

    /// Takes one notification. Handshake and cancellation notifications end at the door.
    fn notification<'a>(
        &'a self,
        asker: &'a Asker,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, ()> {
        let _ = (asker, method, params);
        Box::pin(std::future::ready(()))
    }

    /// Begins a stream: `subscriptions/listen`, the GET stream of a session, a stdio connection
    /// after its handshake. As long as the stream lives, so does `client`.
    ///
    /// # Errors
    /// What the client is told.
    fn listen<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        wanted: Wanted,
    ) -> Boxed<'a, Result<Listening, RpcError>> {
        let _ = (asker, client, wanted);
        let passing = Box::pin(std::future::pending());
        Box::pin(std::future::ready(Ok(Listening { granted: Wanted::default(), passing })))
    }

    /// The headers that repeat arguments of a tool (`x-mcp-header` in its input schema), for the
    /// door to compare. `None` when the backend does not know the tool's schema: then nothing is
    /// compared.
    fn header_params<'a>(
        &'a self,
        asker: &'a Asker,
        tool: &'a str,
    ) -> Option<Boxed<'a, Vec<HeaderParam>>> {
        let _ = (asker, tool);
        None
    }

    /// Nothing carries a session any more, and its client has not come back for a while: what ends
    /// with a connection ends. It may come back all the same.
    fn away(&self, session: &str) {
        let _ = session;
    }

    /// A session or connection has ended: whatever was kept for it can go. Told again when a
    /// request of it ends later.
    fn ended(&self, session: &str) {
        let _ = session;
    }
}
