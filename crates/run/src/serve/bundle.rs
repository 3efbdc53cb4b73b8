//! A folder as it is served: asked before each request whether it still is what was trusted. When its
//! bytes or the machine's rules are others, a new session takes over, and the old one is drained and
//! sealed. A folder that is not trusted starts, contacts and resolves nothing.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ringfence_record::Event;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use super::Wish;
use super::files::Print;
use super::open::{Ending, Open, Use};
use super::refused::Refused;
use crate::execute::EndedBy;
use crate::{Error, Plan, live};

/// Why nothing is served may lie outside the files that are looked at (a program, a pinned skill): it
/// is asked again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// A look at the files of so short a time ago is as good as one that is under way.
const LATELY: Duration = Duration::from_millis(1);
/// How often the record's size and the files are looked at while nobody asks.
const LOOK: Duration = Duration::from_secs(2);
/// Bytes of a session's record; then another takes over.
const RECORD: u64 = 256 << 20;

/// One folder, for as long as the program serves it.
pub(super) struct Served {
    wish: Wish,
    now: RwLock<Now>,
    opening: tokio::sync::Mutex<()>,
    /// Counts what took over.
    changed: watch::Sender<u64>,
    clients: watch::Sender<u64>,
    draining: Mutex<JoinSet<()>>,
}

struct Now {
    print: Option<Print>,
    at: Instant,
    standing: Standing,
    /// When the files were last found to be the same.
    looked: Mutex<Option<Instant>>,
}

impl Now {
    fn new(print: Option<Print>, standing: Standing) -> Self {
        Self { print, at: Instant::now(), standing, looked: Mutex::default() }
    }

    /// Whether the files are as they were, within the last millisecond.
    fn is_same(&self, project: &Path, home: &Path) -> bool {
        let begun = Instant::now();
        let looked = || self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked().is_some_and(|at| begun.saturating_duration_since(at) < LATELY) {
            return true;
        }
        let same = self.print.as_ref().is_some_and(|print| print.holds(project, home));
        *looked() = same.then_some(begun);
        same
    }
}

#[derive(Clone)]
enum Standing {
    /// Nobody has asked yet.
    Unseen,
    Open(Arc<Open>),
    Refused(Arc<Refused>),
    /// Nothing is served any more, whatever changes.
    Over(Arc<Refused>),
}

/// A client that is connected, until dropped.
pub(super) struct Connected(Arc<Served>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.clients.send_modify(|clients| *clients -= 1);
    }
}

impl Served {
    /// Reads nothing yet. Looks after itself for as long as it lives, on this runtime.
    pub(super) fn new(wish: Wish) -> Arc<Self> {
        let now = Now::new(None, Standing::Unseen);
        let served = Arc::new(Self {
            wish,
            now: RwLock::new(now),
            opening: tokio::sync::Mutex::default(),
            changed: watch::Sender::new(0),
            clients: watch::Sender::new(0),
            draining: Mutex::default(),
        });
        tokio::spawn(tell(Arc::downgrade(&served), served.clients.subscribe()));
        served
    }

    pub(super) fn wish(&self) -> &Wish {
        &self.wish
    }

