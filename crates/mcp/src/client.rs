//! A small client for programs that are handed a gateway's URL.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::upstream::{HttpOptions, Reply, Upstream, UpstreamError, UpstreamLimits};
use crate::{Client, Nobody};

/// Pages of a list of tools.
const PAGES: usize = 1000;
/// Tools of one server.
const TOOLS: usize = 100_000;

/// A client of one MCP endpoint, for small agents: connects, lists and calls.
#[derive(Debug)]
pub struct HttpClient(Upstream);

impl HttpClient {
    /// Connects in whichever revision the endpoint speaks. Proxy variables are not read.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn connect(url: &str) -> Result<Self, UpstreamError> {
        let wait = Duration::from_secs(30);
        Upstream::http(url, &HttpOptions::default(), UpstreamLimits::default(), wait)
            .await
            .map(Self)
    }

    /// The tools on offer, all pages.
    ///
    /// # Errors
    /// [`UpstreamError`]; [`UpstreamError::Nonsense`] when its list has no end within 1,000 pages and
    /// 100,000 tools.
    pub async fn tools(&self) -> Result<Vec<Value>, UpstreamError> {
        let mut tools = Vec::new();
        let mut params = None;
        for _ in 0..PAGES {
            let mut page = self.request("tools/list", params.take()).await?;
            if let Some(Value::Array(found)) = page.get_mut("tools").map(Value::take) {
                tools.extend(found);
            }
            match page.get("nextCursor").and_then(Value::as_str) {
                _ if tools.len() > TOOLS => break,
                Some(cursor) => params = Some(json!({ "cursor": cursor })),
                None => return Ok(tools),
            }
        }
        Err(UpstreamError::Nonsense { reason: "its list of tools has no end".into() })
    }

    /// Calls a tool and gives its result as the server sent it.
    ///
    /// # Errors
    /// [`UpstreamError::Rpc`] when the call was refused or is not possible; the others as they say.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> Result<Value, UpstreamError> {
        let params = json!({ "name": name, "arguments": arguments });
        self.request("tools/call", Some(params)).await
    }

    /// Any request.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn request(
        &self,
        method: &str,
        params: Option<Value>,
    ) -> Result<Value, UpstreamError> {
        let nobody: Arc<dyn Client> = Arc::new(Nobody);
        match self.0.request(&nobody, method, params, Duration::from_secs(180)).await? {
            Reply::Done(result) => Ok(result),
            Reply::Wants(_) => {
                let reason = "it asks for input, which is not offered to it".to_owned();
                Err(UpstreamError::Nonsense { reason })
            }
        }
    }
}
