//! What waits, in one transaction.

use std::collections::{BTreeMap, VecDeque};

use ringfence_state::{Cell, Db, State, Tx};
use tokio::sync::{mpsc, oneshot};

use super::shelf::Shelf;
use super::{Answer, Charge, Entry, MOST_AT_ONCE, MOST_WAITING, Reserve, Ticket, Told};
use crate::books::{self, Admission};
use crate::store::{self, SCHEMA};
use crate::{Error, Usd};

/// A call that is over, and is to be written down.
struct Over {
    entry: Entry,
    cost: Option<Usd>,
    /// `None` once it was told.
    told: Option<oneshot::Sender<Told>>,
}

/// The task that keeps the books.
pub(super) struct Keeper {
    state: State,
    /// For tickets. Weak, so that the task ends with the last ledger and the last ticket.
    desk: mpsc::WeakUnboundedSender<Charge>,
    /// Calls that another one of this process, in flight, leaves no room for: in their order.
    held: VecDeque<Reserve>,
    /// Charges that could not be written yet.
    late: VecDeque<Over>,
    /// Reservations of this process in flight, by run.
    open: BTreeMap<String, usize>,
    pruned: bool,
}

/// Says whether a reservation got to the disk.
type Durable = oneshot::Sender<Result<(), String>>;

/// What is in one transaction.
struct Turn {
    waiting: Vec<Option<Reserve>>,
    over: Vec<Over>,
    /// Runs of calls that were admitted, and are not yet told.
    opened: Vec<String>,
    /// Calls that were told, and wait for the disk.
    admitted: Vec<Durable>,
}

impl Keeper {
    pub(super) fn new(state: State, desk: mpsc::WeakUnboundedSender<Charge>) -> Self {
        let (held, late, open) = (VecDeque::new(), VecDeque::new(), BTreeMap::new());
        Self { state, desk, held, late, open, pruned: false }
    }

    /// Takes what waits, as long as anybody can hand in something.
    pub(super) async fn keep(
        mut self,
        mut reserves: mpsc::Receiver<Reserve>,
        mut charges: mpsc::UnboundedReceiver<Charge>,
    ) {
        let (mut first, mut over) = (Vec::new(), Vec::new());
        let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
        loop {
            tokio::select! {
                some = reserves.recv(), if !reserves.is_closed() || !reserves.is_empty() => first.extend(some),
                some = charges.recv() => match some {
                    Some(charge) => take(charge, &mut over, &mut flushes),
                    None => break,
                },
            }
            while over.len() < MOST_AT_ONCE
                && let Ok(charge) = charges.try_recv()
            {
                take(charge, &mut over, &mut flushes);
            }
            // Those that were held come first, once a call is over that left them no room.
            let again =
                if over.is_empty() { VecDeque::new() } else { std::mem::take(&mut self.held) };
            let mut wanted: Vec<Reserve> = again.into_iter().chain(first.drain(..)).collect();
            while wanted.len() < MOST_AT_ONCE
                && let Ok(reserve) = reserves.try_recv()
            {
                wanted.push(reserve);
            }
            wanted.retain(|reserve| !reserve.answer.is_closed());
            self.late.extend(over.drain(..));
            self.turn(wanted).await;
            for flush in flushes.drain(..) {
                let _ = flush.send(());
            }
        }
        // Once more, for what could not be written.
        self.turn(Vec::new()).await;
    }

    /// One transaction; whatever fails in it, nobody is let through by it.
    async fn turn(&mut self, wanted: Vec<Reserve>) {
        if wanted.is_empty() && self.late.is_empty() {
            return;
        }
        let mut turn = Turn {
            waiting: wanted.into_iter().map(Some).collect(),
            over: self.late.drain(..).collect(),
            opened: Vec::new(),
            admitted: Vec::new(),
        };
        // No longer in flight, whether or not it gets to the disk.
        for one in turn.over.iter().filter(|one| one.told.is_some()) {
            close(&mut self.open, &one.entry.account.run);
        }
        match self.write(&mut turn).await {
            Ok(()) => {
                for durable in turn.admitted {
                    let _ = durable.send(Ok(()));
                }
            }
            Err(error) => {
                let words = error.to_string();
                turn.opened.iter().for_each(|run| close(&mut self.open, run));
                for durable in turn.admitted {
                    // It may be in the ledger all the same; then it stays there, as spent.
                    let _ = durable.send(Err(words.clone()));
                }
                for one in turn.waiting.into_iter().flatten() {
                    let _ = one.answer.send(Answer::Refused { rule: words.clone(), stop: false });
                }
                for mut one in turn.over {
                    if let Some(told) = one.told.take() {
                        let _ = told.send((None, None));
                    }
                    // What finds no room here stays set aside, which is spent.
                    if self.late.len() < MOST_WAITING {
                        self.late.push_back(one);
                    }
                }
            }
        }
    }

