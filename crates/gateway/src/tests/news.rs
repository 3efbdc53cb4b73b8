//! A server whose resources change when a test says so, in the revisions of either era, and clients that
//! write down what they hear.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_bundle::{Server, ServerId};
use ringfence_mcp::{
    Answer, Asker, Backend, Boxed, Client, Listening, Party, Revision, RpcError, Wanted, code,
    serve_stdio,
};
use ringfence_policy::{Decision, Layer};
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, watch};

use super::world::{World, id, stdio};
use crate::seams::Judge;
use crate::{Caller, Declared, Launched, Launcher, Waits, aggregated, transparent};

pub(super) const UPDATED: &str = "notifications/resources/updated";
pub(super) const TOOLS: &str = "notifications/tools/list_changed";

#[derive(Debug, Clone)]
enum Change {
    Resource(String),
    /// `true`: it only asks whether a stream is there.
    Tools(bool),
    /// All streams end.
    End,
}

/// The server. `stateless`: it speaks 2026-07-28 alone, or else what has a handshake.
pub(super) struct News {
    stateless: bool,
    changes: broadcast::Sender<Change>,
    sessions: Mutex<HashMap<Arc<str>, BTreeSet<String>>>,
    /// How often each resource is followed at the moment, in whichever way.
    pub(super) followed: watch::Sender<BTreeMap<String, usize>>,
    /// Requests that came, with their parameters.
    pub(super) seen: Mutex<Vec<(String, Value)>>,
    wire: Mutex<Option<tokio::task::AbortHandle>>,
}

impl News {
    fn new(stateless: bool) -> Self {
        Self {
            stateless,
            changes: broadcast::channel(64).0,
            sessions: Mutex::default(),
            followed: watch::channel(BTreeMap::new()).0,
            seen: Mutex::default(),
            wire: Mutex::default(),
        }
    }

    /// A resource has changed; without one, the tools have.
    pub(super) fn change(&self, uri: Option<&str>) {
        let change = uri.map_or(Change::Tools(false), |uri| Change::Resource(uri.to_owned()));
        let _ = self.changes.send(change);
    }

    /// It ends all of its streams, and stands.
    pub(super) fn hang_up(&self) {
        let _ = self.changes.send(Change::End);
    }

    fn count(&self, uris: impl IntoIterator<Item = String>, more: bool) {
        self.followed.send_modify(|followed| {
            for uri in uris {
                let count = followed.entry(uri).or_default();
                *count = if more { *count + 1 } else { *count - 1 };
            }
            followed.retain(|_, count| *count > 0);
        });
    }

    /// Waits until exactly these are followed, by however many.
    pub(super) async fn until(&self, uris: &[&str]) {
        let mut followed = self.followed.subscribe();
        let all = |followed: &BTreeMap<String, usize>| followed.keys().eq(uris.iter());
        let wait = followed.wait_for(all);
        let waited = tokio::time::timeout(Duration::from_secs(10), wait).await;
        let said = waited.map(drop);
        assert!(said.is_ok(), "{uris:?}: {:?}", self.followed.borrow());
    }

    pub(super) fn seen(&self, method: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(m, _)| m == method).map(|(_, params)| params.clone()).collect()
    }

    /// As a server that dies.
    pub(super) fn kill(&self) {
        self.wire.lock().unwrap().take().expect("it lives").abort();
    }
}

/// What is counted as long as a stream lives.
struct Counted {
    news: Arc<News>,
    uris: BTreeSet<String>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.news.count(std::mem::take(&mut self.uris), false);
    }
}

/// `News`, as a backend of its own so that it can count.
struct Shared(Arc<News>);

