//! Lists and streams of several servers as one.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_bundle::ServerId;
use ringfence_mcp::{Answer, Asker, Boxed, Client, Held, Listening, Party, RpcError, Wanted, code};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::many::{LIST_CHANGED, Many};
use super::names;
use crate::call::JudgedRequest;
use crate::sessions::Attached;

/// Servers asked at once.
const AT_ONCE: usize = 16;
/// Entries of one server's list.
const OF_ONE: usize = 10_000;
/// Pages of one server's list.
const PAGES: usize = 100;
/// Entries on a page of ours.
const PAGE: usize = 1_000;

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// Which member of an entry names it.
    fn name(self) -> &'static str {
        match self {
            Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    fn joined(self, server: &ServerId, name: &str) -> String {
        match self {
            Self::Prompts => names::joined(server, name),
            Self::Resources | Self::Templates => names::joined_uri(server, name),
        }
    }
}

/// Asks each server for its whole list, and gives a page of all of them. A server that gives none
/// takes nothing away from the others: the record has why. The cursor is a server and a number, so
/// that nobody has to be remembered.
pub(super) async fn list(
    many: Arc<Many>,
    asker: &Asker,
    client: &Arc<dyn Client>,
    kind: Kind,
    servers: Vec<ServerId>,
    cursor: Option<Value>,
) -> Answer {
    let bad = || RpcError::new(code::INVALID_PARAMS, "the cursor is none of this list");
    let after = match &cursor {
        None => None,
        Some(cursor) => {
            let (server, nth) = cursor.as_str().and_then(|c| c.split_once(' ')).ok_or_else(bad)?;
            let nth = nth.parse::<usize>().map_err(|_| bad())?;
            Some((ServerId::parse(server).map_err(|_| bad())?, nth))
        }
    };
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut asking = JoinSet::new();
    let alone = servers.len() == 1;
    for server in servers {
        if after.as_ref().is_some_and(|(last, _)| server < *last) {
            continue;
        }
        let (many, asker, places) = (Arc::clone(&many), asker.clone(), Arc::clone(&places));
        let client = naming(client, &server, true);
        asking.spawn(async move {
            let _place = places.acquire_owned().await;
            let listed = whole(&many, &asker, &client, kind, &server).await;
            (server, listed)
        });
    }
    let mut all = BTreeMap::new();
    while let Some(asked) = asking.join_next().await {
        match asked {
            Ok((server, Ok(list))) => drop(all.insert(server, list)),
            Ok((_, Err(error))) if alone => return Err(error),
            _ => {}
        }
    }
    let mut entries = Vec::new();
    let mut next = None;
    'servers: for (server, list) in all {
        let skip = after.as_ref().filter(|(last, _)| *last == server).map_or(0, |(_, nth)| *nth);
        for (nth, entry) in list.into_iter().enumerate().skip(skip) {
            if entries.len() >= PAGE {
                next = Some(format!("{server} {nth}"));
                break 'servers;
            }
            entries.push(entry);
        }
    }
    let mut page = json!({ kind.key(): entries });
    if let Some(next) = next {
        page["nextCursor"] = next.into();
    }
    Ok(page)
}

/// All pages of one server, each a call of its own.
async fn whole(
    many: &Many,
    asker: &Asker,
    client: &Arc<dyn Client>,
    kind: Kind,
    server: &ServerId,
) -> Result<Vec<Value>, RpcError> {
    let mut entries = Vec::new();
    let mut cursor: Option<Value> = None;
    for _ in 0..PAGES {
        let params = cursor.take().map(|cursor| json!({ "cursor": cursor }));
        let request = JudgedRequest::from_door(kind.method(), params);
        let called = many.call(asker, client, server, request).await;
        let mut page = called.map_err(|error| error.to_rpc())?;
        if let Some(Value::Array(found)) = page.get_mut(kind.key()).map(Value::take) {
            for mut entry in found.into_iter().take(OF_ONE - entries.len()) {
                let name = entry.get(kind.name()).and_then(Value::as_str);
                if let Some(name) = name.map(|name| kind.joined(server, name)) {
                    entry[kind.name()] = name.into();
                    entries.push(entry);
                }
            }
        }
        match page.get("nextCursor") {
            Some(next @ Value::String(_)) if entries.len() < OF_ONE => cursor = Some(next.clone()),
            _ => break,
        }
    }
    Ok(entries)
}

/// Gives the addresses in a result this door's form: of embedded resources, of links to them, and of
/// what was read.
pub(super) fn name_uris(result: &mut Value, server: &ServerId) {
    let name = |holder: &mut Value| {
        if let Some(Value::String(uri)) = holder.get_mut("uri") {
            *uri = names::joined_uri(server, uri);
        }
    };
    let block = |block: &mut Value| match block.get("type").and_then(Value::as_str) {
        Some("resource_link") => name(block),
        Some("resource") => {
            if let Some(resource) = block.get_mut("resource") {
                name(resource);
            }
        }
        _ => {}
    };
    for key in ["content", "contents", "messages"] {
        let Some(Value::Array(items)) = result.get_mut(key) else { continue };
        for item in items {
            match key {
                "content" => block(item),
                "contents" => name(item),
                _ => match item.get_mut("content") {
                    Some(Value::Array(blocks)) => blocks.iter_mut().for_each(block),
                    Some(one) => block(one),
                    None => {}
                },
            }
        }
    }
}

/// A client that hears of resources by this door's addresses.
pub(super) fn naming(
    client: &Arc<dyn Client>,
    server: &ServerId,
    readable: bool,
) -> Arc<dyn Client> {
    if !readable {
        return Arc::clone(client);
    }
    Arc::new(Naming { client: Arc::clone(client), server: server.clone() })
}

