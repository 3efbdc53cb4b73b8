//! A gateway with a journal in memory, rules that are a list, and a server that does as it is told.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_approval::Approver;
use ringfence_bundle::{Server, ServerId, Template, ToolName, ToolPins, Toolset, Transport};
use ringfence_mcp::{Answer, Asker, Backend, Client, Nobody, RpcError, serve_stdio};
use ringfence_policy::{Decision, Layer};
use ringfence_record::{Event, Outcome};
use ringfence_secrets::Secret;
use ringfence_spend::Purse;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::memory::Memory;
use crate::seams::{Boxed, Filled, Journal, Judge, Scrub, Trust, Vault};
use crate::{
    Caller, Declared, Error, Gateway, JudgedRequest, Launched, Launcher, LeaseBook, Rooms, Stop,
    Waits,
};

pub(super) const SECRET: &str = "s3cret-value";

pub(super) struct Rules;
impl Judge for Rules {
    fn tool(&self, _server: &ServerId, tool: &str) -> Decision {
        let allowed = tool != "forbidden";
        Decision { allowed, layer: Layer::Machine, rule: "machine.toml:3 \"!forbidden\"".into() }
    }
    fn method(&self, _server: &ServerId, method: &str) -> Decision {
        let allowed = method == "resources/read";
        Decision { allowed, layer: Layer::Declared, rule: "methods".into() }
    }
    fn approval(&self, _server: &ServerId, tool: &str, arguments: &Value) -> Option<String> {
        let wanted = tool == "pay" && arguments["amount"] != 1 || arguments["ask"] == true;
        wanted.then(|| format!("[[approvals.require]] {tool}"))
    }
    fn digest(&self) -> String {
        "sha256:rules".into()
    }
    fn may_proceed(&self) -> bool {
        true
    }
}

pub(super) struct Yes(pub(super) AtomicBool);
impl Trust for Yes {
    fn holds(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

pub(super) struct NoVault;
impl Vault for NoVault {
    fn fill<'a>(
        &'a self,
        _server: &'a ServerId,
        template: &'a Template,
    ) -> Boxed<'a, Result<Filled, String>> {
        Box::pin(async move {
            let text = template.render(|_| Ok::<_, String>(SECRET))?;
            Ok(Filled { text, secrets: Vec::new() })
        })
    }
    fn scrubber(&self, _secrets: Vec<(String, Secret)>) -> Arc<dyn Scrub> {
        Arc::new(Hide)
    }
}

struct Hide;
impl Scrub for Hide {
    fn scrub(&self, value: &mut Value) -> bool {
        let text = value.to_string();
        *value = serde_json::from_str(&text.replace(SECRET, "***")).unwrap();
        text.contains(SECRET)
    }
}

/// A notification: the connection that it came over, its method and its parameters.
type Heard = (Option<Arc<str>>, String, Value);

/// The server behind the gateway.
pub(super) struct Tools {
    pub(super) list: Mutex<Vec<Value>>,
    pub(super) calls: Mutex<Vec<(String, Option<Value>)>>,
    pub(super) hanging: Notify,
    pub(super) dropped: Arc<Notify>,
    pub(super) journal: Arc<Memory>,
    pub(super) says: Mutex<Value>,
    /// What it tells a model about itself.
    pub(super) instructions: Mutex<Value>,
    /// Notifications, and the connections over which they came.
    pub(super) told: Mutex<Vec<Heard>>,
    /// The connections over which it asked something.
    pub(super) asked_over: Mutex<Vec<Option<Arc<str>>>>,
    pub(super) hears: Notify,
}

pub(super) fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}, "x-own": 1})
}

