//! Which folder a client is served from: the one that was named or that the program stands in, or, on
//! the revisions with a handshake, the one that the client's roots name.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_mcp::{Asker, Client};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::bundle::{Connected, Served};
use super::open::Ending;
use super::{Wish, roots};

/// How long requests wait for a client to say its roots, after which its folder is ours.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a client may take to say them.
const ROOTS: Duration = Duration::from_secs(60);

/// What is known of a client's roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It has none to say, or was not asked.
    Nothing,
    /// It will be asked.
    Expected,
    /// It has said.
    Said,
}

/// Where a client is served from.
pub(super) struct Place {
    own: Arc<Served>,
    /// Whether a client's roots count, and the person's home folder, which is no project.
    asks: Option<Option<PathBuf>>,
    chosen: Mutex<Chosen>,
    known: watch::Sender<Known>,
    moved: watch::Sender<u64>,
    /// The client's roots changed.
    pub(super) again: Notify,
    leaving: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Chosen {
    other: Option<Arc<Served>>,
    connected: Option<Connected>,
}

impl Place {
    /// One folder for every client.
    pub(super) fn fixed(served: Arc<Served>) -> Arc<Self> {
        Self::new(served, None)
    }

    /// The folder of one client's roots, or this.
    pub(super) fn asking(served: Arc<Served>, user_home: Option<PathBuf>) -> Arc<Self> {
        Self::new(served, Some(user_home))
    }

    fn new(own: Arc<Served>, asks: Option<Option<PathBuf>>) -> Arc<Self> {
        Arc::new(Self {
            own,
            asks,
            chosen: Mutex::default(),
            known: watch::Sender::new(Known::Nothing),
            moved: watch::Sender::new(0),
            again: Notify::new(),
            leaving: Mutex::default(),
        })
    }

    fn chosen(&self) -> std::sync::MutexGuard<'_, Chosen> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one client of this place is there.
    pub(super) fn connect(&self) {
        let mut chosen = self.chosen();
        let served = chosen.other.as_ref().unwrap_or(&self.own).connect();
        chosen.connected = Some(served);
    }

    /// Whether roots are to be asked for on this connection.
    pub(super) fn asks(&self, asker: &Asker) -> bool {
        self.asks.is_some() && !asker.revision.is_stateless()
    }

    /// A handshake: whether the client has roots to say.
    pub(super) fn greeted(&self, asker: &Asker, params: Option<&Value>) {
        let capabilities = params.and_then(|params| params.get("capabilities"));
        let has_roots = capabilities.and_then(|all| all.get("roots")).is_some_and(Value::is_object);
        if self.asks(asker) && has_roots {
            self.known.send_replace(Known::Expected);
        }
    }

    /// Told when the folder is another.
    pub(super) fn moves(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// What the next request is served from.
    pub(super) fn now(&self, asker: &Asker) -> Arc<Served> {
        let chosen = if asker.revision.is_stateless() { None } else { self.chosen().other.clone() };
        chosen.unwrap_or_else(|| Arc::clone(&self.own))
    }

    /// The same, once the client has said its roots, if it is about to.
    pub(super) async fn settled(&self, asker: &Asker) -> Arc<Served> {
        if self.asks(asker) {
            let mut known = self.known.subscribe();
            let said = known.wait_for(|known| *known != Known::Expected);
            if timeout(PATIENCE, said).await.is_err() {
                // It is waited for once.
                self.known.send_if_modified(|known| {
                    let waited = *known == Known::Expected;
                    if waited {
                        *known = Known::Nothing;
                    }
                    waited
                });
            }
        }
        self.now(asker)
    }

    /// Asks the client for its roots, and goes where they are.
    pub(super) async fn ask(&self, client: &Arc<dyn Client>) {
        if let (Some(home), true) = (&self.asks, client.capabilities().get("roots").is_some()) {
            let said = timeout(ROOTS, client.ask("roots/list", None)).await;
            // One that does not say is served from here.
            let project = match said {
                Ok(Ok(said)) => {
                    let home = home.clone();
                    spawn_blocking(move || roots::project(&said, home.as_deref()))
                        .await
                        .ok()
                        .flatten()
                }
                _ => None,
            };
            self.go(project);
        }
        self.known.send_replace(Known::Said);
    }

    fn go(&self, project: Option<PathBuf>) {
        let own = &self.own.wish().request.project;
        let project = project.filter(|project| own.canonicalize().ok().as_ref() != Some(project));
        let mut chosen = self.chosen();
        let before = chosen.other.as_ref().map(|served| served.wish().request.project.clone());
        if before == project {
            return;
        }
        let wish = self.own.wish();
        let other = project.map(|project| {
            let mut request = wish.request.clone();
            request.project = project;
            Served::new(Wish { request, ..wish.clone() })
        });
        let left = std::mem::replace(&mut chosen.other, other);
        if chosen.connected.is_some() {
            let served = chosen.other.as_ref().unwrap_or(&self.own);
            chosen.connected = Some(served.connect());
        }
        drop(chosen);
        match left {
            Some(left) => {
                let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
                leaving.spawn(async move {
                    let words = "the client went to another folder";
                    left.close(Ending::new(crate::EndedBy::Exit, words)).await;
                });
            }
            None => self.own.rest(),
        }
        self.moved.send_modify(|moves| *moves += 1);
    }

    /// Ends everything, and waits until every record is sealed.
    pub(super) async fn close(&self, ending: Ending) {
        let other = self.chosen().other.clone();
        for served in other.iter().chain([&self.own]) {
            served.cut_off();
            served.close(ending.clone()).await;
        }
        let mut leaving = {
            let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *leaving)
        };
        while leaving.join_next().await.is_some() {}
    }

    /// A client's session is carried by no connection any more.
    pub(super) fn away(&self, session: &str) {
        self.own.away(session);
        if let Some(other) = &self.chosen().other {
            other.away(session);
        }
    }

    /// A client's session has ended.
    pub(super) fn ended(&self, session: &str) {
        self.own.ended(session);
        if let Some(other) = &self.chosen().other {
            other.ended(session);
        }
    }
}
