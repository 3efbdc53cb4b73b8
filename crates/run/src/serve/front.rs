//! What a door asks: each request goes to the session that is open then.

use std::sync::Arc;
use std::time::Duration;

use ringfence_mcp::{Answer, Asker, Backend, Boxed, Client, Listening, RpcError, Wanted, code};
use serde_json::Value;
use tokio::sync::watch;

use super::place::Place;
use super::{Which, told};

const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// How often the files are looked at for somebody who listens.
const GLANCE: Duration = Duration::from_secs(2);

/// One client's way to a folder, or that of many.
pub(super) struct Front {
    place: Arc<Place>,
    which: Which,
    /// True when streams are to end.
    ending: watch::Receiver<bool>,
}

impl Front {
    pub(super) fn new(place: Arc<Place>, which: Which, ending: watch::Receiver<bool>) -> Self {
        Self { place, which, ending }
    }

    async fn answer(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        method: &str,
        params: Option<Value>,
    ) -> Answer {
        let served = if method == "initialize" {
            self.place.greeted(asker, params.as_ref());
            self.place.now(asker)
        } else {
            self.place.settled(asker).await
        };
        let open = match served.current().await {
            Ok(open) => open,
            Err(refused) => return refused.answer(method),
        };
        let backend = match open.backend(&self.which) {
            Ok(backend) => backend,
            Err(refused) => return refused.answer(method),
        };
        let mut answer = tokio::select! {
            answer = backend.request(asker, client, method, params) => answer,
            () = open.cut() => {
                return Err(RpcError::new(code::CANCELLED, "the session was closed"));
            }
        };
        if let (Ok(hello), "initialize" | "server/discover") = (&mut answer, method) {
            changeable(hello);
        }
        answer
    }

    async fn listen(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        wanted: Wanted,
    ) -> Result<Listening, RpcError> {
        let served = self.place.now(asker);
        let (changes, moves) = (served.changes(), self.place.moves());
        let (mut granted, passing) = match self.inner(asker, client, &wanted).await {
            None => (Wanted::default(), None),
            Some(inner) => (inner.granted, Some(inner.passing)),
        };
        granted.tools = wanted.tools;
        let stream = Stream {
            front: Self::new(Arc::clone(&self.place), self.which.clone(), self.ending.clone()),
            asker: asker.clone(),
            client: Arc::clone(client),
            wanted,
            changes,
            moves,
            passing,
        };
        Ok(Listening { granted, passing: Box::pin(stream.pass()) })
    }

    /// The stream of the session that is open now; none where there is none, or it has none.
    async fn inner(
        &self,
        asker: &Asker,
        client: &Arc<dyn Client>,
        wanted: &Wanted,
    ) -> Option<Listening> {
        let open = self.place.now(asker).current().await.ok()?;
        let backend = open.backend(&self.which).ok()?;
        backend.listen(asker, client, wanted.clone()).await.ok()
    }
}

/// The list of tools changes with what is trusted, whatever the servers say.
fn changeable(hello: &mut Value) {
    if let Some(tools) = hello.pointer_mut("/capabilities/tools").and_then(Value::as_object_mut) {
        tools.insert("listChanged".into(), true.into());
    }
}

impl Backend for Front {
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
        Box::pin(async move {
            if method == "notifications/roots/list_changed" && self.place.asks(asker) {
                self.place.again.notify_one();
            }
            let Ok(open) = self.place.settled(asker).await.current().await else { return };
            if let Ok(backend) = open.backend(&self.which) {
                backend.notification(asker, method, params).await;
            }
        })
    }

    fn listen<'a>(
        &'a self,
        asker: &'a Asker,
        client: &'a Arc<dyn Client>,
        wanted: Wanted,
    ) -> Boxed<'a, Result<Listening, RpcError>> {
        Box::pin(self.listen(asker, client, wanted))
    }

    fn away(&self, session: &str) {
        self.place.away(session);
    }

    fn ended(&self, session: &str) {
        self.place.ended(session);
    }
}

/// A stream to a client, over whatever sessions come and go meanwhile.
struct Stream {
    front: Front,
    asker: Asker,
    client: Arc<dyn Client>,
    wanted: Wanted,
    changes: watch::Receiver<u64>,
    moves: watch::Receiver<u64>,
    /// Of the session that is open.
    passing: Option<Boxed<'static, ()>>,
}

impl Stream {
    async fn pass(mut self) {
        let place = Arc::clone(&self.front.place);
        let asks = place.asks(&self.asker);
        let client = Arc::clone(&self.client);
        let mut asking: Option<Boxed<'_, ()>> = asks.then(|| Box::pin(place.ask(&client)) as _);
        let mut ending = self.front.ending.clone();
        let mut glance = tokio::time::interval(GLANCE);
        glance.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let other = tokio::select! {
                // Whoever served it is gone, or says that it ends.
                () = told(&mut ending) => return,
                () = done(&mut self.passing) => { self.passing = None; false }
                () = done(&mut asking) => { asking = None; false }
                () = place.again.notified(), if asks && asking.is_none() => {
                    asking = Some(Box::pin(place.ask(&client)));
                    false
                }
                changed = self.changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    true
                }
                moved = self.moves.changed() => {
                    if moved.is_err() {
                        return;
                    }
                    self.changes = place.now(&self.asker).changes();
                    true
                }
                _ = glance.tick() => {
                    place.now(&self.asker).glance().await;
                    false
                }
            };
            if other {
                self.passing = None;
                if self.wanted.tools {
                    self.client.notify(LIST_CHANGED, None).await;
                }
                let inner = self.front.inner(&self.asker, &self.client, &self.wanted).await;
                self.passing = inner.map(|inner| inner.passing);
            }
        }
    }
}

/// Waits for what is there; for ever where nothing is.
async fn done(work: &mut Option<Boxed<'_, ()>>) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}
