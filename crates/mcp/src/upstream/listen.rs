//! What a server says outside requests, for a client that wants to hear it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::desk::Seat;
use super::link::Link;
use super::listener::{ACKNOWLEDGED, Listener};
use super::{Upstream, UpstreamError};
use crate::revision::address;
use crate::{Client, Listening, Nobody, RpcError, Wanted, code};

/// Resources that one listener may follow.
const URIS: usize = 1000;
/// How long a server may take to say what it will tell, or to take one resource.
const PATIENCE: Duration = Duration::from_secs(30);

impl Upstream {
    /// Begins a stream of what the server says outside requests: `subscriptions/listen`, or what
    /// comes over the connection of a revision with a handshake. It ends with the connection.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn listen(
        &self,
        client: &Arc<dyn Client>,
        wanted: Wanted,
    ) -> Result<Listening, UpstreamError> {
        if wanted.uris.len() > URIS {
            let reason = format!("more than {URIS} resources cannot be followed at once");
            return Err(UpstreamError::Down { detail: reason.clone(), reason });
        }
        if self.revision.is_stateless() {
            self.listen_stateless(client, wanted).await
        } else {
            self.listen_dated(client, wanted).await
        }
    }

    /// Begins a stream of the updates of these resources, for a client of its own; it ends with the
    /// connection. Whoever else follows one of them is not concerned. `new`, if any, must be among
    /// what the server grants; of the others it grants what it likes.
    ///
    /// # Errors
    /// [`UpstreamError`]: what the server says against `new`.
    pub async fn follow(
        &self,
        client: &Arc<dyn Client>,
        uris: BTreeSet<String>,
        new: Option<&str>,
    ) -> Result<Listening, UpstreamError> {
        let wanted = Wanted { uris, ..Wanted::default() };
        if !self.revision.is_stateless() {
            return self.follow_dated(client, wanted, new).await;
        }
        let listening = self.listen(client, wanted).await?;
        if new.is_some_and(|new| !listening.granted.uris.contains(new)) {
            let words = "the server does not tell of changes of this resource";
            return Err(UpstreamError::Rpc(RpcError::new(code::METHOD_NOT_FOUND, words)));
        }
        Ok(listening)
    }

    async fn listen_stateless(
        &self,
        client: &Arc<dyn Client>,
        wanted: Wanted,
    ) -> Result<Listening, UpstreamError> {
        let wanted = Wanted { rest: false, ..wanted };
        let link = Arc::clone(&self.link);
        if wanted == Wanted::default() {
            let over = link.desk.over.clone();
            let passing = Box::pin(async move { over.cancelled().await });
            return Ok(Listening { granted: wanted, passing });
        }
        let mut filter = serde_json::Map::new();
        for (key, wants) in [
            ("toolsListChanged", wanted.tools),
            ("promptsListChanged", wanted.prompts),
            ("resourcesListChanged", wanted.resources),
        ] {
            if wants {
                filter.insert(key.into(), json!(true));
            }
        }
        if !wanted.uris.is_empty() {
            filter.insert("resourceSubscriptions".into(), json!(wanted.uris));
        }
        let params = json!({ "notifications": filter });
        let params = address(Some(params), &self.revision, client.capabilities());
        let seat = link.desk.seat(Listener::new(client, wanted.clone()))?;
        let listener = Arc::clone(&seat.listener);
        let mut asking = Box::pin({
            let (link, listener) = (Arc::clone(&link), Arc::clone(&listener));
            async move { link.open(&listener, "subscriptions/listen", params).await }
        });
        let first = tokio::select! {
            biased;
            first = listener.told.take() => first,
            ended = &mut asking => return Err(ended.err().unwrap_or_else(silent)),
            () = tokio::time::sleep(PATIENCE) => {
                return Err(UpstreamError::Timeout { after: PATIENCE });
            }
        };
        let first = first.filter(|told| told.method == ACKNOWLEDGED).ok_or_else(silent)?;
        let granted = granted(&wanted, first.params.as_ref());
        let passing = Box::pin(async move {
            let over = link.desk.over.clone();
            tokio::select! {
                () = pass(&seat) => {}
                _ = asking => {}
                () = over.cancelled() => {}
            }
        });
        Ok(Listening { granted, passing })
    }

    async fn listen_dated(
        &self,
        client: &Arc<dyn Client>,
        wanted: Wanted,
    ) -> Result<Listening, UpstreamError> {
        let says = |what: &str, how: &str| {
            let capabilities = self.hello.get("capabilities").and_then(|all| all.get(what));
            capabilities.and_then(|one| one.get(how)).and_then(Value::as_bool) == Some(true)
        };
        let mut granted = Wanted {
            tools: wanted.tools && says("tools", "listChanged"),
            prompts: wanted.prompts && says("prompts", "listChanged"),
            resources: wanted.resources && says("resources", "listChanged"),
            uris: BTreeSet::new(),
            rest: wanted.rest,
        };
        self.hear();
        let seat = self.link.desk.seat(Listener::new(client, wanted.clone()))?;
        let mut follows = Follows { link: Arc::clone(&self.link), uris: BTreeSet::new() };
        if says("resources", "subscribe") {
            for uri in wanted.uris {
                match follows.add(&uri).await {
                    Ok(()) => granted.uris.insert(uri),
                    Err(UpstreamError::Rpc(_)) => false,
                    Err(error) => return Err(error),
                };
            }
        }
        let passing = Box::pin(async move {
            let _follows = follows;
            pass(&seat).await;
        });
        Ok(Listening { granted, passing })
    }

    async fn follow_dated(
        &self,
        client: &Arc<dyn Client>,
        wanted: Wanted,
        new: Option<&str>,
    ) -> Result<Listening, UpstreamError> {
        self.hear();
        let seat = self.link.desk.seat(Listener::new(client, wanted.clone()))?;
        let mut follows = Follows { link: Arc::clone(&self.link), uris: BTreeSet::new() };
        let mut granted = Wanted::default();
        for uri in wanted.uris {
            match follows.add(&uri).await {
                Ok(()) => granted.uris.insert(uri),
                Err(UpstreamError::Rpc(_)) if new != Some(&uri) => false,
                Err(error) => return Err(error),
            };
        }
        let passing = Box::pin(async move {
            let _follows = follows;
            pass(&seat).await;
        });
        Ok(Listening { granted, passing })
    }
}