struct Dropped(Arc<Notify>);
impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Backend for Tools {
    fn notification<'a>(
        &'a self,
        asker: &'a Asker,
        method: &'a str,
        params: Option<Value>,
    ) -> ringfence_mcp::Boxed<'a, ()> {
        let told = (asker.session.clone(), method.to_owned(), params.unwrap_or_default());
        self.told.lock().unwrap().push(told);
        self.hears.notify_one();
        Box::pin(std::future::ready(()))
    }

    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        Box::pin(async move {
            // Whatever arrives was decided, and the decision is in the record by now.
            let decided = self.journal.events.lock().unwrap().iter().rev().any(|event| {
                matches!(event, Event::CallDecided { method: m, outcome: Outcome::Allowed, .. }
                    if m == method || method == "server/discover" || method == "initialize")
            });
            assert!(decided, "{method} came without a decision");
            self.calls.lock().unwrap().push((method.to_owned(), params.clone()));
            let params = params.unwrap_or_default();
            match method {
                "initialize" | "server/discover" => Ok(json!({
                    "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}},
                    "serverInfo": {"name": "tools", "version": "1"},
                    "instructions": *self.instructions.lock().unwrap(),
                })),
                // Two tools a page.
                "tools/list" => {
                    let list = self.list.lock().unwrap();
                    let from = params["cursor"].as_str().map_or(0, |at| at.parse().unwrap());
                    let page: Vec<_> = list.iter().skip(from).take(2).cloned().collect();
                    let mut result = json!({"tools": page, "x-page": from});
                    if from + 2 < list.len() {
                        result["nextCursor"] = json!((from + 2).to_string());
                    }
                    Ok(result)
                }
                "tools/call" => match params["name"].as_str().unwrap() {
                    "hang" => {
                        let _dropped = Dropped(Arc::clone(&self.dropped));
                        self.hanging.notify_one();
                        std::future::pending().await
                    }
                    "new" if params["arguments"]["twice"] == true => {
                        for asked in ["this?", "that?"] {
                            let question = json!({"message": asked,
                                "requestedSchema": {"type": "object", "properties": {}}});
                            client.ask_as("k", "elicitation/create", Some(question)).await?;
                        }
                        Ok(json!({"content": [], "answered": true}))
                    }
                    "new" => {
                        // A question, with a secret in it and progress before it.
                        let progress = json!({"progressToken": params["_meta"]["progressToken"],
                            "progress": 1, "message": format!("with {SECRET}")});
                        client.notify("notifications/progress", Some(progress)).await;
                        let mut question = json!({"message": format!("may I use {SECRET}?"),
                            "requestedSchema": {"type": "object", "properties": {}}});
                        if let Some(token) = params["arguments"].get("token") {
                            question["_meta"] = json!({"progressToken": token});
                        }
                        self.asked_over.lock().unwrap().push(asker.session.clone());
                        let answer = client.ask("elicitation/create", Some(question)).await?;
                        Ok(json!({"content": [], "answer": answer}))
                    }
                    "die" => std::process::exit(7),
                    "fail" => Err(RpcError {
                        code: -32050,
                        message: self.says.lock().unwrap().to_string(),
                        data: Some(json!({"own": true})),
                    }),
                    "say" => Ok(json!({"content": [], "said": *self.says.lock().unwrap()})),
                    _ => Ok(json!({"content": [], "echo": params})),
                },
                _ => Ok(json!({"contents": []})),
            }
        })
    }
}

/// Serves `Tools` over a pipe in this process; each launch is a new pipe.
pub(super) struct Pipes {
    pub(super) tools: Arc<Tools>,
    pub(super) launches: AtomicUsize,
    pub(super) live: Arc<Mutex<Option<tokio::task::AbortHandle>>>,
    pub(super) broken: AtomicBool,
}

impl Pipes {
    /// As a server that dies.
    fn kill(&self) {
        self.live.lock().unwrap().take().expect("it lives").abort();
    }
}

