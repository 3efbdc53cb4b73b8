//! What the doors of many servers have in common: a selection for each connection, tools of the
//! gateway's own, and a stream that says when the list is another.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_bundle::ServerId;
use ringfence_mcp::{Asker, Client, Listening, RpcError, Wanted, code};
use ringfence_policy::Layer;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::leases::{Lease, Leases, TASK};
use super::levels::Levels;
use super::{hello, own};
use crate::asked::PROGRESS;
use crate::call::JudgedRequest;
use crate::error::Error;
use crate::{Caller, Gateway, Selection};

/// How a client says how much it wants to be logged.
pub(super) const LEVEL: &str = "logging/setLevel";
/// How long a call waits for a server to take it.
const PATIENCE: Duration = Duration::from_secs(5);
pub(super) const LIST_CHANGED: &str = "notifications/tools/list_changed";

pub(super) struct Many {
    pub(super) gateway: Arc<Gateway>,
    caller: Caller,
    selection: Selection,
    leases: Leases,
    pub(super) levels: Levels,
    /// Of connections that listen: told when their selection is another.
    streams: Mutex<HashMap<Arc<str>, watch::Sender<u64>>>,
    /// Connections that lost their lease while they were away.
    lost: Mutex<HashSet<Arc<str>>>,
}

/// Connections that are remembered so.
const LOST: usize = 1024;

/// Unique within the process, as the table of leases is.
static LEASES: AtomicU64 = AtomicU64::new(1);