    /// Told when what is served is another.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn connect(self: &Arc<Self>) -> Connected {
        self.clients.send_modify(|clients| *clients += 1);
        Connected(Arc::clone(self))
    }

    /// The session for a request that begins now, or why there is none.
    pub(super) async fn current(self: &Arc<Self>) -> Result<Use, Arc<Refused>> {
        if let Some(found) = self.standing() {
            return found;
        }
        let _one_looks = self.opening.lock().await;
        match self.standing() {
            Some(found) => found,
            None => self.look().await,
        }
    }

    /// Looks again at the files, as after a signal. Says how it stands.
    pub(super) async fn reload(self: &Arc<Self>) -> Result<(), Arc<Refused>> {
        let _one_looks = self.opening.lock().await;
        self.look().await.map(drop)
    }

    /// While nobody asks: whether somebody who listens is to be told of a change.
    pub(super) async fn glance(self: &Arc<Self>) {
        let same = {
            let now = self.read();
            let request = &self.wish.request;
            matches!(now.standing, Standing::Over(_))
                || now.print.as_ref().is_some_and(|p| p.holds(&request.project, &request.home))
        };
        if !same {
            let _ = self.reload().await;
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Now> {
        self.now.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stands where nothing has changed since it was looked at.
    fn standing(&self) -> Option<Result<Use, Arc<Refused>>> {
        let now = self.read();
        let request = &self.wish.request;
        let same = || now.is_same(&request.project, &request.home);
        match &now.standing {
            Standing::Over(refused) => Some(Err(Arc::clone(refused))),
            Standing::Open(open) if same() => open.enter().map(Ok),
            Standing::Refused(refused) if now.at.elapsed() < AGAIN && same() => {
                Some(Err(Arc::clone(refused)))
            }
            _ => None,
        }
    }

    /// Reads everything anew. One at a time.
    async fn look(self: &Arc<Self>) -> Result<Use, Arc<Refused>> {
        let print = Print::of(&self.wish.request.project, &self.wish.request.home);
        let before = self.read().standing.clone();
        if let Standing::Over(refused) = &before {
            return Err(Arc::clone(refused));
        }
        let wish = self.wish.clone();
        let open = match &before {
            Standing::Open(open) => Some(Arc::clone(open)),
            _ => None,
        };
        let standing = match next(wish, open).await {
            Ok(open) => Standing::Open(open),
            Err(error) => {
                let refused = Refused::of(&error, &self.wish.request.project);
                match &before {
                    Standing::Refused(known) if **known == refused => before.clone(),
                    _ => {
                        (self.wish.say)(&format!("nothing is served: {}", refused.words()));
                        Standing::Refused(Arc::new(refused))
                    }
                }
            }
        };
        self.stand(print, &before, standing.clone());
        match standing {
            Standing::Open(open) => open.enter().ok_or_else(|| {
                let next = "ask again".to_owned();
                Arc::new(Refused::new("session", "builtin", "it is closing".into(), next))
            }),
            Standing::Refused(refused) | Standing::Over(refused) => Err(refused),
            Standing::Unseen => unreachable!("it was looked at"),
        }
    }

    /// Puts what was found in place. What stood before is drained meanwhile.
    fn stand(self: &Arc<Self>, print: Print, before: &Standing, standing: Standing) {
        let other = match (before, &standing) {
            (Standing::Open(before), Standing::Open(now)) => !Arc::ptr_eq(before, now),
            (Standing::Refused(_), Standing::Refused(_)) => false,
            _ => true,
        };
        {
            let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
            // Closed meanwhile.
            if let (Standing::Over(_), Standing::Open(open)) = (&now.standing, &standing) {
                self.drain(Arc::clone(open), Ending::new(EndedBy::Stopped, "before it began"));
                return;
            }
            *now = Now::new(Some(print), standing.clone());
        }
        if !other {
            return;
        }
        if let Standing::Open(open) = &standing {
            live::tell(&self.wish.request.home, &open.run, *self.clients.borrow());
            tokio::spawn(watch_over(Arc::downgrade(self), Arc::clone(open)));
        }
        if let Standing::Open(before) = before {
            let detail = match &standing {
                Standing::Open(now) => {
                    format!("the bundle or the rules changed: run {} took over", now.run)
                }
                _ => "the bundle is no longer what was trusted, or the rules refuse it".to_owned(),
            };
            self.drain(Arc::clone(before), Ending::new(EndedBy::Exit, detail));
        }
        if !matches!(before, Standing::Unseen) {
            self.changed.send_modify(|changes| *changes += 1);
        }
    }

    fn drain(&self, open: Arc<Open>, ending: Ending) {
        let (drain, say) = (self.wish.drain, Arc::clone(&self.wish.say));
        let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        while draining.try_join_next().is_some() {}
        draining.spawn(async move {
            if let Err(error) = open.close(drain, ending).await {
                say(&format!("run {}: {error}", open.run));
            }
        });
    }

    /// Nothing is served from now on. What was is drained in the background.
    fn over(self: &Arc<Self>, refused: Refused, ending: Ending) {
        let before = {
            let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
            let over = Standing::Over(Arc::new(refused));
            match now.standing {
                Standing::Over(_) => return,
                _ => std::mem::replace(&mut now.standing, over),
            }
        };
        if let Standing::Open(open) = before {
            self.drain(open, ending);
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Cuts off what is under way now.
    pub(super) fn cut_off(&self) {
        if let Standing::Open(open) = &self.read().standing {
            open.cut_off();
        }
    }

    /// A client's session is carried by no connection any more.
    pub(super) fn away(&self, session: &str) {
        if let Standing::Open(open) = &self.read().standing {
            open.away(session);
        }
    }

    /// A client's session has ended.
    pub(super) fn ended(&self, session: &str) {
        if let Standing::Open(open) = &self.read().standing {
            open.ended(session);
        }
    }

    /// Nobody asks for this folder now: its session ends, and the next request opens another.
    pub(super) fn rest(&self) {
        let before = {
            let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
            match now.standing {
                Standing::Open(_) => std::mem::replace(&mut now.standing, Standing::Unseen),
                _ => return,
            }
        };
        if let Standing::Open(open) = before {
            self.drain(open, Ending::new(EndedBy::Exit, "the client went to another folder"));
        }
    }

    /// Ends what is served, and waits until every record is sealed.
    pub(super) async fn close(self: &Arc<Self>, ending: Ending) {
        let next = "start it again".to_owned();
        let refused = Refused::new("session", "builtin", "it has ended".into(), next);
        self.over(refused, ending);
        loop {
            let mut draining = {
                let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *draining)
            };
            if draining.is_empty() {
                return;
            }
            while draining.join_next().await.is_some() {}
        }
    }
}

/// What is to be served now: the session that is open, where nothing that it stands on is another.
async fn next(wish: Wish, open: Option<Arc<Open>>) -> Result<Arc<Open>, Error> {
    let begin = wish.clone();
    let looking = spawn_blocking(move || plan(&wish, open));
    match looking.await.unwrap_or_else(|error| Err(Error::Backend(error.to_string())))? {
        Next::Same(open) => Ok(open),
        Next::Other(plan) => Open::begin(*plan, &begin).await,
    }
}

enum Next {
    Same(Arc<Open>),
    Other(Box<Plan>),
}

fn plan(wish: &Wish, open: Option<Arc<Open>>) -> Result<Next, Error> {
    match (Plan::serving(&wish.request, wish.words.clone()), open) {
        (Ok(plan), Some(open)) if plan.same(&open.plan) => Ok(Next::Same(open)),
        (Ok(plan), _) => Ok(Next::Other(Box::new(plan))),
        // A reload that fails keeps the rules that hold, for a bundle that is trusted still.
        (Err(error @ Error::Policy(ringfence_policy::Error::Machine(_))), Some(open))
            if open.plan.store.still(&open.plan.bundle) =>
        {
            (wish.say)(&format!("the rules stay as they were: {error}"));
            Ok(Next::Same(open))
        }
        (Err(error), _) => Err(error),
    }
}

/// Ends a session that can go on no longer.
async fn watch_over(served: std::sync::Weak<Served>, open: Arc<Open>) {
    let (halt, recorder) = (open.halt.clone(), open.recorder.clone());
    let closed = open.closed();
    drop(open);
    tokio::pin!(closed);
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = &mut closed => return,
            halt = halt.wait() => {
                let Some(served) = served.upgrade() else { return };
                let next = "look at it with ringfence report last, then start it again".to_owned();
                let refused = Refused::new(halt.limit, "declared", halt.detail.clone(), next);
                let by = match halt.limit {
                    "approval" => EndedBy::Approval,
                    _ => EndedBy::Limit,
                };
                let (limit, detail) = (halt.limit.into(), halt.detail.clone());
                // A record that fails says so itself; nothing goes through any more.
                let _ = recorder.commit(Event::LimitReached { limit, detail }).await;
                served.over(refused, Ending::new(by, halt.detail));
                return;
            }
            reason = recorder.failed() => {
                let Some(served) = served.upgrade() else { return };
                served.renew(&recorder, &format!("the record failed: {reason}"), EndedBy::Error);
                return;
            }
            _ = look.tick() => {
                if recorder.bytes() > RECORD {
                    let Some(served) = served.upgrade() else { return };
                    served.renew(&recorder, "its record is full", EndedBy::Exit);
                    return;
                }
            }
        }
    }
}

impl Served {
    /// The next request opens another session.
    fn renew(self: &Arc<Self>, of: &ringfence_record::Recorder, why: &str, by: EndedBy) {
        let before = {
            let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
            match &now.standing {
                Standing::Open(open) if open.recorder.run() == of.run() => {
                    // A budget for one run is not made anew by filling its record.
                    if open.plan.manifest().spending.max_per_run_usd.is_some()
                        && by == EndedBy::Exit
                    {
                        drop(now);
                        let next = "start it again".to_owned();
                        let refused = Refused::new("record", "builtin", why.to_owned(), next);
                        self.over(refused, Ending::new(EndedBy::Limit, why));
                        return;
                    }
                    now.print = None;
                    std::mem::replace(&mut now.standing, Standing::Unseen)
                }
                _ => return,
            }
        };
        if let Standing::Open(open) = before {
            self.drain(open, Ending::new(by, why));
        }
        self.changed.send_modify(|changes| *changes += 1);
    }
}

/// Keeps the number of clients where `ps` finds it.
async fn tell(served: std::sync::Weak<Served>, mut clients: watch::Receiver<u64>) {
    let mut changes = match served.upgrade() {
        Some(served) => served.changes(),
        None => return,
    };
    loop {
        let number = *clients.borrow_and_update();
        {
            let Some(served) = served.upgrade() else { return };
            let open = match &served.read().standing {
                Standing::Open(open) => Some(Arc::clone(open)),
                _ => None,
            };
            if let Some(open) = open {
                live::tell(&served.wish.request.home, &open.run, number);
            }
        }
        let next = async {
            tokio::select! {
                changed = clients.changed() => changed.is_ok(),
                changed = changes.changed() => changed.is_ok(),
            }
        };
        if !next.await {
            return;
        }
        // However many come and go, it is written so often at most.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