impl Launcher for Pipes {
    fn launch<'a>(
        &'a self,
        _server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>> {
        Box::pin(async move {
            self.launches.fetch_add(1, Ordering::SeqCst);
            if self.broken.load(Ordering::SeqCst) {
                return Err("/home/someone/bin/tool is missing".into());
            }
            let (ours, mut near) = tokio::io::duplex(64 * 1024);
            let (mut far, theirs) = tokio::io::duplex(64 * 1024);
            let (read, write) = tokio::io::split(theirs);
            tokio::spawn(serve_stdio(Arc::clone(&self.tools) as Arc<dyn Backend>, read, write));
            // Cutting this wire is the death of the server, as far as anyone can see.
            let wire =
                tokio::spawn(
                    async move { tokio::io::copy_bidirectional(&mut near, &mut far).await },
                );
            *self.live.lock().unwrap() = Some(wire.abort_handle());
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

pub(super) struct World {
    pub(super) gateway: Arc<Gateway>,
    pub(super) journal: Arc<Memory>,
    pub(super) trust: Arc<Yes>,
    pub(super) tools: Arc<Tools>,
    pub(super) pipes: Arc<Pipes>,
    pub(super) stop: Stop,
}

/// Who is asked, and what pays.
#[derive(Default)]
pub(super) struct Seats {
    pub(super) approver: Option<Arc<dyn Approver>>,
    pub(super) purse: Option<Arc<dyn Purse>>,
    pub(super) leases: Option<Arc<dyn LeaseBook>>,
}

pub(super) fn id(name: &str) -> ServerId {
    ServerId::parse(name).unwrap()
}

pub(super) fn stdio() -> Transport {
    Transport::Stdio {
        command: "unused".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        allowed_hosts: Vec::new(),
    }
}

pub(super) fn new_tools(journal: &Arc<Memory>) -> Arc<Tools> {
    let names = ["echo", "hang", "fail", "say", "forbidden", "pay", "unlisted"];
    Arc::new(Tools {
        list: Mutex::new(names.iter().map(|name| tool(name, "a tool")).collect()),
        calls: Mutex::default(),
        hanging: Notify::new(),
        dropped: Arc::default(),
        journal: Arc::clone(journal),
        says: Mutex::new(json!("nothing")),
        instructions: Mutex::new(json!("be kind")),
        told: Mutex::default(),
        asked_over: Mutex::default(),
        hears: Notify::new(),
    })
}

/// The server `s`, with its list of tools.
pub(super) fn s_alone(transport: Transport, pins: &[ToolPins]) -> Declared {
    let listed = ["echo", "hang", "fail", "say", "forbidden", "pay", "new", "die", "Echo"];
    let server = Server {
        transport,
        tools: Some(listed.iter().map(|name| ToolName::parse(name).unwrap()).collect()),
        methods: vec!["resources/read".into()],
        pricing: None,
    };
    let servers = BTreeMap::from([(id("s"), server)]);
    Declared { servers, toolsets: BTreeMap::new(), pins: pins.to_vec() }
}

fn waits(call: Duration) -> Waits {
    Waits { connect: Duration::from_secs(10), call }
}

impl World {
    /// One stdio server, `s`, that lists every tool but `unlisted`.
    pub(super) fn new() -> Self {
        Self::with(stdio(), Duration::from_secs(10))
    }

    pub(super) fn with(transport: Transport, call: Duration) -> Self {
        let journal = Arc::<Memory>::default();
        let tools = new_tools(&journal);
        Self::from_parts(transport, call, journal, tools)
    }

    pub(super) fn from_parts(
        transport: Transport,
        call: Duration,
        journal: Arc<Memory>,
        tools: Arc<Tools>,
    ) -> Self {
        let pipes = Arc::new(Pipes {
            tools: Arc::clone(&tools),
            launches: AtomicUsize::new(0),
            live: Arc::default(),
            broken: AtomicBool::new(false),
        });
        let launcher = Arc::clone(&pipes) as Arc<dyn Launcher>;
        Self::launched(transport, call, journal, tools, pipes, launcher)
    }

    pub(super) fn launched(
        transport: Transport,
        call: Duration,
        journal: Arc<Memory>,
        tools: Arc<Tools>,
        pipes: Arc<Pipes>,
        launcher: Arc<dyn Launcher>,
    ) -> Self {
        let launched = (journal, tools, pipes);
        Self::assembled(s_alone(transport, &[]), Arc::new(Rules), waits(call), launched, launcher)
    }

    /// As [`World::new`], held to these pins.
    pub(super) fn pinned(pins: &ToolPins) -> Self {
        let Self { journal, tools, pipes, .. } = Self::new();
        let launcher = Arc::clone(&pipes) as Arc<dyn Launcher>;
        let pins = std::slice::from_ref(pins);
        let waits = waits(Duration::from_secs(10));
        let launched = (journal, tools, pipes);
        Self::assembled(s_alone(stdio(), pins), Arc::new(Rules), waits, launched, launcher)
    }

    /// What a manifest declares, judged by its ruleset.
    pub(super) fn declared(servers: BTreeMap<ServerId, Server>, judge: Arc<dyn Judge>) -> Self {
        let Self { journal, tools, pipes, .. } = Self::new();
        let launcher = Arc::clone(&pipes) as Arc<dyn Launcher>;
        let launched = (journal, tools, pipes);
        Self::assembled(
            Declared { servers, toolsets: BTreeMap::new(), pins: Vec::new() },
            judge,
            Waits::default(),
            launched,
            launcher,
        )
    }

    pub(super) fn assembled(
        declared: Declared,
        judge: Arc<dyn Judge>,
        waits: Waits,
        (journal, tools, pipes): (Arc<Memory>, Arc<Tools>, Arc<Pipes>),
        launcher: Arc<dyn Launcher>,
    ) -> Self {
        let made = (declared, judge, waits);
        Self::seated(made, (journal, tools, pipes), launcher, Seats::default())
    }

    /// Several servers, all of them this one, with toolsets.
    pub(super) fn many(servers: &[&str], toolsets: &[(&str, &[&str])], pins: &[ToolPins]) -> Self {
        let Self { journal, tools, pipes, .. } = Self::new();
        let launcher = Arc::clone(&pipes) as Arc<dyn Launcher>;
        let one = s_alone(stdio(), &[]).servers.remove(&id("s")).unwrap();
        let servers = servers.iter().map(|name| (id(name), one.clone())).collect();
        let toolset = |(name, servers): &(&str, &[&str])| {
            let servers = servers.iter().map(|name| id(name)).collect();
            let default = *name == "default";
            (id(name), Toolset { servers, skills: Vec::new(), default })
        };
        let toolsets = toolsets.iter().map(toolset).collect();
        let declared = Declared { servers, toolsets, pins: pins.to_vec() };
        let made = (declared, Arc::new(Rules) as Arc<dyn Judge>, waits(Duration::from_secs(10)));
        Self::seated(made, (journal, tools, pipes), launcher, Seats::default())
    }

    /// As [`World::new`], with somebody to ask or something to spend.
    pub(super) fn with_seats(seats: Seats) -> Self {
        let Self { journal, tools, pipes, .. } = Self::new();
        let launcher = Arc::clone(&pipes) as Arc<dyn Launcher>;
        let judge = Arc::new(Rules) as Arc<dyn Judge>;
        let made = (s_alone(stdio(), &[]), judge, waits(Duration::from_secs(10)));
        Self::seated(made, (journal, tools, pipes), launcher, seats)
    }

    /// As [`World::from_parts`], with somebody to ask or something to spend.
    pub(super) fn served(
        transport: Transport,
        journal: Arc<Memory>,
        tools: Arc<Tools>,
        seats: Seats,
    ) -> Self {
        let Self { pipes, .. } = Self::new();
        let launcher = Arc::clone(&pipes) as Arc<dyn Launcher>;
        let judge = Arc::new(Rules) as Arc<dyn Judge>;
        let made = (s_alone(transport, &[]), judge, waits(Duration::from_secs(10)));
        Self::seated(made, (journal, tools, pipes), launcher, seats)
    }

    /// Keeps leases there. Before the gateway is shared.
    pub(super) fn lease_to(self, book: Arc<dyn LeaseBook>) -> Self {
        let gateway = Arc::into_inner(self.gateway).expect("it is not shared yet");
        let gateway = Arc::new_cyclic(|me| {
            let (me, leases) = (std::sync::Weak::clone(me), Some(book));
            Gateway { me, leases, ..gateway }
        });
        Self { gateway, ..self }
    }

    fn seated(
        (declared, judge, waits): (Declared, Arc<dyn Judge>, Waits),
        (journal, tools, pipes): (Arc<Memory>, Arc<Tools>, Arc<Pipes>),
        launcher: Arc<dyn Launcher>,
        Seats { approver, purse, leases }: Seats,
    ) -> Self {
        let trust = Arc::new(Yes(AtomicBool::new(true)));
        let stop = Stop::default();
        let rooms = Rooms {
            journal: Arc::clone(&journal) as Arc<dyn Journal>,
            judge,
            trust: Arc::clone(&trust) as Arc<dyn Trust>,
            vault: Arc::new(NoVault),
            launcher,
            approver,
            purse,
            stop: stop.clone(),
            leases,
        };
        let gateway = Gateway::assemble(declared, rooms, waits);
        Self { gateway, journal, trust, tools, pipes, stop }
    }

    /// The server dies, and this is seen.
    pub(super) async fn kill(&self) {
        self.pipes.kill();
        while self.gateway.upstreams.generation(&id("s")).is_some() {
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, Error> {
        self.request_of(&nobody(), method, params).await
    }

    pub(super) async fn request_of(
        &self,
        client: &Arc<dyn Client>,
        method: &str,
        params: Value,
    ) -> Result<Value, Error> {
        let request = JudgedRequest::from_door(method, Some(params));
        self.gateway.call(&Caller::agent(), client, &id("s"), request).await
    }

    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Error> {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// The tools that the server itself was asked to call.
    pub(super) fn reached(&self) -> Vec<String> {
        let calls = self.tools.calls.lock().unwrap();
        let called = calls.iter().filter(|(method, _)| method == "tools/call");
        called.map(|(_, p)| p.as_ref().unwrap()["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The agent's door.
    pub(super) fn serve(
        &self,
    ) -> (SocketAddr, tokio::sync::watch::Sender<bool>, tokio::task::JoinHandle<std::io::Result<()>>)
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let serving =
            tokio::spawn(Arc::clone(&self.gateway).serve(crate::At::Loopback(listener), stopped));
        (address, stop, serving)
    }
}

pub(super) fn check_of(error: &Error) -> String {
    match error {
        Error::Refused(refusal) => refusal.check.clone(),
        other => format!("{other:?}"),
    }
}

/// A client that can answer nothing.
pub(super) fn nobody() -> Arc<dyn Client> {
    Arc::new(Nobody)
}
