//! Many servers as one: each thing has its server in its name.

use std::sync::Arc;

use ringfence_bundle::ServerId;
use ringfence_mcp::{
    Answer, Asker, Backend, Boxed, Client, HeaderParam, Listening, RpcError, Wanted, code,
};
use ringfence_policy::Layer;
use serde_json::{Map, Value, json};

use super::many::{LEVEL, Many};
use super::merged::{self, Kind};
use super::{names, own};
use crate::call::JudgedRequest;
use crate::catalog::Offered;

/// Tools on one page.
const PAGE: usize = 1_000;
/// Bytes of definitions on one page; the one that crosses it is the last.
const PAGE_BYTES: usize = 8 << 20;

const OURS: &str = "Tools of several MCP servers. Each tool is named `<server>__<tool>`. Each call is \
                    judged by this project's rules and this machine's; a refusal says by which.";

pub(super) struct Aggregated {
    many: Arc<Many>,
}

impl Aggregated {
    pub(super) fn new(many: Many) -> Self {
        Self { many: Arc::new(many) }
    }

    async fn answer(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        method: &str,
        params: Option<Value>,
    ) -> Answer {
        match method {
            "initialize" | "server/discover" => self.many.hello(asker, method, OURS, true).await,
            "tools/list" => self.tools(asker, params).await,
            "tools/call" => self.call(asker, client, params).await,
            "prompts/list" => self.list(asker, client, Kind::Prompts, params).await,
            "resources/list" => self.list(asker, client, Kind::Resources, params).await,
            "resources/templates/list" => self.list(asker, client, Kind::Templates, params).await,
            "prompts/get" => self.named(asker, client, method, params).await,
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                self.addressed(asker, client, method, params).await
            }
            "completion/complete" => self.complete(asker, client, params).await,
            LEVEL => self.level(asker, client, params).await,
            _ => {
                let request = JudgedRequest::from_door(method, params);
                let rule = format!("{}: no method of this door", crate::tools::shown(method));
                let refusal =
                    ("methods", Layer::Builtin, rule.as_str(), "use the server's own address");
                Err(self.many.refused(asker, &request, refusal).await)
            }
        }
    }

    async fn tools(&self, asker: &Asker, params: Option<Value>) -> Answer {
        let request = JudgedRequest::from_door("tools/list", params);
        self.many.judged(asker, &request, "tools/list passes, filtered").await?;
        let after = request.params.as_ref().and_then(|params| params.get("cursor"));
        let after = match after {
            None => None,
            Some(Value::String(after)) => Some(names::parted(after).ok_or_else(bad_cursor)?),
            Some(_) => return Err(bad_cursor()),
        };
        let offered = self.many.gateway.offered(&self.many.selection(asker)).await;
        let own = if after.is_none() && self.many.leasable(asker) {
            own::lease_tools()
        } else {
            Vec::new()
        };
        let first = after.is_none();
        let mut page = page(&offered, after, own, PAGE, PAGE_BYTES);
        if first && let Some(missing) = own::missing(&offered.missing) {
            page["_meta"] = json!({ "ringfence": missing });
        }
        Ok(page)
    }

    async fn call(&self, asker: &Asker, client: &Arc<dyn Client>, params: Option<Value>) -> Answer {
        let request = JudgedRequest::from_door("tools/call", params);
        let name = request.tool().unwrap_or_default().to_owned();
        if own::is_lease_tool(&name) {
            return self.many.lease_tool(asker, client, &request, &name).await;
        }
        let parts = names::parted(&name).map(|(server, tool)| (server, tool.to_owned()));
        let (server, tool) = parts.unzip();
        let server = self.many.member(asker, &request, server, &name).await?;
        let request = request.renamed("name", tool.unwrap_or_default());
        self.pass(asker, client, &server, request).await
    }

    /// Asks one server, and gives what it answers this door's names.
    async fn pass(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        server: &ServerId,
        request: JudgedRequest,
    ) -> Answer {
        let client = merged::naming(client, server, self.readable(server));
        let called = self.many.call(asker, &client, server, request).await;
        let mut result = called.map_err(|error| error.to_rpc())?;
        if self.readable(server) {
            merged::name_uris(&mut result, server);
        }
        Ok(result)
    }

    /// Whether the addresses of a server's resources mean something here.
    fn readable(&self, server: &ServerId) -> bool {
        let methods = self.many.gateway.methods(server);
        methods.iter().any(|method| method.starts_with("resources/"))
    }

    async fn list(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        kind: Kind,
        params: Option<Value>,
    ) -> Answer {
        let request = JudgedRequest::from_door(kind.method(), params);
        let selection = self.many.selection(asker);
        let servers: Vec<_> = self
            .many
            .lists(&selection)
            .into_iter()
            .filter(|(_, methods)| methods.iter().any(|method| method == kind.method()))
            .map(|(server, _)| server)
            .collect();
        if servers.is_empty() {
            let rule = format!("no server here lists {} in its methods", kind.method());
            let next = "declare it in ringfence.toml, then ringfence lock and ringfence trust";
            let refusal = ("methods", Layer::Declared, rule.as_str(), next);
            return Err(self.many.refused(asker, &request, refusal).await);
        }
        let cursor = request.params.as_ref().and_then(|params| params.get("cursor")).cloned();
        let many = Arc::clone(&self.many);
        merged::list(many, asker, client, kind, servers, cursor).await
    }

    /// A prompt, by its name.
    async fn named(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        method: &str,
        params: Option<Value>,
    ) -> Answer {
        let request = JudgedRequest::from_door(method, params);
        let name = request.text("name").unwrap_or_default().to_owned();
        let (server, own) = names::parted(&name).map(|(s, n)| (s, n.to_owned())).unzip();
        let server = self.many.member(asker, &request, server, &name).await?;
        let request = request.renamed("name", own.unwrap_or_default());
        self.pass(asker, client, &server, request).await
    }

    /// A resource, by its address.
    async fn addressed(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        method: &str,
        params: Option<Value>,
    ) -> Answer {
        let request = JudgedRequest::from_door(method, params);
        let uri = request.text("uri").unwrap_or_default().to_owned();
        let (server, own) = names::parted_uri(&uri).map(|(s, u)| (s, u.to_owned())).unzip();
        let server = self.many.member(asker, &request, server, &uri).await?;
        let request = request.renamed("uri", own.unwrap_or_default());
        self.pass(asker, client, &server, request).await
    }

    /// An argument of a prompt or of a template.
    async fn complete(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        params: Option<Value>,
    ) -> Answer {
        let mut request = JudgedRequest::from_door("completion/complete", params);
        let reference = request.params.as_mut().and_then(|params| params.get_mut("ref"));
        let given = |reference: &Map<String, Value>, key: &str| {
            reference.get(key).and_then(Value::as_str).map(str::to_owned)
        };
        let mut what = String::new();
        let mut server = None;
        if let Some(reference) = reference.and_then(Value::as_object_mut) {
            if let Some(name) = given(reference, "name") {
                if let Some((of, own)) = names::parted(&name) {
                    reference["name"] = own.into();
                    server = Some(of);
                }
                what = name;
            } else if let Some(uri) = given(reference, "uri") {
                if let Some((of, own)) = names::parted_uri(&uri) {
                    reference["uri"] = own.into();
                    server = Some(of);
                }
                what = uri;
            }
        }
        let server = self.many.member(asker, &request, server, &what).await?;
        self.pass(asker, client, &server, request).await
    }

    /// How much every server that may be told so is to log. One that comes up later is told then.
    async fn level(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        params: Option<Value>,
    ) -> Answer {
        let selection = self.many.selection(asker);
        let (mut told, mut up) = (None, Vec::new());
        for (server, methods) in self.many.lists(&selection) {
            if methods.iter().any(|method| method == LEVEL)
                && let Some(generation) = self.many.gateway.is_up(&server)
            {
                let request = JudgedRequest::from_door(LEVEL, params.clone());
                let caller = self.many.caller(asker);
                told = Some(self.many.gateway.call(&caller, client, &server, request).await);
                up.push((server, generation));
            }
        }
        if let (Some(session), None | Some(Ok(_))) = (&asker.session, &told) {
            self.many.levels.set(session, params.clone());
            for (server, generation) in up {
                self.many.levels.told(Some(session), &server, generation);
            }
        }
        match told {
            Some(Err(error)) => Err(error.to_rpc()),
            Some(Ok(_)) => Ok(json!({})),
            None => {
                let request = JudgedRequest::from_door(LEVEL, params);
                self.many
                    .judged(asker, &request, "no server that may be told so is running")
                    .await?;
                Ok(json!({}))
            }
        }
    }
}

