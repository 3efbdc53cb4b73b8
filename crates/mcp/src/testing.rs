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
use crate::{Answer, Asker, Backend, Boxed, Client, HttpDoor, RpcError, code, route};

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

/// A door on loopback, at `/echo/mcp`.
pub(crate) async fn serve_door(backend: Arc<dyn Backend>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits { bytes: 64 * 1024, ..Limits::default() };
    let door = Arc::new(HttpDoor::new(backend, address.port(), limits));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let door = Arc::clone(&door);
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
    address
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
