//! Real peers for the tests: a backend, a door on a socket, and RMCP's own server and client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hyper_util::rt::TokioIo;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::strict::Limits;
use crate::{
    Answer, Asker, Backend, Boxed, Client, DoorOptions, HeaderParam, HttpDoor, Listening, RpcError,
    Wanted, code, route,
};

/// Echoes; `hang` waits until it is dropped.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) seen: Mutex<Vec<(Asker, String, Option<Value>)>>,
    pub(crate) hanging: Notify,
    pub(crate) dropped: Arc<Notify>,
}

struct OnDrop(Arc<Notify>);
impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Backend for Echo {
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        _client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        self.seen.lock().unwrap().push((asker.clone(), method.to_owned(), params.clone()));
        Box::pin(async move {
            match method {
                "initialize" | "server/discover" => Ok(json!({
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "echo", "version": "1"},
                    "instructions": "say something",
                })),
                "tools/list" => Ok(json!({
                    "tools": [{"name": "echo", "inputSchema": {"type": "object"}, "x-unknown": 1}],
                    "_meta": {"kept": true},
                })),
                "tools/call" => {
                    let params = params.unwrap_or_default();
                    if params["name"] == "hang" {
                        let _dropped = OnDrop(Arc::clone(&self.dropped));
                        self.hanging.notify_one();
                        std::future::pending::<()>().await;
                    }
                    Ok(json!({
                        "content": [{"type": "text", "text": params["arguments"].to_string()}],
                        "unknown": {"kept": [1, 2]},
                        "_meta": {"a": 1},
                    }))
                }
                "example/list" => Ok(json!([1])),
                _ => Err(RpcError {
                    code: code::METHOD_NOT_FOUND,
                    message: "no such method".into(),
                    data: Some(json!({"k": "v"})),
                }),
            }
        })
    }
}

/// Talks to its client: `talk` says `n` things, `ask` asks one and then another, `both` asks both at
/// once, `hang` says one thing and waits until it is dropped.
#[derive(Default)]
pub(crate) struct Talker {
    pub(crate) seen: Mutex<Vec<(Asker, String, Option<Value>)>>,
    pub(crate) told: AtomicUsize,
    pub(crate) dropped: Arc<Notify>,
    pub(crate) listening: Mutex<Option<Arc<dyn Client>>>,
    pub(crate) listened: Notify,
    pub(crate) unheard: Arc<Notify>,
    pub(crate) ended: Mutex<Vec<String>>,
}

fn form(message: &str) -> Option<Value> {
    Some(json!({ "message": message, "requestedSchema": { "type": "object" } }))
}

impl Talker {
    async fn call(&self, client: &Arc<dyn Client>, params: &Value) -> Answer {
        let _dropped = OnDrop(Arc::clone(&self.dropped));
        let ask = |key| client.ask_as(key, "elicitation/create", form(key));
        let said = match params["name"].as_str().unwrap() {
            "talk" | "hang" => {
                let bytes = params["arguments"]["bytes"].as_u64().unwrap_or(1);
                for n in 1..=params["arguments"]["n"].as_u64().unwrap_or(1) {
                    let pad = "x".repeat(usize::try_from(bytes).unwrap());
                    let said = json!({ "progress": n, "pad": pad });
                    client.notify("notifications/progress", Some(said)).await;
                    self.told.fetch_add(1, Ordering::SeqCst);
                }
                if params["name"] == "hang" {
                    std::future::pending::<()>().await;
                }
                json!("told")
            }
            "ask" => json!([ask("one").await?, ask("two").await?]),
            _ => {
                let (one, two) = tokio::join!(ask("one"), ask("two"));
                json!([one?, two?])
            }
        };
        Ok(json!({ "said": said }))
    }
}