impl Backend for Aggregated {
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

    fn header_params<'a>(
        &'a self,
        asker: &'a Asker,
        tool: &'a str,
    ) -> Option<Boxed<'a, Vec<HeaderParam>>> {
        let (server, tool) = names::parted(tool)?;
        // What is not here is refused as a call.
        let here = self.many.selection(asker).has(&server);
        here.then(|| {
            let params = async move { self.many.gateway.header_params(&server, tool).await };
            Box::pin(params) as Boxed<'a, Vec<HeaderParam>>
        })
    }

    fn listen<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        wanted: Wanted,
    ) -> Boxed<'a, Result<Listening, RpcError>> {
        Box::pin(self.many.listen(asker, client, wanted, true))
    }

    fn away(&self, session: &str) {
        self.many.away(session);
    }

    fn ended(&self, session: &str) {
        self.many.ended(session);
    }
}

fn bad_cursor() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "the cursor is none of this list")
}

/// One page: what comes after a name, in the order of the names. The cursor is the last name, so that
/// a list that changes in between loses nothing else and nobody has to be remembered.
fn page(
    offered: &Offered,
    after: Option<(ServerId, &str)>,
    mut tools: Vec<Value>,
    most: usize,
    most_bytes: usize,
) -> Value {
    let (mut next, mut bytes) = (None, 0);
    let rest = offered
        .tools
        .iter()
        .filter(|(server, _)| after.as_ref().is_none_or(|(last, _)| *server >= last));
    'servers: for (server, list) in rest {
        let last = after.as_ref().filter(|(last, _)| last == server).map(|(_, tool)| *tool);
        for tool in list.iter().filter(|tool| last.is_none_or(|last| tool.name.as_str() > last)) {
            if tools.len() >= most || bytes >= most_bytes {
                next = tools.last().map(|tool| tool["name"].clone());
                break 'servers;
            }
            // What was kept is what a value gave.
            let Ok(mut value) = serde_json::from_str::<Value>(&tool.text) else { continue };
            bytes += tool.text.len();
            value["name"] = names::joined(server, &tool.name).into();
            tools.push(value);
        }
    }
    let mut page = json!({ "tools": tools });
    if let Some(next) = next {
        page["nextCursor"] = next;
    }
    page
}

