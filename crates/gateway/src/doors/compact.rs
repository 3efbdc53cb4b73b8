//! Three tools over many servers.

use std::sync::{Arc, Mutex, PoisonError};

use ringfence_bundle::ServerId;
use ringfence_mcp::{Answer, Asker, Backend, Boxed, Client, Listening, RpcError, Wanted};
use ringfence_policy::Layer;
use serde_json::{Value, json};

use super::many::Many;
use super::search::{Found, Index};
use super::{names, own};
use crate::Selection;
use crate::call::JudgedRequest;

/// Tools of one search, when it names no number, and at most.
const FEW: usize = 10;
const MOST: usize = 50;
/// Tools that are described at once.
const DESCRIBED: usize = 20;
/// Bytes of a query that are read.
const QUERY: usize = 1_000;

const OURS: &str = "Three tools over several MCP servers: find a tool with tools_search, read its \
                    arguments with tools_describe, call it with tools_call. Each call is judged by \
                    this project's rules and this machine's; a refusal says by which.";

pub(super) struct Compact {
    many: Arc<Many>,
    /// The index made last, and what it is of.
    index: Mutex<Option<Made>>,
    /// One is made at a time.
    making: tokio::sync::Mutex<()>,
}

struct Made {
    selection: Selection,
    version: u64,
    /// Servers that gave no list then; they are asked again.
    missing: Vec<ServerId>,
    index: Arc<Index>,
}

impl Compact {
    pub(super) fn new(many: Many) -> Self {
        Self {
            many: Arc::new(many),
            index: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        }
    }

    async fn answer(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        method: &str,
        params: Option<Value>,
    ) -> Answer {
        match method {
            "initialize" | "server/discover" => self.many.hello(asker, method, OURS, false).await,
            "tools/list" => {
                let request = JudgedRequest::from_door(method, params);
                self.many.judged(asker, &request, "tools of the gateway's own").await?;
                let mut tools = own::compact_tools();
                if self.many.leasable(asker) {
                    tools.extend(own::lease_tools());
                }
                Ok(json!({ "tools": tools }))
            }
            "tools/call" => self.call(asker, client, params).await,
            _ => {
                let request = JudgedRequest::from_door(method, params);
                let rule = format!("{}: no method of this door", crate::tools::shown(method));
                let next = "use the server's own address";
                let refusal = ("methods", Layer::Builtin, rule.as_str(), next);
                Err(self.many.refused(asker, &request, refusal).await)
            }
        }
    }

    async fn call(&self, asker: &Asker, client: &Arc<dyn Client>, params: Option<Value>) -> Answer {
        let request = JudgedRequest::from_door("tools/call", params);
        let name = request.tool().unwrap_or_default().to_owned();
        match name.as_str() {
            own::SEARCH => {
                self.many.judged(asker, &request, "a tool of the gateway's own").await?;
                Ok(self.search(asker, request.arguments()).await)
            }
            own::DESCRIBE => {
                self.many.judged(asker, &request, "a tool of the gateway's own").await?;
                Ok(self.describe(asker, request.arguments()).await)
            }
            own::CALL => self.tool(asker, client, request).await,
            name if own::is_lease_tool(name) => {
                self.many.lease_tool(asker, client, &request, name).await
            }
            name => {
                let rule = format!("{}: no tool of this door", crate::tools::shown(name));
                let next = "call it with tools_call";
                let refusal = ("name", Layer::Builtin, rule.as_str(), next);
                Err(self.many.refused(asker, &request, refusal).await)
            }
        }
    }

    /// The call itself: what is judged is the call of the server's tool.
    async fn tool(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        request: JudgedRequest,
    ) -> Answer {
        let name = request.arguments().and_then(|given| given.get("name")).and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let keys = request.arguments().and_then(Value::as_object).into_iter().flatten();
        if let Some((key, _)) = keys.into_iter().find(|(k, _)| *k != "name" && *k != "arguments") {
            let rule = format!("{}: tools_call takes name and arguments", crate::tools::shown(key));
            let next = "put what the tool takes into arguments";
            let refusal = ("arguments", Layer::Builtin, rule.as_str(), next);
            return Err(self.many.refused(asker, &request, refusal).await);
        }
        let (server, tool) = names::parted(&name).map(|(s, t)| (s, t.to_owned())).unzip();
        let server = self.many.member(asker, &request, server, &name).await?;
        let request = request.inner(tool.unwrap_or_default());
        let called = self.many.call(asker, client, &server, request).await;
        called.map_err(|error| error.to_rpc())
    }

