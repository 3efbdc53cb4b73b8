//! The ledger of a process: one task that takes what waits into one transaction.

mod advance;
mod batch;
mod page;
mod shelf;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ringfence_state::State;
use tokio::sync::{OnceCell, mpsc, oneshot};

use crate::purse::Asked;
use crate::{Error, Usd};

pub(crate) use advance::Account;

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

/// A call that wants money.
pub(crate) struct Order {
    pub(crate) account: Arc<Account>,
    pub(crate) asked: Asked,
    /// `None`: all that is left.
    pub(crate) wanted: Option<Usd>,
}

/// What came of it.
pub(crate) enum Answer {
    /// It is set aside, on disk.
    Paid {
        ticket: Ticket,
        amount: Usd,
        rule: String,
    },
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
    Over { entry: Entry, cost: Option<Usd>, told: Option<oneshot::Sender<Told>> },
    /// More is wanted in advance, for calls that cost at most so much.
    More { account: Arc<Account>, wanted: Usd },
    /// Somebody wants everything before it to be on disk.
    Flush(oneshot::Sender<()>),
}

/// What is set aside for one call.
#[derive(Clone)]
struct Entry {
    id: String,
    account: Arc<Account>,
    day: Arc<str>,
    reserved: Usd,
    /// Where it is paid from an advance, what its row will say. Else it has an open row already.
    share: Option<Asked>,
}

impl Entry {
    /// Whether a call cost more than was set aside for it.
    fn costs_more(&self, cost: Option<Usd>) -> bool {
        cost.is_some_and(|cost| cost > self.reserved)
    }
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
    pub(crate) fn settle(self, cost: Usd) -> Hears {
        self.over(Some(cost))
    }

    /// Gives all of it back.
    pub(crate) fn release(mut self) -> Option<oneshot::Receiver<Told>> {
        hand_in(&self.desk, self.entry.take()?, None)
    }

    fn over(mut self, cost: Option<Usd>) -> Hears {
        let Some(entry) = self.entry.take() else { return Hears::Now(Told::default()) };
        let account = Arc::clone(&entry.account);
        hand_in(&self.desk, entry, cost).map_or_else(|| Hears::Now(account.told()), Hears::Later)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let cost = self.sent.then_some(entry.reserved);
            drop(hand_in(&self.desk, entry, cost));
        }
    }
}

/// What is said to a settlement, and when.
pub(crate) enum Hears {
    Now(Told),
    Later(oneshot::Receiver<Told>),
}

impl Hears {
    pub(crate) async fn told(self) -> Told {
        match self {
            Self::Now(told) => told,
            Self::Later(hears) => hears.await.unwrap_or_default(),
        }
    }
}

/// Hands in that a call is over. `None` where nobody has to wait: what was set aside in advance was enough,
/// so no cap is crossed. Without a desk it stays set aside, which is spent.
fn hand_in(
    desk: &mpsc::UnboundedSender<Charge>,
    entry: Entry,
    cost: Option<Usd>,
) -> Option<oneshot::Receiver<Told>> {
    let more = entry.costs_more(cost);
    if more {
        entry.account.dear();
    }
    let (told, hears) = if entry.share.is_some() && !more {
        (None, None)
    } else {
        let (told, hears) = oneshot::channel();
        (Some(told), Some(hears))
    };
    let _ = desk.send(Charge::Over { entry, cost, told });
    hears
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
        if let Some(paid) = draw(desk, &order) {
            return paid;
        }
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

/// Pays a call from what was set aside in advance, where that is enough.
fn draw(desk: &Desk, order: &Order) -> Option<Answer> {
    let amount = order.wanted?;
    // Without randomness it goes the other way, which says so.
    let id = fresh().ok()?;
    let account = &order.account;
    let drawn = account.draw(amount)?;
    if drawn.low {
        let _ = desk.charge.send(Charge::More { account: Arc::clone(account), wanted: amount });
    }
    let (account, share) = (Arc::clone(account), Some(order.asked.clone()));
    let entry = Entry { id, account, day: drawn.day, reserved: amount, share };
    let ticket = Ticket::new(entry, desk.charge.clone());
    Some(Answer::Paid { ticket, amount, rule: drawn.rule.to_string() })
}

/// 128 random bits, hexadecimal.
fn fresh() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