#[cfg(test)]
mod tests {
    use super::{names, page};
    use crate::catalog::{Offered, Shown};
    use ringfence_bundle::ServerId;
    use serde_json::{Value, json};

    fn offered(servers: &[(&str, &[&str])]) -> Offered {
        let mut offered = Offered::default();
        for (server, tools) in servers {
            let mut tools: Vec<_> = tools
                .iter()
                .map(|name| Shown::new(name, &json!({"name": name, "description": "d", "x": 1})))
                .collect();
            tools.sort_by(|a, b| a.name.cmp(&b.name));
            offered.tools.insert(ServerId::parse(server).unwrap(), tools.into());
        }
        offered
    }

    fn all(offered: &Offered, most: usize, most_bytes: usize) -> (Vec<String>, usize) {
        let (mut seen, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let after = cursor.as_deref().map(|cursor| names::parted(cursor).unwrap());
            let page = page(offered, after, Vec::new(), most, most_bytes);
            pages += 1;
            let tools = page["tools"].as_array().unwrap();
            assert!(!tools.is_empty() && tools.len() <= most);
            seen.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
            match page.get("nextCursor").and_then(Value::as_str) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return (seen, pages),
            }
        }
    }

    #[test]
    fn pages_give_each_tool_once_in_order_whatever_their_size() {
        let offered =
            offered(&[("a", &["x", "b", "_u"]), ("a-b", &["x"]), ("b", &[]), ("c", &["y", "z"])]);
        let whole = ["a___u", "a__b", "a__x", "a-b__x", "c__y", "c__z"];
        for most in 1..8 {
            let (seen, pages) = all(&offered, most, 1 << 20);
            assert_eq!(seen, whole, "{most}");
            assert_eq!(pages, whole.len().div_ceil(most), "{most}");
        }
        assert_eq!(all(&offered, 100, 1).1, whole.len());
        let first = page(&offered, None, Vec::new(), 1, 1 << 20);
        assert_eq!(first["tools"][0]["x"], 1);
    }

    #[test]
    fn a_list_that_changed_in_between_goes_on_where_it_was() {
        let offered = offered(&[("a", &["b", "d"]), ("c", &["y"])]);
        let after = |name: &'static str| {
            let page = page(&offered, names::parted(name), Vec::new(), 10, 1 << 20);
            page["tools"].as_array().unwrap().len()
        };
        assert_eq!((after("a__b"), after("a__c"), after("b__z"), after("c__y")), (2, 2, 1, 0));
    }
}
