//! What is kept of a client's session beside its requests: which resources it follows and how much of a
//! server's log it wants to hear. Each session has its own, whoever else asks the same of that server.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use ringfence_bundle::ServerId;
use ringfence_mcp::{Answer, Boxed, Client, Party, RpcError, code};
use serde_json::Value;
use tokio::task::JoinHandle;

const UPDATED: &str = "notifications/resources/updated";
/// Resources that one session may follow on one server.
const URIS: usize = 256;
/// Bytes of their addresses.
const BYTES: usize = 32 * 1024;
/// Updates that wait for a stream of the session.
const WAITING: usize = 64;
/// Sessions that are known to have ended: longer than the last step of a request of theirs takes.
const ENDED: usize = 1024;

/// The sessions of a gateway.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Table>);

#[derive(Default)]
struct Table {
    open: HashMap<Arc<str>, BTreeMap<ServerId, Arc<Kept>>>,
    ended: VecDeque<Arc<str>>,
}

/// What is kept of one session for one server.
pub(crate) struct Kept {
    pub(crate) ear: Arc<Ear>,
    /// Held while it changes.
    pub(crate) follows: tokio::sync::Mutex<Follows>,
    level: Mutex<Option<String>>,
}

/// The resources that a session follows.
#[derive(Default)]
pub(crate) struct Follows {
    pub(crate) uris: BTreeSet<String>,
    /// What brings their updates. `None` when there are none.
    pub(crate) stream: Option<Stream>,
}

impl Follows {
    /// Whether updates still come, over the connection that there is or the next.
    pub(crate) fn stands(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| !stream.0.is_finished())
    }
}

/// Ends when it is dropped.
pub(crate) struct Stream(JoinHandle<()>);

impl Stream {
    /// Lets updates come.
    pub(crate) fn of(passing: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(passing))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The session of a client that is in one.
pub(crate) fn session(client: &dyn Client) -> Option<Arc<str>> {
    match client.party() {
        Party::Caller { session, .. } => session,
        _ => None,
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept of the session of this client for this server. `None` when it is in none, or its
    /// session has ended.
    pub(crate) fn of(&self, client: &dyn Client, server: &ServerId) -> Option<Arc<Kept>> {
        let name = session(client)?;
        let mut table = self.lock();
        if table.ended.contains(&name) {
            return None;
        }
        let servers = table.open.entry(name).or_default();
        let kept = servers.entry(server.clone()).or_insert_with(|| {
            let ear = Arc::new(Ear { party: client.party(), heard: Mutex::default() });
            Arc::new(Kept { ear, follows: Default::default(), level: Mutex::default() })
        });
        Some(Arc::clone(kept))
    }

    /// A session has ended: what it followed is let go.
    pub(crate) fn end(&self, session: &str) {
        let mut table = self.lock();
        let kept = table.open.remove(session);
        if table.ended.len() >= ENDED {
            table.ended.pop_front();
        }
        table.ended.push_back(session.into());
        drop(table);
        drop(kept);
    }
}

impl Kept {
    /// How severe a server's log messages must be for the session to hear them.
    pub(crate) fn level(&self) -> Option<String> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_level(&self, level: String) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }
}

/// Whether a session may follow all of these.
///
/// # Errors
/// What the client is told.
pub(crate) fn bounded(uris: &BTreeSet<String>) -> Result<(), RpcError> {
    if uris.len() > URIS || uris.iter().map(String::len).sum::<usize>() > BYTES {
        let words = format!(
            "a session may follow {URIS} resources of a server, {BYTES} bytes of their addresses"
        );
        return Err(RpcError::new(code::INVALID_PARAMS, words));
    }
    Ok(())
}

/// Where a session hears of the resources that it follows: on the stream that it has at the moment.
/// What comes while it has none is told when it has one again.
pub(crate) struct Ear {
    party: Party,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    stream: Option<Arc<dyn Client>>,
    waiting: Vec<Value>,
}

impl Ear {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on it hears on this stream, until what comes back is dropped.
    pub(crate) fn attach(self: &Arc<Self>, stream: &Arc<dyn Client>) -> Attached {
        let mut heard = self.lock();
        heard.stream = Some(Arc::clone(stream));
        let missed = std::mem::take(&mut heard.waiting);
        drop(heard);
        Attached { ear: Arc::clone(self), stream: Arc::clone(stream), missed }
    }
}

/// As long as a session has a stream.
pub(crate) struct Attached {
    ear: Arc<Ear>,
    stream: Arc<dyn Client>,
    missed: Vec<Value>,
}

impl Attached {
    /// Tells what was missed, once.
    pub(crate) fn tell(&mut self) -> Boxed<'static, ()> {
        let (stream, missed) = (Arc::clone(&self.stream), std::mem::take(&mut self.missed));
        Box::pin(async move {
            for params in missed {
                stream.notify(UPDATED, Some(params)).await;
            }
        })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut heard = self.ear.lock();
        // It may have another by now.
        heard.stream.take_if(|stream| Arc::ptr_eq(stream, &self.stream));
    }
}

