//! One session: a plan without an agent, its gateway, its record, from the first request to the seal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_approval::Channel;
use ringfence_bundle::ServerId;
use ringfence_gateway::{Caller, Gateway, Lease, LeaseBook, Parts, Stop};
use ringfence_mcp::Backend;
use ringfence_record::{Event, Kind, Recorder, RunId};
use ringfence_secrets::{Resolver, SignIns};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::refused::Refused;
use super::{Which, Wish, told};
use crate::execute::EndedBy;
use crate::launch::{Alive, Launching};
use crate::live::{Book, record_stop};
use crate::proxy::Way;
use crate::rooms::Rooms;
use crate::session::Session;
use crate::terminal::Notice;
use crate::{Error, Plan};

/// What is cancelled has so long to say so.
const CANCELLED: Duration = Duration::from_secs(5);
/// What servers have to end, once they are let go: each is killed before that.
const SERVERS: Duration = Duration::from_secs(5);
/// Backends of one session: one a server, and the two of many.
const BACKENDS: usize = 4096;

/// How a session ended, for its record.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) by: EndedBy,
    pub(super) detail: Option<String>,
}

impl Ending {
    pub(super) fn new(by: EndedBy, detail: impl Into<String>) -> Self {
        Self { by, detail: Some(detail.into()) }
    }

    /// Where the error says all there is to say.
    fn none() -> Self {
        Self { by: EndedBy::Error, detail: None }
    }
}

/// An open session.
pub(super) struct Open {
    pub(super) plan: Plan,
    pub(super) run: RunId,
    pub(super) recorder: Recorder,
    pub(super) halt: Stop,
    gateway: Arc<Gateway>,
    rooms: Rooms,
    toolset: Option<String>,
    backends: Mutex<HashMap<Which, Arc<dyn Backend>>>,
    /// Ends the servers' proxies.
    stop: watch::Sender<bool>,
    busy: watch::Sender<Busy>,
    cut: watch::Sender<bool>,
    closed: watch::Sender<bool>,
    /// Taken by whoever closes it.
    rest: Mutex<Option<(Session, Alive)>>,
}

/// Who is at work in a session.
#[derive(Debug, Default)]
struct Busy {
    requests: usize,
    /// Nothing begins any more.
    closing: bool,
}

/// One request at work in a session, which is not closed before.
pub(super) struct Use(Arc<Open>);

impl std::ops::Deref for Use {
    type Target = Arc<Open>;
    fn deref(&self) -> &Arc<Open> {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| busy.requests -= 1);
    }
}

impl Open {
    /// Opens a record and a gateway. Starts, contacts and resolves nothing, but the machine's own
    /// database, where the rules want one.
    pub(super) async fn begin(plan: Plan, wish: &Wish) -> Result<Arc<Self>, Error> {
        let opening = spawn_blocking(move || {
            let mode = "GATEWAY / the client is outside any sandbox";
            Session::open(&plan, Kind::Serve, Some(mode)).map(|session| (plan, session))
        });
        let opened = opening.await.unwrap_or_else(|error| Err(Error::Backend(error.to_string())));
        let (plan, session) = opened?;
        let assembled = match Self::assemble(&plan, &session, wish).await {
            Ok(assembled) => assembled,
            Err(error) => return session.close(Err(error), |_: &Arc<Self>| ended(&Ending::none())),
        };
        let Assembled { gateway, alive, stop, halt, rooms } = assembled;
        Ok(Arc::new(Self {
            run: session.run.clone(),
            recorder: session.recorder.clone(),
            plan,
            halt,
            gateway,
            rooms,
            toolset: wish.toolset.clone(),
            backends: Mutex::default(),
            stop,
            busy: watch::Sender::default(),
            cut: watch::Sender::new(false),
            closed: watch::Sender::new(false),
            rest: Mutex::new(Some((session, alive))),
        }))
    }

    async fn assemble(plan: &Plan, session: &Session, wish: &Wish) -> Result<Assembled, Error> {
        let recorder = &session.recorder;
        let (stop, stopped) = watch::channel(false);
        let proxy = Way::open(plan, &session.run, recorder).await?;
        let secrets =
            Resolver::new(Arc::clone(&plan.ruleset), recorder.clone(), plan.secrets.clone());
        // There is no terminal of the agent's here: people are asked by commands and webhooks.
        let near = wish.notices.then(|| Arc::new(Notice) as Arc<dyn Channel>);
        let rooms = Rooms::open(plan, &session.run, recorder, near, &wish.counted).await?;
        let launcher = Launching::new(
            plan,
            &session.run,
            recorder,
            &proxy,
            secrets.clone(),
            stopped,
            Handle::current(),
        );
        let alive = launcher.alive();
        let halt = Stop::default();
        let gateway = Gateway::new(Parts {
            bundle: Arc::clone(&plan.bundle),
            store: plan.store.clone(),
            ruleset: Arc::clone(&plan.ruleset),
            recorder: recorder.clone(),
            secrets,
            signins: SignIns::new(&plan.home),
            launcher: Arc::new(launcher),
            approver: rooms.approver(),
            purse: rooms.purse(),
            stop: halt.clone(),
            leases: Some(Arc::new(Leases(Book::new(&plan.home, &session.run)))),
        });
        Ok(Assembled { gateway, alive, stop, halt, rooms })
    }