struct Naming {
    client: Arc<dyn Client>,
    server: ServerId,
}

impl Client for Naming {
    fn capabilities(&self) -> &Value {
        self.client.capabilities()
    }

    fn party(&self) -> Party {
        self.client.party()
    }

    fn keep(&self, held: Held) {
        self.client.keep(held);
    }

    fn notify<'a>(&'a self, method: &'a str, mut params: Option<Value>) -> Boxed<'a, ()> {
        if method == "notifications/resources/updated"
            && let Some(Value::String(uri)) = params.as_mut().and_then(|p| p.get_mut("uri"))
        {
            *uri = names::joined_uri(&self.server, uri);
        }
        self.client.notify(method, params)
    }

    fn ask<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, Answer> {
        self.client.ask(method, params)
    }

    fn ask_as<'a>(
        &'a self,
        key: &'a str,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        self.client.ask_as(key, method, params)
    }
}

/// The stream of a connection to a door of many servers. Each server is listened to while it is up:
/// listening starts none.
pub(super) async fn listen(
    many: Arc<Many>,
    asker: Asker,
    client: Arc<dyn Client>,
    wanted: Wanted,
    carries: bool,
) -> Result<Listening, RpcError> {
    let request = JudgedRequest::from_door("subscriptions/listen", None);
    many.judged(&asker, &request, "a stream, as far as methods are listed").await?;
    let mut granted = Wanted { tools: wanted.tools, rest: wanted.rest, ..Wanted::default() };
    let selection = many.selection(&asker);
    for (server, methods) in many.lists(&selection) {
        let of = |uri: &String| {
            names::parted_uri(uri).filter(|(of, _)| *of == server).map(|(_, own)| own.to_owned())
        };
        let uris = wanted.uris.iter().filter(|uri| of(uri).is_some()).cloned().collect();
        let part = super::hello::granted(Wanted { uris, ..wanted.clone() }, methods);
        granted.prompts |= carries && part.prompts;
        granted.resources |= carries && part.resources;
        granted.uris.extend(part.uris.into_iter().filter(|_| carries));
    }
    let passing = Box::pin(pass(many, asker, client, granted.clone(), carries));
    Ok(Listening { granted, passing })
}

/// Passes on what the selected servers say, for as long as it is polled.
async fn pass(
    many: Arc<Many>,
    asker: Asker,
    client: Arc<dyn Client>,
    granted: Wanted,
    carries: bool,
) {
    let mut lease = many.changes(asker.session.as_ref());
    let mut up = many.gateway.ups();
    let mut streams: JoinSet<()> = JoinSet::new();
    // By the connection: one that ended is not heard again, its successor is.
    let mut heard: BTreeMap<ServerId, u64> = BTreeMap::new();
    // What the session follows of each.
    let mut attached = BTreeMap::new();
    if many.has_lost(asker.session.as_ref()) && granted.tools {
        client.notify(LIST_CHANGED, None).await;
    }
    loop {
        up.borrow_and_update();
        for (server, methods) in many.lists(&many.selection(&asker)) {
            let Some(generation) = many.gateway.is_up(&server) else { continue };
            if heard.insert(server.clone(), generation) == Some(generation) {
                continue;
            }
            let of = |uri: &String| {
                names::parted_uri(uri).filter(|(of, _)| *of == server).map(|(_, u)| u.to_owned())
            };
            let uris = granted.uris.iter().filter_map(of).collect();
            let mut wanted = super::hello::granted(Wanted { uris, ..granted.clone() }, methods);
            if !carries {
                wanted.prompts = false;
                wanted.resources = false;
            }
            many.level(&asker, &client, &server).await;
            let client = naming(&client, &server, true);
            let (gateway, caller) = (Arc::clone(&many.gateway), many.caller(&asker));
            let mut follows = gateway.attach(&client, &server);
            let missed = follows.as_mut().map(Attached::tell);
            if let Some(follows) = follows {
                attached.insert(server.clone(), follows);
            }
            streams.spawn(async move {
                if let Some(missed) = missed {
                    missed.await;
                }
                let heard = gateway.hear(&caller, &client, &server, wanted, Some(generation));
                if let Ok((listening, _)) = heard.await {
                    listening.passing.await;
                }
            });
        }
        let lease_changed = async {
            match &mut lease {
                Some(lease) => lease.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = lease_changed => {
                if !changed {
                    return;
                }
                // What is heard from now on is what is selected now.
                streams.shutdown().await;
                heard.clear();
                attached.clear();
                if granted.tools {
                    client.notify(LIST_CHANGED, None).await;
                }
            }
            Some(_) = streams.join_next() => {}
            changed = up.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::name_uris;
    use ringfence_bundle::ServerId;
    use serde_json::json;

    #[test]
    fn addresses_of_resources_have_their_server_wherever_they_stand() {
        let server = ServerId::parse("a").unwrap();
        let mut result = json!({
            "content": [{"type": "resource_link", "uri": "x:1"}, {"type": "text", "text": "x:1", "uri": "x:1"},
                {"type": "resource", "resource": {"uri": "x:2", "text": "t"}}],
            "contents": [{"uri": "x:3"}],
            "messages": [{"role": "user", "content": {"type": "resource", "resource": {"uri": "x:4"}}}],
        });
        name_uris(&mut result, &server);
        let expected = json!({
            "content": [{"type": "resource_link", "uri": "a+x:1"}, {"type": "text", "text": "x:1", "uri": "x:1"},
                {"type": "resource", "resource": {"uri": "a+x:2", "text": "t"}}],
            "contents": [{"uri": "a+x:3"}],
            "messages": [{"role": "user", "content": {"type": "resource", "resource": {"uri": "a+x:4"}}}],
        });
        assert_eq!(result, expected);
    }
}