impl Client for Ear {
    /// It is asked nothing.
    fn capabilities(&self) -> &Value {
        static NONE: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));
        &NONE
    }

    fn party(&self) -> Party {
        self.party.clone()
    }

    fn notify<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, ()> {
        Box::pin(async move {
            let (UPDATED, Some(params)) = (method, params) else { return };
            let stream = {
                let mut heard = self.lock();
                let stream = heard.stream.clone();
                if stream.is_none()
                    && heard.waiting.len() < WAITING
                    && !heard.waiting.contains(&params)
                {
                    heard.waiting.push(params.clone());
                }
                stream
            };
            if let Some(stream) = stream {
                stream.notify(UPDATED, Some(params)).await;
            }
        })
    }

    fn ask<'a>(&'a self, method: &'a str, _params: Option<Value>) -> Boxed<'a, Answer> {
        let words = format!("{} is not offered", method.escape_debug());
        Box::pin(std::future::ready(Err(RpcError::new(code::METHOD_NOT_FOUND, words))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ringfence_mcp::{Answer, Boxed, Client, Party};
    use serde_json::{Value, json};

    use super::{ENDED, Ear, Sessions, UPDATED, WAITING};

    struct Stream(Mutex<Vec<Value>>, &'static str);
    impl Client for Stream {
        fn capabilities(&self) -> &Value {
            &Value::Null
        }
        fn party(&self) -> Party {
            Party::Caller { principal: None, session: Some(self.1.into()) }
        }
        fn notify<'a>(&'a self, _method: &'a str, params: Option<Value>) -> Boxed<'a, ()> {
            self.0.lock().unwrap().push(params.unwrap_or_default());
            Box::pin(std::future::ready(()))
        }
        fn ask<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, Answer> {
            Box::pin(std::future::ready(Ok(Value::Null)))
        }
    }

    fn stream(session: &'static str) -> (Arc<Stream>, Arc<dyn Client>) {
        let stream = Arc::new(Stream(Mutex::default(), session));
        (Arc::clone(&stream), stream)
    }

    #[tokio::test]
    async fn updates_wait_for_a_stream_each_once_and_so_many() {
        let party = Party::Unknown;
        let ear = Arc::new(Ear { party, heard: Mutex::default() });
        let update = |n: usize| Some(json!({ "uri": format!("x:{n}") }));
        for n in [0, 0, 1, 0].into_iter().chain(2..WAITING + 9) {
            ear.notify(UPDATED, update(n)).await;
        }
        // It hears nothing else.
        ear.notify("notifications/message", update(0)).await;
        assert!(ear.ask("roots/list", None).await.is_err());
        let (first, client) = stream("one");
        let mut attached = ear.attach(&client);
        assert_eq!(attached.missed.len(), WAITING);
        attached.tell().await;
        ear.notify(UPDATED, update(0)).await;
        assert_eq!(first.0.lock().unwrap().len(), WAITING + 1);
        // Another stream takes over; the end of the first changes nothing.
        let (second, client) = stream("one");
        let later = ear.attach(&client);
        assert!(later.missed.is_empty());
        drop(attached);
        ear.notify(UPDATED, update(0)).await;
        assert_eq!(first.0.lock().unwrap().len(), WAITING + 1);
        assert_eq!(second.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_session_that_has_ended_is_not_begun_again() {
        let sessions = Sessions::default();
        let server = ringfence_bundle::ServerId::parse("s").unwrap();
        let ((_, one), (_, two)) = (stream("one"), stream("two"));
        let kept = sessions.of(one.as_ref(), &server).expect("control");
        assert!(Arc::ptr_eq(&kept, &sessions.of(one.as_ref(), &server).unwrap()));
        sessions.end("one");
        assert!(sessions.of(one.as_ref(), &server).is_none());
        assert!(sessions.of(two.as_ref(), &server).is_some());
        assert!(sessions.of(&ringfence_mcp::Nobody, &server).is_none());
        assert_eq!(Arc::strong_count(&kept), 1, "nothing else holds it");
        // It is forgotten in time.
        for n in 0..ENDED {
            sessions.end(&n.to_string());
        }
        assert_eq!(sessions.lock().ended.len(), ENDED);
    }
}