    /// Begins a request. `None` when the session is closing.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Use> {
        let entered = self.busy.send_if_modified(|busy| {
            busy.requests += usize::from(!busy.closing);
            !busy.closing
        });
        entered.then(|| Use(Arc::clone(self)))
    }

    /// Whether the bundle has this server.
    pub(super) fn declares(&self, server: &ServerId) -> bool {
        self.plan.manifest().servers.contains_key(server)
    }

    /// What answers a client of this kind.
    pub(super) fn backend(&self, which: &Which) -> Result<Arc<dyn Backend>, Refused> {
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = backends.get(which) {
            return Ok(Arc::clone(backend));
        }
        let selection = || {
            self.gateway.selection(self.toolset.as_deref()).map_err(|error| {
                let next = "name a toolset that the manifest declares".to_owned();
                Refused::new("toolset", "declared", error.to_string(), next)
            })
        };
        let caller = Caller::agent();
        let backend = match which {
            Which::Server(server) if !self.declares(server) => {
                return Err(undeclared(format!("no server {server} is declared")));
            }
            Which::Undeclared => {
                return Err(undeclared("no server of this name is declared".into()));
            }
            Which::Server(server) => {
                ringfence_gateway::transparent(&self.gateway, caller, server.clone())
            }
            Which::All => ringfence_gateway::aggregated(&self.gateway, caller, selection()?),
            Which::Compact => ringfence_gateway::compact(&self.gateway, caller, selection()?),
        };
        if backends.len() < BACKENDS {
            backends.insert(which.clone(), Arc::clone(&backend));
        }
        Ok(backend)
    }

    /// A client's session is carried by no connection any more.
    pub(super) fn away(&self, session: &str) {
        let backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        backends.values().for_each(|backend| backend.away(session));
    }

    /// A client's session has ended.
    pub(super) fn ended(&self, session: &str) {
        let backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        backends.values().for_each(|backend| backend.ended(session));
    }

    /// Waits until requests are cut off.
    pub(super) async fn cut(&self) {
        told(&mut self.cut.subscribe()).await;
    }

    /// Waits until it is closed, without keeping it.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut closed = self.closed.subscribe();
        async move { told(&mut closed).await }
    }

    /// Cuts off what is under way.
    pub(super) fn cut_off(&self) {
        self.cut.send_replace(true);
    }

    /// Lets no request in any more, gives those that are under way time, cancels the rest, ends the
    /// servers and seals the record. The second one to call it does nothing.
    pub(super) async fn close(&self, drain: Duration, ending: Ending) -> Result<(), Error> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((session, alive)) = rest else { return Ok(()) };
        if ending.by == EndedBy::Stopped {
            // A record that failed says so when it is sealed.
            let _ = record_stop(&self.recorder).await;
        }
        self.busy.send_modify(|busy| busy.closing = true);
        let mut busy = self.busy.subscribe();
        if timeout(drain, busy.wait_for(|busy| busy.requests == 0)).await.is_err() {
            self.cut_off();
            let _ = timeout(CANCELLED, busy.wait_for(|busy| busy.requests == 0)).await;
        }
        // Leases end with what they were leased from.
        self.backends.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.gateway.close().await;
        let _ = timeout(SERVERS, alive.none()).await;
        self.stop.send_replace(true);
        self.rooms.close().await;
        let closed = spawn_blocking(move || session.close(Ok(()), |()| ended(&ending)));
        let closed = closed.await;
        self.closed.send_replace(true);
        closed.unwrap_or_else(|error| Err(Error::Backend(error.to_string())))
    }
}

/// What a session stands on.
struct Assembled {
    gateway: Arc<Gateway>,
    alive: Alive,
    stop: watch::Sender<bool>,
    halt: Stop,
    rooms: Rooms,
}

fn undeclared(rule: String) -> Refused {
    let next = "declare it in ringfence.toml, then ringfence lock and ringfence trust";
    Refused::new("server", "declared", rule, next.into())
}

fn ended(ending: &Ending) -> Event {
    Event::RunFinished {
        status: 0,
        ended_by: ending.by.word().into(),
        detail: ending.detail.clone(),
    }
}

/// The gateway's side of the table of leases.
struct Leases(Book);

impl LeaseBook for Leases {
    fn began(&self, lease: &Lease) -> Result<(), String> {
        let Lease { id, toolset, task, holder } = lease;
        self.0
            .began(*id, toolset.as_str(), task, holder)
            .map_err(|_| "the table of leases cannot be written".to_owned())
    }

    fn ended(&self, id: u64) {
        self.0.ended(id);
    }
}
