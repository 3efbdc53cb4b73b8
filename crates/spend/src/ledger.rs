//! The ledger of a process: one task that takes what waits into one transaction.

mod batch;
mod shelf;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ringfence_state::State;
use tokio::sync::{OnceCell, mpsc, oneshot};

use crate::purse::Asked;
use crate::{Caps, Usd};

/// The most calls that wait for the ledger in one process; one more is refused.
const MOST_WAITING: usize = 4096;
/// The most orders of one transaction.
const MOST_AT_ONCE: usize = 256;

/// The ledger, as one process uses it. Cheap to clone. Nothing is opened, and no task begun, before the
/// first call that costs something.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

struct Inner {
    state: State,
    desk: OnceCell<Desk>,
}

/// Where orders are handed in. Charges never wait for room: there are no more of them than calls.
#[derive(Clone)]
struct Desk {
    reserve: mpsc::Sender<Reserve>,
    charge: mpsc::UnboundedSender<Charge>,
}

/// Whose money, of which run, and how much there is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) who: String,
    pub(crate) run: String,
    /// Where the cap of one run counts: whose book, and the run in it. Its own, but where a process has
    /// several runs and one budget for all of them.
    pub(crate) counted: (String, String),
    pub(crate) caps: Caps,
}

/// A call that wants money.
pub(crate) struct Order {
    pub(crate) account: Arc<Account>,
    pub(crate) asked: Asked,
    /// `None`: all that is left.
    pub(crate) wanted: Option<Usd>,
}

/// What came of it.
pub(crate) enum Answer {
    Reserved {
        ticket: Ticket,
        amount: Usd,
        rule: String,
        durable: oneshot::Receiver<Result<(), String>>,
    },
    Refused {
        rule: String,
        stop: bool,
    },
}

struct Reserve {
    order: Order,
    answer: oneshot::Sender<Answer>,
}

/// Why the run is to be stopped, and what a person is to be warned of.
pub(crate) type Told = (Option<String>, Option<String>);

enum Charge {
    /// A call is over. `None`: it never went out.
    Over { entry: Entry, cost: Option<Usd>, told: oneshot::Sender<Told> },
    /// Somebody wants everything before it to be on disk.
    Flush(oneshot::Sender<()>),
}

/// A row of the ledger that is open.
#[derive(Clone)]
struct Entry {
    id: String,
    account: Arc<Account>,
    day: String,
    reserved: Usd,
}

/// The right to settle an open row, once. Dropped before its call was sent, it gives all of it back;
/// dropped later, all of it is spent.
pub(crate) struct Ticket {
    /// `None` once it is settled.
    entry: Option<Entry>,
    desk: mpsc::UnboundedSender<Charge>,
    sent: bool,
}

impl Ticket {
    fn new(entry: Entry, desk: mpsc::UnboundedSender<Charge>) -> Self {
        Self { entry: Some(entry), desk, sent: false }
    }

    /// Whether a server may have done something with its call.
    pub(crate) fn sent(&mut self, sent: bool) {
        self.sent = sent;
    }

    /// Charges a cost. It is under way when this returns.
    pub(crate) fn settle(self, cost: Usd) -> oneshot::Receiver<Told> {
        self.over(Some(cost))
    }

    /// Gives all of it back.
    pub(crate) fn release(self) -> oneshot::Receiver<Told> {
        self.over(None)
    }

    fn over(mut self, cost: Option<Usd>) -> oneshot::Receiver<Told> {
        let (told, hears) = oneshot::channel();
        if let Some(entry) = self.entry.take() {
            // Without a desk it stays set aside, which is spent.
            let _ = self.desk.send(Charge::Over { entry, cost, told });
        }
        hears
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let cost = self.sent.then_some(entry.reserved);
            let (told, _) = oneshot::channel();
            let _ = self.desk.send(Charge::Over { entry, cost, told });
        }
    }
}

impl Ledger {
    /// Over shared state. Does no I/O.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self { inner: Arc::new(Inner { state, desk: OnceCell::new() }) }
    }

    /// The database, as a person reads it.
    #[must_use]
    pub fn place(&self) -> String {
        self.inner.state.place()
    }

    pub(crate) async fn reserve(&self, order: Order) -> Answer {
        let desk = self.desk().await;
        let (answer, hears) = oneshot::channel();
        let refused = |rule: &str| Answer::Refused { rule: rule.to_owned(), stop: false };
        if desk.reserve.try_send(Reserve { order, answer }).is_err() {
            return refused("more calls wait for the ledger than it takes");
        }
        hears.await.unwrap_or_else(|_| refused("the ledger has ended"))
    }

    /// Waits until every settlement that was handed in is on disk, or could not be written: at the end
    /// of a run.
    pub async fn flush(&self) {
        if let Some(desk) = self.inner.desk.get() {
            let (done, waits) = oneshot::channel();
            if desk.charge.send(Charge::Flush(done)).is_ok() {
                let _ = waits.await;
            }
        }
    }

    async fn desk(&self) -> &Desk {
        let begin = || async {
            let (reserve, reserves) = mpsc::channel(MOST_WAITING);
            let (charge, charges) = mpsc::unbounded_channel();
            let keeper = batch::Keeper::new(self.inner.state.clone(), charge.downgrade());
            tokio::spawn(keeper.keep(reserves, charges));
            Desk { reserve, charge }
        };
        self.inner.desk.get_or_init(begin).await
    }
}