impl Backend for Shared {
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        let params = params.unwrap_or_default();
        let (news, uri) = (&self.0, params["uri"].as_str().unwrap_or_default().to_owned());
        news.seen.lock().unwrap().push((method.to_owned(), params.clone()));
        let session = asker.session.clone();
        Box::pin(async move {
            if news.stateless != asker.revision.is_stateless() {
                return Err(RpcError::new(code::METHOD_NOT_FOUND, "not of this revision"));
            }
            match method {
                "initialize" | "server/discover" => Ok(json!({
                    "capabilities": {
                        "tools": { "listChanged": true }, "logging": {},
                        "resources": { "subscribe": true },
                    },
                    "serverInfo": { "name": "news", "version": "1" },
                })),
                "tools/list" => {
                    Ok(json!({ "tools": [{ "name": "two", "inputSchema": { "type": "object" } }] }))
                }
                "tools/call" => {
                    let form = json!({ "message": "?", "requestedSchema": {
                        "type": "object", "properties": {},
                    } });
                    let ask = |key| client.ask_as(key, "elicitation/create", Some(form.clone()));
                    let (one, two) = tokio::join!(ask("one"), ask("two"));
                    Ok(json!({ "content": [], "said": [one?, two?] }))
                }
                "resources/subscribe" if uri.starts_with("no:") => {
                    Err(RpcError::new(-32002, "no such resource"))
                }
                "resources/subscribe" => {
                    let mut sessions = news.sessions.lock().unwrap();
                    if sessions.entry(session.unwrap()).or_default().insert(uri.clone()) {
                        news.count([uri], true);
                    }
                    Ok(json!({}))
                }
                "resources/unsubscribe" => {
                    let mut sessions = news.sessions.lock().unwrap();
                    if sessions.entry(session.unwrap()).or_default().remove(&uri) {
                        news.count([uri], false);
                    }
                    Ok(json!({}))
                }
                _ => Ok(json!({})),
            }
        })
    }

    fn listen<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        mut wanted: Wanted,
    ) -> Boxed<'a, Result<Listening, RpcError>> {
        let news = Arc::clone(&self.0);
        let (mut changes, client) = (news.changes.subscribe(), Arc::clone(client));
        wanted.uris.retain(|uri| !uri.starts_with("no:"));
        let granted = Wanted { rest: false, ..wanted.clone() };
        let counted = Counted { news: Arc::clone(&news), uris: wanted.uris.clone() };
        news.count(wanted.uris.clone(), true);
        let session = asker.session.clone();
        let passing = Box::pin(async move {
            let _counted = counted;
            while let Ok(change) = changes.recv().await {
                let uri = match change {
                    Change::Resource(uri) => uri,
                    Change::End => return,
                    Change::Tools(trial) => {
                        if wanted.tools {
                            let params = json!({ "_meta": { "trial": trial } });
                            client.notify(TOOLS, Some(params)).await;
                        }
                        continue;
                    }
                };
                let of_session = session.as_ref().is_some_and(|session| {
                    let sessions = news.sessions.lock().unwrap();
                    sessions.get(session).is_some_and(|uris| uris.contains(&uri))
                });
                if of_session || wanted.uris.contains(&uri) {
                    client.notify(UPDATED, Some(json!({ "uri": uri }))).await;
                }
            }
        });
        Box::pin(std::future::ready(Ok(Listening { granted, passing })))
    }

    fn ended(&self, session: &str) {
        let uris = self.0.sessions.lock().unwrap().remove(session).unwrap_or_default();
        self.0.count(uris, false);
    }
}

/// Launches it over a pipe.
struct Pipe(Arc<News>);

impl Launcher for Pipe {
    fn launch<'a>(
        &'a self,
        _server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>> {
        Box::pin(async move {
            let (ours, mut near) = tokio::io::duplex(64 * 1024);
            let (mut far, theirs) = tokio::io::duplex(64 * 1024);
            let (read, write) = tokio::io::split(theirs);
            tokio::spawn(serve_stdio(Arc::new(Shared(Arc::clone(&self.0))), read, write));
            let copy = async move { tokio::io::copy_bidirectional(&mut near, &mut far).await };
            *self.0.wire.lock().unwrap() = Some(tokio::spawn(copy).abort_handle());
            let (stdout, stdin) = tokio::io::split(ours);
            Ok(Launched {
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
                secrets: Vec::new(),
                guard: Box::new(()),
                fate: None,
            })
        })
    }
}

/// Allows the methods that the server lists.
struct Listed(Vec<String>);

impl Judge for Listed {
    fn tool(&self, _server: &ServerId, _tool: &str) -> Decision {
        Decision { allowed: true, layer: Layer::Bundle, rule: "tools".into() }
    }
    fn method(&self, _server: &ServerId, method: &str) -> Decision {
        let allowed = self.0.iter().any(|listed| listed == method);
        Decision { allowed, layer: Layer::Declared, rule: "methods".into() }
    }
    fn approval(&self, _server: &ServerId, _tool: &str, _arguments: &Value) -> Option<String> {
        None
    }
    fn digest(&self) -> String {
        "sha256:listed".into()
    }
    fn may_proceed(&self) -> bool {
        true
    }
}

/// Everything that these tests ask for.
pub(super) const ALL: [&str; 4] =
    ["resources/subscribe", "resources/unsubscribe", "resources/read", "logging/setLevel"];

/// A gateway in front of it.
pub(super) struct Paper {
    pub(super) news: Arc<News>,
    pub(super) world: World,
    door: Arc<dyn Backend>,
}

impl Paper {
    /// With these methods listed; `merged`: at the door of many servers.
    pub(super) fn new(stateless: bool, methods: &[&str], merged: bool) -> Self {
        let news = Arc::new(News::new(stateless));
        let methods: Vec<_> = methods.iter().map(|&method| method.to_owned()).collect();
        let server =
            Server { transport: stdio(), tools: None, methods: methods.clone(), pricing: None };
        let servers = BTreeMap::from([(id("s"), server)]);
        let declared = Declared { servers, toolsets: BTreeMap::new(), pins: Vec::new() };
        let World { journal, tools, pipes, .. } = World::new();
        let judge = Arc::new(Listed(methods));
        let pipe = Arc::new(Pipe(Arc::clone(&news)));
        let launched = (journal, tools, pipes);
        let world = World::assembled(declared, judge, Waits::default(), launched, pipe);
        let door = if merged {
            let selection = world.gateway.selection(None).unwrap();
            aggregated(&world.gateway, Caller::agent(), selection)
        } else {
            transparent(&world.gateway, Caller::agent(), id("s"))
        };
        Self { news, world, door }
    }