    async fn write(&mut self, turn: &mut Turn) -> Result<(), Error> {
        let db = self.state.db(&SCHEMA).await?;
        if !self.pruned {
            store::prune(&db).await?;
            self.pruned = true;
        }
        // Settlements alone need not wait for the disk: lost, what was set aside stays spent.
        let durable = !turn.waiting.is_empty();
        let mut tx = if durable { db.write().await? } else { db.write_soon().await? };
        let accounts = turn.waiting.iter().flatten().map(|reserve| &reserve.order.account);
        let accounts = accounts.chain(turn.over.iter().map(|over| &over.entry.account));
        let mut shelf = Shelf::open(&db, &mut tx, accounts).await?;
        let mut answers = Vec::new();
        for one in &turn.over {
            answers.push(charge(&db, &mut tx, &mut shelf, one).await?);
        }
        let mut said = Vec::new();
        for (at, reserve) in turn.waiting.iter().enumerate() {
            let Some(reserve) = reserve else { continue };
            let one = self.admit(&db, &mut tx, &mut shelf, reserve).await?;
            if let Said::Admitted { entry, .. } = &one {
                turn.opened.push(entry.account.run.clone());
            }
            said.push((at, one));
        }
        shelf.write(&mut tx).await?;
        // All of it is written; what is left is the disk.
        for (one, answer) in turn.over.iter_mut().zip(answers) {
            if let Some(told) = one.told.take() {
                let _ = told.send(answer);
            }
        }
        // From here on each ticket says when its call is over.
        turn.opened.clear();
        for (at, said) in said {
            let Some(reserve) = turn.waiting.get_mut(at).and_then(Option::take) else { continue };
            self.answer(reserve, said, &mut turn.admitted);
        }
        tx.commit().await?;
        Ok(())
    }

    async fn admit(
        &mut self,
        db: &Db,
        tx: &mut Tx,
        shelf: &mut Shelf,
        reserve: &Reserve,
    ) -> Result<Said, Error> {
        let order = &reserve.order;
        let account = &order.account;
        let lost = || Said::Refused { rule: "its books are not open".to_owned(), stop: false };
        let Some((day, now)) = shelf.of(account).map(|book| (book.day.clone(), book.now)) else {
            return Ok(lost());
        };
        let Some(mut scopes) = shelf.read(db, tx, account, &day).await? else {
            return Ok(lost());
        };
        let (amount, rule) = match books::admit(&account.caps, &mut scopes, order.wanted) {
            Admission::Spent { rule } => return Ok(Said::Refused { rule, stop: true }),
            Admission::Held { rule } if self.open.contains_key(&account.run) => {
                return Ok(Said::Held { rule });
            }
            Admission::Held { rule } => {
                let rule = format!("{rule}, by calls that have not said what they cost");
                return Ok(Said::Refused { rule, stop: false });
            }
            Admission::Admitted { amount, rule } => (amount, rule),
        };
        shelf.put(account, &day, scopes);
        let entry = Entry { id: fresh()?, account: account.clone(), day, reserved: amount };
        let insert =
            "INSERT INTO spend_calls (id, who, run, day, server, tool, call, reserved, result, at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'open', $9)";
        let cells = [
            entry.id.as_str().into(),
            account.who.as_str().into(),
            account.run.as_str().into(),
            entry.day.as_str().into(),
            order.asked.server.as_str().into(),
            order.asked.tool.as_str().into(),
            Cell::Int(i64::try_from(order.asked.call).unwrap_or(i64::MAX)),
            Cell::Int(amount.column()),
            Cell::Int(now),
        ];
        tx.execute(insert, &cells).await?;
        *self.open.entry(account.run.clone()).or_default() += 1;
        Ok(Said::Admitted { entry, rule })
    }

    fn answer(&mut self, reserve: Reserve, said: Said, admitted: &mut Vec<Durable>) {
        match said {
            Said::Refused { rule, stop } => {
                let _ = reserve.answer.send(Answer::Refused { rule, stop });
            }
            Said::Held { .. } if self.held.len() < MOST_WAITING => self.held.push_back(reserve),
            Said::Held { rule } => {
                let _ = reserve.answer.send(Answer::Refused { rule, stop: false });
            }
            Said::Admitted { entry, rule } => {
                let (durable, waits) = oneshot::channel();
                admitted.push(durable);
                let Some(desk) = self.desk.upgrade() else { return };
                let amount = entry.reserved;
                let ticket = Ticket::new(entry, desk);
                let sent = Answer::Reserved { ticket, amount, rule, durable: waits };
                // Where nobody waits any more, the ticket is dropped, now or with what it was sent in: the
                // call cannot have gone out, and all of it is given back.
                let _ = reserve.answer.send(sent);
            }
        }
    }
}

enum Said {
    Admitted { entry: Entry, rule: String },
    Held { rule: String },
    Refused { rule: String, stop: bool },
}

fn take(charge: Charge, over: &mut Vec<Over>, flushes: &mut Vec<oneshot::Sender<()>>) {
    match charge {
        Charge::Over { entry, cost, told } => over.push(Over { entry, cost, told: Some(told) }),
        Charge::Flush(done) => flushes.push(done),
    }
}

fn close(open: &mut BTreeMap<String, usize>, run: &str) {
    if let Some(count) = open.get_mut(run) {
        *count -= 1;
        if *count == 0 {
            open.remove(run);
        }
    }
}

/// Closes a row, once: one that is closed already changes nothing.
async fn charge(db: &Db, tx: &mut Tx, shelf: &mut Shelf, over: &Over) -> Result<Told, Error> {
    let Entry { id, account, day, reserved } = &over.entry;
    let set = "UPDATE spend_calls SET cost = $2, result = $3 WHERE id = $1 AND result = 'open'";
    let (cost, result) = match over.cost {
        Some(cost) => (Some(cost.column()), "charged"),
        None => (Some(0), "released"),
    };
    let cells = [id.as_str().into(), Cell::from(cost), result.into()];
    if tx.execute(set, &cells).await? != 1 {
        return Ok((None, None));
    }
    // In the period that it was set aside in, whatever day it is now.
    let Some(mut scopes) = shelf.read(db, tx, account, day).await? else {
        return Ok((None, None));
    };
    let told = match over.cost {
        Some(cost) => books::charge(&account.caps, &mut scopes, *reserved, cost),
        None => {
            books::release(&mut scopes, *reserved);
            (None, None)
        }
    };
    shelf.put(account, day, scopes);
    Ok(told)
}

/// 128 random bits.
fn fresh() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