fn silent() -> UpstreamError {
    UpstreamError::Nonsense { reason: "it did not say what it will tell".into() }
}

/// What of that the server agreed to tell.
fn granted(wanted: &Wanted, said: Option<&Value>) -> Wanted {
    let said = said.and_then(|params| params.get("notifications"));
    let says = |key: &str| said.and_then(|said| said.get(key)).and_then(Value::as_bool);
    let uris = said.and_then(|said| said.get("resourceSubscriptions")).and_then(Value::as_array);
    let uris = uris.into_iter().flatten().filter_map(Value::as_str);
    Wanted {
        tools: wanted.tools && says("toolsListChanged") == Some(true),
        prompts: wanted.prompts && says("promptsListChanged") == Some(true),
        resources: wanted.resources && says("resourcesListChanged") == Some(true),
        uris: uris.filter(|uri| wanted.uris.contains(*uri)).map(str::to_owned).collect(),
        rest: false,
    }
}

async fn pass(seat: &Seat) {
    while let Some(told) = seat.listener.told.take().await {
        seat.listener.questions.client().notify(&told.method, told.params).await;
    }
}

/// The resources that one listener follows on a server with sessions: subscribed to for the first
/// who wants to, and until the last does not.
struct Follows {
    link: Arc<Link>,
    uris: BTreeSet<String>,
}

impl Follows {
    async fn add(&mut self, uri: &str) -> Result<(), UpstreamError> {
        let link = Arc::clone(&self.link);
        let _one = link.following.lock().await;
        let first = link.desk.follow(uri);
        // From here on it is let go again by being dropped.
        self.uris.insert(uri.to_owned());
        if !first {
            return Ok(());
        }
        let subscribed = subscribe(&link, "resources/subscribe", uri).await;
        if let Err(UpstreamError::Rpc(_)) = &subscribed {
            self.uris.remove(uri);
            link.desk.unfollow(uri);
        }
        subscribed.map(drop)
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        let uris = std::mem::take(&mut self.uris);
        let last: Vec<_> = uris.into_iter().filter(|uri| self.link.desk.unfollow(uri)).collect();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if last.is_empty() || self.link.desk.over.is_cancelled() {
            return;
        }
        let link = Arc::clone(&self.link);
        runtime.spawn(async move {
            for uri in last {
                let _one = link.following.lock().await;
                // Somebody may have come meanwhile.
                if !link.desk.is_followed(&uri) {
                    let _ = subscribe(&link, "resources/unsubscribe", &uri).await;
                }
            }
        });
    }
}

async fn subscribe(link: &Link, method: &str, uri: &str) -> Result<Value, UpstreamError> {
    let nobody: Arc<dyn Client> = Arc::new(Nobody);
    link.request(&nobody, method, Some(json!({ "uri": uri })), PATIENCE).await
}