    /// A client of this token, in this session, or in none and of 2026-07-28.
    pub(super) fn reader(&self, token: &str, session: Option<&str>) -> Reader {
        let revision = if session.is_some() { Revision::HANDSHAKE } else { Revision::STATELESS };
        let session = session.map(Into::into);
        let asker = Asker { session, revision, principal: Some(token.into()) };
        let (heard, hears) = mpsc::unbounded_channel();
        let client = Arc::new(Ear { party: (&asker).into(), heard });
        let (news, door) = (Arc::clone(&self.news), Arc::clone(&self.door));
        Reader { news, door, asker, client, hears, stream: None, before: VecDeque::new() }
    }
}

struct Ear {
    party: Party,
    heard: mpsc::UnboundedSender<(String, Value)>,
}

impl Client for Ear {
    fn capabilities(&self) -> &Value {
        &Value::Null
    }
    fn party(&self) -> Party {
        self.party.clone()
    }
    fn notify<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, ()> {
        let _ = self.heard.send((method.to_owned(), params.unwrap_or_default()));
        Box::pin(std::future::ready(()))
    }
    fn ask<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, Answer> {
        Box::pin(std::future::ready(Err(RpcError::new(code::METHOD_NOT_FOUND, "no"))))
    }
}

/// A client at the door.
pub(super) struct Reader {
    news: Arc<News>,
    door: Arc<dyn Backend>,
    pub(super) asker: Asker,
    client: Arc<Ear>,
    hears: mpsc::UnboundedReceiver<(String, Value)>,
    stream: Option<tokio::task::JoinHandle<()>>,
    /// Heard before it was known that the stream is there.
    before: VecDeque<(String, Value)>,
}

/// Whether it only asked whether a stream is there.
fn trial((_, params): &(String, Value)) -> bool {
    params["_meta"]["trial"] == true
}

impl Reader {
    pub(super) async fn ask(&self, method: &str, params: Value) -> Answer {
        let client = Arc::clone(&self.client) as Arc<dyn Client>;
        self.door.request(&self.asker, &client, method, Some(params)).await
    }

    pub(super) async fn follow(&self, uri: &str) -> Answer {
        self.ask("resources/subscribe", json!({ "uri": uri })).await
    }

    pub(super) async fn leave(&self, uri: &str) -> Answer {
        self.ask("resources/unsubscribe", json!({ "uri": uri })).await
    }

    /// Opens its stream: all of a session's, or these resources of a subscription.
    pub(super) async fn listen(&mut self, uris: &[&str]) -> Wanted {
        let client = Arc::clone(&self.client) as Arc<dyn Client>;
        let rest = self.asker.session.is_some();
        let uris = uris.iter().map(|&uri| uri.to_owned()).collect();
        let wanted = Wanted { tools: true, prompts: rest, resources: rest, uris, rest };
        let listening = self.door.listen(&self.asker, &client, wanted).await.unwrap();
        self.stream = Some(tokio::spawn(listening.passing));
        // A door of many begins by itself; what comes before it has is lost.
        for _ in 0..200 {
            let _ = self.news.changes.send(Change::Tools(true));
            let heard = tokio::time::timeout(Duration::from_millis(50), self.hears.recv()).await;
            match heard {
                Ok(Some(heard)) if trial(&heard) => return listening.granted,
                Ok(Some(heard)) => self.before.push_back(heard),
                Ok(None) => panic!("nobody speaks to it any more"),
                Err(_) => {}
            }
        }
        panic!("its stream does not begin");
    }

    pub(super) fn close(&mut self) {
        self.stream.take().expect("it has one").abort();
    }

    /// Its session ends.
    pub(super) fn end(&self) {
        self.door.ended(self.asker.session.as_deref().unwrap());
    }

    /// What it hears next: the address of a resource, or `tools`.
    pub(super) async fn next(&mut self) -> String {
        let hears = async {
            loop {
                if let Some(heard) = self.before.pop_front() {
                    return heard;
                }
                let heard = self.hears.recv().await.unwrap();
                if !trial(&heard) {
                    return heard;
                }
            }
        };
        let next = tokio::time::timeout(Duration::from_secs(10), hears).await;
        let (method, params) = next.expect("it hears something");
        match method.as_str() {
            TOOLS => "tools".to_owned(),
            UPDATED => params["uri"].as_str().unwrap().to_owned(),
            other => panic!("{other} {params}"),
        }
    }

    /// All that it has heard, without waiting.
    pub(super) fn heard(&mut self) -> Vec<(String, Value)> {
        let more = std::iter::from_fn(|| self.hears.try_recv().ok());
        let all = self.before.drain(..).chain(more);
        all.filter(|heard| !trial(heard)).collect()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.abort();
        }
    }
}