impl Many {
    pub(super) fn new(gateway: &Arc<Gateway>, caller: Caller, selection: Selection) -> Self {
        let leases = Leases::new(gateway.leases.clone());
        let gateway = Arc::clone(gateway);
        Self {
            gateway,
            caller,
            selection,
            leases,
            levels: Levels::default(),
            streams: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    /// Who asks, for the record.
    pub(super) fn caller(&self, asker: &Asker) -> Caller {
        self.caller.at(asker)
    }

    /// What this connection has selected.
    pub(super) fn selection(&self, asker: &Asker) -> Selection {
        let leased = self.leases.selection(asker.session.as_ref());
        leased.unwrap_or_else(|| self.selection.clone())
    }

    /// Whether toolsets can be leased: by a connection, which a lease can end with.
    pub(super) fn leasable(&self, asker: &Asker) -> bool {
        asker.session.is_some() && !self.gateway.toolsets().is_empty()
    }

    /// The methods that a server's declaration lists, of those selected.
    pub(super) fn lists(&self, selection: &Selection) -> Vec<(ServerId, &[String])> {
        let servers = selection.servers().iter();
        servers.map(|server| (server.clone(), self.gateway.methods(server))).collect()
    }

    /// The handshake. Contacts nobody.
    pub(super) async fn hello(
        &self,
        asker: &Asker,
        method: &str,
        ours: &str,
        carries: bool,
    ) -> Result<Value, RpcError> {
        let request = JudgedRequest::from_door(method, None);
        self.judged(asker, &request, "the handshake passes").await?;
        let selection = self.selection(asker);
        let mut said = Vec::new();
        for server in selection.servers() {
            if let Some(words) = self.gateway.instructions(server) {
                said.push((server, words));
            }
        }
        let words = hello::words(ours, said.into_iter());
        let lists = self.lists(&selection);
        Ok(hello::of_many(lists.iter().map(|(_, methods)| *methods), carries, words))
    }

    /// Decides on what the gateway answers itself, and records it.
    pub(super) async fn judged(
        &self,
        asker: &Asker,
        request: &JudgedRequest,
        rule: &str,
    ) -> Result<(), RpcError> {
        let judged = self.gateway.own(&self.caller(asker), request, Ok(rule)).await;
        judged.map_err(|error| error.to_rpc())
    }

    /// Refuses what no server is asked for, and records it.
    pub(super) async fn refused(
        &self,
        asker: &Asker,
        request: &JudgedRequest,
        (check, layer, rule, next): (&str, Layer, &str, &str),
    ) -> RpcError {
        let caller = self.caller(asker);
        match self.gateway.own(&caller, request, Err((check, layer, rule, next))).await {
            Err(error) => error.to_rpc(),
            Ok(()) => RpcError::new(code::INTERNAL, "a refusal was not one"),
        }
    }

    /// The server of this name, if this connection has it.
    pub(super) async fn member(
        &self,
        asker: &Asker,
        request: &JudgedRequest,
        server: Option<ServerId>,
        what: &str,
    ) -> Result<ServerId, RpcError> {
        let selection = self.selection(asker);
        match server {
            Some(server) if selection.has(&server) => Ok(server),
            server => {
                let shown: String = what.escape_debug().take(80).collect();
                let rule = match (server, selection.toolset()) {
                    (Some(server), Some(toolset)) => {
                        format!("{shown}: server {server} is not in toolset {toolset}")
                    }
                    (Some(server), None) => format!("{shown}: no server {server} is declared"),
                    (None, _) => format!("{shown}: the name has no server"),
                };
                let next = "use a name that a list of this door has";
                let refusal = ("toolset", Layer::Declared, rule.as_str(), next);
                Err(self.refused(asker, request, refusal).await)
            }
        }
    }

    /// Calls a tool of the gateway's own that every door of many has: those about leases.
    pub(super) async fn lease_tool(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        request: &JudgedRequest,
        name: &str,
    ) -> Result<Value, RpcError> {
        let Some(session) = asker.session.as_ref().filter(|_| self.leasable(asker)) else {
            let rule = format!(
                "{name}: a lease ends with its connection, and a request of this revision has none"
            );
            let next = "select a toolset where the gateway is started, or use an earlier revision";
            return Err(self.refused(asker, request, ("lease", Layer::Builtin, &rule, next)).await);
        };
        self.judged(asker, request, "a tool of the gateway's own").await?;
        let told = match name {
            own::TOOLSETS => Ok(own::toolsets(self.gateway.toolsets(), &self.selection(asker))),
            own::LEASE => self.lease(asker, session, client, request.arguments()).await,
            _ => self.release(session, client).await,
        };
        Ok(told.map_or_else(|words| own::failed(&words), |value| own::answer(&value)))
    }

    async fn lease(
        &self,
        asker: &Asker,
        session: &Arc<str>,
        client: &Arc<dyn Client>,
        arguments: Option<&Value>,
    ) -> Result<Value, String> {
        let text = |key: &str| arguments.and_then(|given| given.get(key)).and_then(Value::as_str);
        let name =
            text("toolset").ok_or("\"toolset\" is missing: name one of ringfence__toolsets")?;
        let task = text("task").filter(|task| !task.trim().is_empty());
        let task = task.ok_or("\"task\" is missing: say what it is for")?;
        let selection = self.gateway.selection(Some(name)).map_err(|error| error.to_string())?;
        let toolset = selection.toolset().cloned().ok_or("there is no such toolset")?;
        let lease = Lease {
            id: LEASES.fetch_add(1, Ordering::Relaxed),
            toolset,
            task: task.chars().take(TASK).collect(),
            holder: self.caller(asker).to_string(),
        };
        let servers: Vec<_> = selection.servers().iter().map(ToString::to_string).collect();
        let told = json!({ "toolset": name, "servers": servers, "until": "released, or the connection ends" });
        self.leases.take(session, lease, selection)?;
        self.announce(session, client).await;
        Ok(told)
    }

    async fn release(&self, session: &Arc<str>, client: &Arc<dyn Client>) -> Result<Value, String> {
        if !self.leases.release(session) {
            return Err("this connection has no lease".into());
        }
        self.announce(session, client).await;
        Ok(json!({ "toolset": self.selection.toolset().map(ToString::to_string) }))
    }

    /// The list of this connection is another now. Said on its stream, or beside the answer where it
    /// has none.
    async fn announce(&self, session: &Arc<str>, client: &Arc<dyn Client>) {
        let listens = {
            let streams = self.streams();
            let stream = streams.get(session).filter(|stream| stream.receiver_count() > 0);
            stream.map(|stream| stream.send_modify(|changes| *changes += 1)).is_some()
        };
        if !listens {
            client.notify(LIST_CHANGED, None).await;
        }
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, watch::Sender<u64>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of a connection: what its servers say, named as this door names it, and that its
    /// list is another.
    pub(super) async fn listen(
        self: &Arc<Self>,
        asker: &Asker,
        client: &Arc<dyn Client>,
        wanted: Wanted,
        carries: bool,
    ) -> Result<Listening, RpcError> {
        let many = Arc::clone(self);
        let (asker, client) = (asker.clone(), Arc::clone(client));
        super::merged::listen(many, asker, client, wanted, carries).await
    }

    /// Hears of another selection of a connection.
    pub(super) fn changes(&self, session: Option<&Arc<str>>) -> Option<watch::Receiver<u64>> {
        let mut streams = self.streams();
        // Connections that went away without a word leave nothing behind for long.
        streams.retain(|_, stream| stream.receiver_count() > 0);
        let session = session?;
        Some(streams.entry(Arc::clone(session)).or_insert_with(|| watch::channel(0).0).subscribe())
    }

    /// A lease ends with the connection. Should its client come back, it is told.
    pub(super) fn away(&self, session: &str) {
        if self.leases.release(session) {
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            if lost.len() < LOST {
                lost.insert(session.into());
            }
        }
    }

    /// Whether this connection lost a lease while it was away. Said once.
    pub(super) fn has_lost(&self, session: Option<&Arc<str>>) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        session.is_some_and(|session| lost.remove(session))
    }

    pub(super) fn ended(&self, session: &str) {
        self.leases.release(session);
        self.levels.ended(session);
        self.streams().remove(session);
        self.gateway.left(session);
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
    }

    /// A client's notification: progress goes to the server that asked it, the rest to every selected
    /// one. Nobody waits for an answer; the record says what became of it.
    pub(super) async fn told(&self, asker: &Asker, method: &str, params: Option<Value>) {
        let (caller, party) = (self.caller(asker), asker.into());
        if method != PROGRESS {
            for server in self.selection(asker).servers() {
                let _ = self.gateway.tell(&caller, &party, server, method, params.clone()).await;
            }
            return;
        }
        match self.gateway.upstreams.asked.server(&party, params.as_ref()) {
            Some(server) => {
                let _ = self.gateway.tell(&caller, &party, &server, method, params).await;
            }
            None => {
                let request = JudgedRequest::from_door(method, params);
                let rule = "the progress is about no question that a server asked this client";
                let next = "name the token of the question";
                let refusal = ("methods", Layer::Builtin, rule, next);
                let _ = self.refused(asker, &request, refusal).await;
            }
        }
    }

    /// [`Gateway::call`] for a door.
    pub(super) async fn call(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        server: &ServerId,
        request: JudgedRequest,
    ) -> Result<Value, Error> {
        let caller = self.caller(asker);
        let call = self.gateway.call(&caller, client, server, request);
        // The call may be what starts the server.
        let result = {
            let mut ups = self.gateway.ups();
            let level = async {
                loop {
                    ups.borrow_and_update();
                    self.level(asker, client, server).await;
                    if ups.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                }
            };
            tokio::pin!(call);
            tokio::select! {
                biased;
                result = &mut call => result,
                () = level => call.await,
            }
        };
        self.level(asker, client, server).await;
        result
    }

    /// Tells a server that is up how much this connection wants it to log, unless it was told so.
    pub(super) async fn level(&self, asker: &Asker, client: &Arc<dyn Client>, server: &ServerId) {
        let Some(generation) = self.gateway.is_up(server) else { return };
        let session = asker.session.as_ref();
        let Some(params) = self.levels.untold(session, server, generation) else { return };
        if self.gateway.methods(server).iter().any(|method| method == LEVEL) {
            let request = JudgedRequest::from_door(LEVEL, params);
            let caller = self.caller(asker);
            let told = self.gateway.call(&caller, client, server, request);
            // Whatever it says, it is not asked again; the record has it.
            let _ = tokio::time::timeout(PATIENCE, told).await;
        }
        self.levels.told(session, server, generation);
    }
}