impl Backend for Talker {
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        self.seen.lock().unwrap().push((asker.clone(), method.to_owned(), params.clone()));
        Box::pin(async move {
            match method {
                "initialize" => Ok(json!({ "capabilities": {}, "serverInfo": {} })),
                _ => self.call(client, &params.unwrap_or_default()).await,
            }
        })
    }

    fn listen<'a>(
        &'a self,
        _asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        wanted: Wanted,
    ) -> Boxed<'a, Result<Listening, RpcError>> {
        *self.listening.lock().unwrap() = Some(Arc::clone(client));
        self.listened.notify_one();
        let unheard = OnDrop(Arc::clone(&self.unheard));
        let passing = Box::pin(async move {
            let _unheard = unheard;
            std::future::pending().await
        });
        Box::pin(std::future::ready(Ok(Listening { granted: wanted, passing })))
    }

    fn header_params<'a>(
        &'a self,
        _asker: &'a Asker,
        _tool: &'a str,
    ) -> Option<Boxed<'a, Vec<HeaderParam>>> {
        let schema = json!({ "properties": { "place": { "x-mcp-header": "Place" } } });
        Some(Box::pin(std::future::ready(HeaderParam::of_schema(&schema))))
    }

    fn ended(&self, session: &str) {
        self.ended.lock().unwrap().push(session.to_owned());
    }
}

/// A door on loopback, at `/echo/mcp`.
pub(crate) async fn serve_door(backend: Arc<dyn Backend>) -> SocketAddr {
    serve_door_with(backend, |_| {}).await.0
}

/// The same, set up otherwise.
pub(crate) async fn serve_door_with(
    backend: Arc<dyn Backend>,
    set_up: impl FnOnce(&mut DoorOptions),
) -> (SocketAddr, Arc<HttpDoor>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut options = DoorOptions::loopback(address.port());
    options.limits = Limits { bytes: 64 * 1024, ..Limits::default() };
    set_up(&mut options);
    let door = Arc::new(HttpDoor::with(backend, options));
    let served = Arc::clone(&door);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let door = Arc::clone(&served);
            let service = hyper::service::service_fn(move |request: http::Request<_>| {
                let door = Arc::clone(&door);
                async move {
                    let routed = route(request.uri()).map(drop);
                    Ok::<_, std::convert::Infallible>(match routed {
                        Ok(()) => door.handle::<hyper::body::Incoming>(request).await,
                        Err(refusal) => refusal.into_response(),
                    })
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (address, door)
}

/// RMCP's own server with one tool, `add`, and one that never ends, `hang`.
#[derive(Clone, Default)]
pub(crate) struct Adder {
    pub(crate) hanging: Arc<Notify>,
    pub(crate) cancelled: Arc<Notify>,
    pub(crate) calls: Arc<AtomicUsize>,
}

impl rmcp::ServerHandler for Adder {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().build();
        info.instructions = Some("adds".into());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().cloned().unwrap();
        let tools = ["add", "hang"].map(|name| Tool::new(name, "a tool", schema.clone()));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if request.name == "hang" {
            self.hanging.notify_one();
            context.ct.cancelled().await;
            self.cancelled.notify_one();
            return Err(ErrorData::internal_error("given up", None));
        }
        let arguments = request.arguments.unwrap_or_default();
        let sum = arguments.values().filter_map(Value::as_i64).sum::<i64>();
        Ok(CallToolResult::success(vec![ContentBlock::text(sum.to_string())]).into())
    }
}

/// RMCP's Streamable HTTP server. `stateful` is the 2025 way with sessions.
pub(crate) async fn serve_rmcp(adder: Adder, versions: Versions) -> SocketAddr {
    use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
    use rmcp::transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = StreamableHttpService::new(
        move || Ok(Limited { adder: adder.clone(), versions }),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            let serve = hyper::service::service_fn(move |request: http::Request<_>| {
                let service = service.clone();
                async move {
                    let request: http::Request<hyper::body::Incoming> = request;
                    Ok::<_, std::convert::Infallible>(service.handle(request).await)
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), serve),
            );
        }
    });
    address
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versions {
    All,
    Handshake,
    Stateless,
}

/// The same server that speaks only some revisions.
#[derive(Clone)]
pub(crate) struct Limited {
    pub(crate) adder: Adder,
    pub(crate) versions: Versions,
}

impl rmcp::ServerHandler for Limited {
    fn get_info(&self) -> ServerConfig {
        self.adder.get_info()
    }
    fn supported_protocol_versions(
        &self,
    ) -> std::borrow::Cow<'static, [rmcp::model::ProtocolVersion]> {
        let known = rmcp::model::ProtocolVersion::KNOWN_VERSIONS;
        let (before, last) = known.split_at(known.len() - 1);
        match self.versions {
            Versions::All => known.into(),
            Versions::Handshake => before.into(),
            Versions::Stateless => last.into(),
        }
    }
    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.adder.list_tools(request, context).await
    }
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.adder.call_tool(request, context).await
    }
}