    async fn search(&self, asker: &Asker, arguments: Option<&Value>) -> Value {
        let given = |key: &str| arguments.and_then(|given| given.get(key));
        let Some(query) = given("query").and_then(Value::as_str) else {
            return own::failed("\"query\" is missing: give a few words");
        };
        let limit = match given("limit") {
            None => FEW,
            Some(limit) => match limit.as_u64().and_then(|limit| usize::try_from(limit).ok()) {
                Some(limit @ 1..=MOST) => limit,
                _ => return own::failed("\"limit\" must be 1 to 50"),
            },
        };
        let server = match given("server") {
            None => None,
            Some(server) => match server.as_str().and_then(|name| ServerId::parse(name).ok()) {
                Some(server) => Some(server),
                None => return own::failed("\"server\" is no server's name"),
            },
        };
        let (index, missing) = self.index(asker).await;
        let query = query.get(..query.floor_char_boundary(QUERY)).unwrap_or_default();
        let (found, total) = index.search(query, server.as_ref(), limit);
        let row = |found: &Found<'_>| {
            let mut row = json!({ "name": found.name, "description": found.description });
            if let Some(title) = found.title {
                row["title"] = title.into();
            }
            row
        };
        let tools = found.iter().map(row).collect::<Vec<_>>();
        let mut answer = json!({ "tools": tools, "total": total });
        if let Some(missing) = own::missing(&missing) {
            answer["missing"] = missing;
        }
        own::answer(&answer)
    }

    async fn describe(&self, asker: &Asker, arguments: Option<&Value>) -> Value {
        let names = arguments.and_then(|given| given.get("names")).and_then(Value::as_array);
        let Some(names) = names.filter(|names| (1..=DESCRIBED).contains(&names.len())) else {
            return own::failed("\"names\" must be 1 to 20 names that tools_search gave");
        };
        let (index, _) = self.index(asker).await;
        let mut tools = Vec::new();
        for name in names {
            let name = name.as_str().unwrap_or_default();
            match index.definition(name) {
                Some(definition) => tools.push(definition),
                None => {
                    let shown = crate::tools::shown(name);
                    return own::failed(&format!("there is no tool `{shown}` to call here"));
                }
            }
        }
        own::answer(&json!({ "tools": tools }))
    }

    /// An index of what may be called now. Made anew when that has changed.
    /// With the servers that gave no list for it.
    async fn index(&self, asker: &Asker) -> (Arc<Index>, Vec<ServerId>) {
        let selection = self.many.selection(asker);
        let gateway = &self.many.gateway;
        // Asks servers that were not asked yet or say that their tools changed.
        if let Some(index) = self.made(&selection) {
            return (index, Vec::new());
        }
        let _turn = self.making.lock().await;
        if let Some(index) = self.made(&selection) {
            return (index, Vec::new());
        }
        let mut offered = gateway.offered(&selection).await;
        if offered.version != gateway.catalog.version() {
            // Something was learnt on the way: now it is known.
            offered = gateway.offered(&selection).await;
        }
        let (version, missing) = (offered.version, offered.missing.clone());
        let made = tokio::task::spawn_blocking(move || Index::new(&offered.tools)).await;
        let index = Arc::new(made.unwrap_or_default());
        let made = Made { selection, version, missing: missing.clone(), index: Arc::clone(&index) };
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        (index, missing)
    }

    /// The index made last, if it is still of what may be called.
    fn made(&self, selection: &Selection) -> Option<Arc<Index>> {
        let gateway = &self.many.gateway;
        let (index, version) = {
            let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            let made = index.as_ref()?;
            let fits = made.selection == *selection && made.missing.is_empty();
            fits.then(|| (Arc::clone(&made.index), made.version))?
        };
        (gateway.all_stand(selection) && gateway.catalog.version() == version).then_some(index)
    }
}

impl Backend for Compact {
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        Box::pin(self.answer(asker, client, method, params))
    }

    fn notification<'a>(
        &'a self,
        asker: &'a Asker,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, ()> {
        Box::pin(self.many.told(asker, method, params))
    }

    fn listen<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        wanted: Wanted,
    ) -> Boxed<'a, Result<Listening, RpcError>> {
        Box::pin(self.many.listen(asker, client, wanted, false))
    }

    fn away(&self, session: &str) {
        self.many.away(session);
    }

    fn ended(&self, session: &str) {
        self.many.ended(session);
    }
}
