//! The backend: what is asked of it, and what it says by itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use ringfence_mcp::{
    Answer, Asker, Backend, Boxed, Client, HeaderParam, Listening, RpcError, Wanted, code,
};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::{prompts, resources, tools};

/// A change that listeners hear of.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resource(String),
}

/// Which revisions it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    All,
    /// Those that begin with a handshake.
    Handshake,
    /// 2026-07-28.
    Stateless,
}

impl Speaks {
    /// Whether a request is one of a revision that it does not speak.
    fn refuses(self, asker: &Asker) -> bool {
        match self {
            Self::All => false,
            Self::Handshake => asker.revision.is_stateless(),
            Self::Stateless => !asker.revision.is_stateless(),
        }
    }
}

/// What a session has asked for.
#[derive(Default)]
struct Session {
    uris: BTreeSet<String>,
}

pub(crate) struct Fixture {
    pub(crate) changes: broadcast::Sender<Change>,
    speaks: Speaks,
    sessions: Arc<Mutex<HashMap<String, Session>>>,
}

impl Fixture {
    pub(crate) fn new(speaks: Speaks) -> Self {
        Self { changes: broadcast::channel(64).0, speaks, sessions: Arc::default() }
    }

    fn session<T>(&self, asker: &Asker, with: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let name = asker.session.as_deref()?;
        Some(with(self.sessions.lock().unwrap().entry(name.to_owned()).or_default()))
    }
}

fn hello() -> Value {
    json!({
        "capabilities": {
            "completions": {},
            "logging": {},
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "tools": { "listChanged": true },
        },
        "serverInfo": { "name": "ringfence-conformance-server", "version": "1.0.0" },
        "instructions": "A server that answers what the conformance suites ask.",
    })
}

impl Backend for Fixture {
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        let params = params.unwrap_or_else(|| json!({}));
        Box::pin(async move {
            if self.speaks.refuses(asker) {
                let words = "this server does not speak this revision";
                return Err(RpcError::new(code::METHOD_NOT_FOUND, words));
            }
            match method {
                "initialize" | "server/discover" => Ok(hello()),
                "tools/list" => Ok(json!({ "tools": tools::list() })),
                "tools/call" => tools::call(self, client.as_ref(), &params).await,
                "resources/list" => Ok(json!({ "resources": resources::list() })),
                "resources/templates/list" => {
                    Ok(json!({ "resourceTemplates": resources::templates() }))
                }
                "resources/read" => resources::read(&params),
                "resources/subscribe" => {
                    let uri = params["uri"].as_str().unwrap_or_default().to_owned();
                    self.session(asker, |session| session.uris.insert(uri));
                    Ok(json!({}))
                }
                "resources/unsubscribe" => {
                    let uri = params["uri"].as_str().unwrap_or_default();
                    self.session(asker, |session| session.uris.remove(uri));
                    Ok(json!({}))
                }
                "prompts/list" => Ok(json!({ "prompts": prompts::list() })),
                "prompts/get" => prompts::get(client.as_ref(), &params).await,
                "completion/complete" => {
                    let typed = params["argument"]["value"].as_str().unwrap_or_default();
                    let known = ["paris", "park", "party", "test"];
                    let values: Vec<_> = known.iter().filter(|v| v.starts_with(typed)).collect();
                    let total = values.len();
                    Ok(json!({
                        "completion": { "values": values, "total": total, "hasMore": false },
                    }))
                }
                "logging/setLevel" => Ok(json!({})),
                _ => {
                    let words = format!("{method} is not a method of this server");
                    Err(RpcError::new(code::METHOD_NOT_FOUND, words))
                }
            }
        })
    }

    fn listen<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        wanted: Wanted,
    ) -> Boxed<'a, Result<Listening, RpcError>> {
        let mut changes = self.changes.subscribe();
        let (client, sessions) = (Arc::clone(client), Arc::clone(&self.sessions));
        let (session, granted) = (asker.session.clone(), Wanted { rest: false, ..wanted.clone() });
        let passing = Box::pin(async move {
            loop {
                let change = match changes.recv().await {
                    Ok(change) => change,
                    Err(broadcast::error::RecvError::Lagged(_)) => continue,
                    Err(broadcast::error::RecvError::Closed) => return,
                };
                match change {
                    Change::Tools if wanted.tools => {
                        client.notify("notifications/tools/list_changed", None).await;
                    }
                    Change::Prompts if wanted.prompts => {
                        client.notify("notifications/prompts/list_changed", None).await;
                    }
                    Change::Resource(uri) => {
                        let subscribed = session.as_deref().is_some_and(|session| {
                            let sessions = sessions.lock().unwrap();
                            sessions.get(session).is_some_and(|s| s.uris.contains(&uri))
                        });
                        if subscribed || wanted.uris.contains(&uri) {
                            let params = json!({ "uri": uri });
                            client.notify("notifications/resources/updated", Some(params)).await;
                        }
                    }
                    _ => {}
                }
            }
        });
        Box::pin(std::future::ready(Ok(Listening { granted, passing })))
    }

    fn header_params<'a>(
        &'a self,
        _asker: &'a Asker,
        tool: &'a str,
    ) -> Option<Boxed<'a, Vec<HeaderParam>>> {
        let tools = tools::list();
        let found = tools.iter().find(|listed| listed["name"] == tool)?;
        let params = HeaderParam::of_schema(&found["inputSchema"]);
        Some(Box::pin(std::future::ready(params)))
    }

    fn ended(&self, session: &str) {
        self.sessions.lock().unwrap().remove(session);
    }
}
