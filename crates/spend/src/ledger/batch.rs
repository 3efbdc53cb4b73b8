//! What waits, in one transaction.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_state::State;
use tokio::sync::{mpsc, oneshot};

use super::advance::Advance;
use super::page::Page;
use super::shelf::Shelf;
use super::{
    Account, Answer, Charge, Entry, MOST_AT_ONCE, MOST_WAITING, Reserve, Ticket, Told, fresh,
};
use crate::books::{self, Admission};
use crate::store::{self, SCHEMA};
use crate::{Error, Usd};

/// How long calls that are over wait to be written with others, where nobody waits for them.
const A_LITTLE: Duration = Duration::from_millis(50);
/// When what could not be written is tried again, where nothing else is to be written before.
const AGAIN: Duration = Duration::from_secs(1);

/// A call that is over, and is to be written down.
pub(super) struct Over {
    pub(super) entry: Entry,
    pub(super) cost: Option<Usd>,
    /// `None` once it was told, and where nobody waits for it.
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
    /// What could not be given back yet.
    back: Vec<(Arc<Account>, Advance)>,
    /// Reservations of this process in flight, by run.
    open: BTreeMap<String, usize>,
    /// Accounts with money that is set aside in advance.
    advanced: Vec<Arc<Account>>,
    pruned: bool,
}

/// Says whether a reservation got to the disk.
type Durable = oneshot::Sender<Result<(), String>>;

/// What was handed in.
#[derive(Default)]
struct Tray {
    reserves: Vec<Reserve>,
    over: Vec<Over>,
    more: Vec<(Arc<Account>, Usd)>,
    flushes: Vec<oneshot::Sender<()>>,
    /// Since when a call that is over waits for others.
    since: Option<Instant>,
}

/// What is set aside in advance once it is on disk.
struct Grant {
    account: Arc<Account>,
    day: Arc<str>,
    amount: Usd,
    rule: String,
}

/// What is in one transaction.
struct Turn {
    waiting: Vec<Option<Reserve>>,
    over: Vec<Over>,
    more: Vec<(Arc<Account>, Usd)>,
    /// What is given back of what was set aside in advance. It is not tried again once it may have reached
    /// the disk: what is not known to be given back stays spent.
    back: Vec<(Arc<Account>, Advance)>,
    /// Nothing is set aside for calls to come: it is the end.
    last: bool,
    grants: Vec<Grant>,
    /// Runs of calls that were admitted, and are not yet told.
    opened: Vec<String>,
    /// Calls that were told, and wait for the disk.
    admitted: Vec<Durable>,
}

impl Tray {
    fn put(&mut self, charge: Charge) {
        match charge {
            Charge::Over { entry, cost, told } => {
                self.since.get_or_insert_with(Instant::now);
                self.over.push(Over { entry, cost, told });
            }
            Charge::More { account, wanted } => self.more.push((account, wanted)),
            Charge::Flush(done) => self.flushes.push(done),
        }
    }

    /// Whether somebody waits for it, or it has waited long enough.
    fn is_due(&self, held: bool) -> bool {
        !self.reserves.is_empty()
            || !self.more.is_empty()
            || !self.flushes.is_empty()
            || self.over.iter().any(|one| one.told.is_some())
            || (held && !self.over.is_empty())
            || self.over.len() >= MOST_AT_ONCE
            || self.since.is_some_and(|since| since.elapsed() >= A_LITTLE)
    }
}

impl Keeper {
    pub(super) fn new(state: State, desk: mpsc::WeakUnboundedSender<Charge>) -> Self {
        let (held, late, open) = (VecDeque::new(), VecDeque::new(), BTreeMap::new());
        let (back, advanced) = (Vec::new(), Vec::new());
        Self { state, desk, held, late, back, open, advanced, pruned: false }
    }

    /// Takes what waits, as long as anybody can hand in something.
    pub(super) async fn keep(
        mut self,
        mut reserves: mpsc::Receiver<Reserve>,
        mut charges: mpsc::UnboundedReceiver<Charge>,
    ) {
        let mut tray = Tray::default();
        let mut again = None;
        loop {
            let ends = self.advanced.iter().filter_map(|account| account.until()).min();
            let due = tray.since.map(|since| since + A_LITTLE);
            let next = [ends, due, again].into_iter().flatten().min();
            tokio::select! {
                some = reserves.recv(), if !reserves.is_closed() || !reserves.is_empty() => tray.reserves.extend(some),
                some = charges.recv() => match some {
                    Some(charge) => tray.put(charge),
                    None => break,
                },
                () = until(next), if next.is_some() => {}
            }
            while tray.over.len() < MOST_AT_ONCE
                && let Ok(charge) = charges.try_recv()
            {
                tray.put(charge);
            }
            while tray.reserves.len() < MOST_AT_ONCE
                && let Ok(reserve) = reserves.try_recv()
            {
                tray.reserves.push(reserve);
            }
            self.ended(!tray.flushes.is_empty());
            let retry = again.is_some_and(|again| again <= Instant::now());
            if !retry && !tray.is_due(!self.held.is_empty()) && !self.is_giving_back(again) {
                continue;
            }
            let taken = std::mem::take(&mut tray);
            for drawn in taken.over.iter().filter(|one| one.entry.share.is_some()) {
                drawn.entry.account.landed();
            }
            // Those that were held come first, once a call is over that left them no room.
            let none_over = taken.over.is_empty() && self.back.is_empty();
            let held = if none_over { VecDeque::new() } else { std::mem::take(&mut self.held) };
            let mut wanted: Vec<Reserve> = held.into_iter().chain(taken.reserves).collect();
            wanted.retain(|reserve| !reserve.answer.is_closed());
            self.late.extend(taken.over);
            // At the end nothing is set aside for calls to come.
            let last = !taken.flushes.is_empty();
            let more = if last { Vec::new() } else { taken.more };
            self.turn(wanted, more, last).await;
            let left = !self.late.is_empty() || !self.back.is_empty();
            again = left.then(|| Instant::now() + AGAIN);
            for flush in taken.flushes {
                let _ = flush.send(());
            }
        }
        // Once more, for what could not be written.
        self.late.extend(tray.over);
        self.ended(true);
        self.turn(Vec::new(), Vec::new(), true).await;
    }

    /// Whether there is something new to be given back: what failed before waits for its time.
    fn is_giving_back(&self, again: Option<Instant>) -> bool {
        !self.back.is_empty() && again.is_none()
    }

    /// Takes what is left of advances that have had their time; of `all`, at the end.
    fn ended(&mut self, all: bool) {
        let now = Instant::now();
        let ended = &mut self.back;
        self.advanced.retain(|account| {
            let Some(until) = account.until() else { return false };
            if !all && until > now {
                return true;
            }
            ended.extend(account.reclaim().map(|left| (Arc::clone(account), left)));
            false
        });
    }

    /// One transaction; whatever fails in it, nobody is let through by it.
    async fn turn(&mut self, wanted: Vec<Reserve>, more: Vec<(Arc<Account>, Usd)>, last: bool) {
        let back = std::mem::take(&mut self.back);
        if wanted.is_empty() && self.late.is_empty() && more.is_empty() && back.is_empty() {
            return;
        }
        let mut turn = Turn {
            waiting: wanted.into_iter().map(Some).collect(),
            over: self.late.drain(..).collect(),
            more,
            back,
            last,
            grants: Vec::new(),
            opened: Vec::new(),
            admitted: Vec::new(),
        };
        // No longer in flight, whether or not it gets to the disk.
        let rows = turn.over.iter().filter(|one| one.entry.share.is_none());
        for one in rows.filter(|one| one.told.is_some()) {
            close(&mut self.open, &one.entry.account.run);
        }
        match self.write(&mut turn).await {
            Ok(()) => {
                for one in turn.over.iter().filter(|one| one.entry.costs_more(one.cost)) {
                    one.entry.account.dear_is_written();
                }
                for durable in turn.admitted {
                    let _ = durable.send(Ok(()));
                }
                for grant in turn.grants {
                    self.grant(grant);
                }
            }
            Err(error) => {
                let words = error.to_string();
                // The ledger is not to be relied on: no call is paid without it.
                for account in &self.advanced {
                    account.end();
                }
                self.back.append(&mut turn.back);
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
                    } else if one.entry.costs_more(one.cost) {
                        one.entry.account.dear_is_written();
                    }
                }
            }
        }
    }

    /// What was set aside in advance is there to be used.
    fn grant(&mut self, grant: Grant) {
        let Grant { account, day, amount, rule } = grant;
        account.grant(&day, amount, &rule);
        if !self.advanced.iter().any(|known| Arc::ptr_eq(known, &account)) {
            self.advanced.push(account);
        }
    }

    async fn write(&mut self, turn: &mut Turn) -> Result<(), Error> {
        let db = self.state.db(&SCHEMA).await?;
        if !self.pruned {
            store::prune(&db).await?;
            self.pruned = true;
        }
        // Settlements alone need not wait for the disk: lost, what was set aside stays spent.
        let durable = !turn.waiting.is_empty() || !turn.more.is_empty();
        let mut tx = if durable { db.write().await? } else { db.write_soon().await? };
        let accounts = turn.waiting.iter().flatten().map(|reserve| &reserve.order.account);
        let accounts = accounts.chain(turn.over.iter().map(|over| &over.entry.account));
        let accounts = accounts.chain(turn.more.iter().map(|(account, _)| account));
        let accounts = accounts.chain(turn.back.iter().map(|(account, _)| account));
        let mut shelf = Shelf::open(&db, &mut tx, accounts).await?;
        let mut page = Page { db: &db, tx: &mut tx, shelf: &mut shelf };
        for (account, left) in &turn.back {
            page.give_back(account, left).await?;
        }
        let mut answers = page.shares(&turn.over).await?;
        for (at, one) in turn.over.iter().enumerate() {
            if one.entry.share.is_none() {
                answers.insert(at, page.charge(one).await?);
            }
        }
        let mut said = Vec::new();
        for (at, reserve) in turn.waiting.iter().enumerate() {
            let Some(reserve) = reserve else { continue };
            let sides = Sides { grants: &mut turn.grants, back: &mut turn.back, last: turn.last };
            let one = self.admit(&mut page, reserve, sides).await?;
            if let Said::Admitted { entry, .. } = &one {
                turn.opened.push(entry.account.run.clone());
            }
            said.push((at, one));
        }
        for (account, wanted) in &turn.more {
            let sides = Sides { grants: &mut turn.grants, back: &mut turn.back, last: turn.last };
            advance(&mut page, account, *wanted, sides).await?;
        }
        shelf.write(&mut tx).await?;
        // All of it is written; what is left is the disk.
        for (at, answer) in answers {
            let Some(one) = turn.over.get_mut(at) else { continue };
            let account = &one.entry.account;
            if answer.0.is_some() {
                account.end();
            }
            account.tell(answer);
            // Whoever has gone away hears nothing: the next one does.
            if let Some(told) = one.told.take()
                && let Err(unheard) = told.send(account.told())
            {
                account.tell(unheard);
            }
        }
        // From here on each ticket says when its call is over.
        turn.opened.clear();
        for (at, said) in said {
            let Some(reserve) = turn.waiting.get_mut(at).and_then(Option::take) else { continue };
            self.answer(reserve, said, &mut turn.admitted);
        }
        // From here on it is not known whether it is given back, until it is.
        turn.back.clear();
        tx.commit().await?;
        Ok(())
    }

    async fn admit(
        &mut self,
        page: &mut Page<'_>,
        reserve: &Reserve,
        sides: Sides<'_>,
    ) -> Result<Said, Error> {
        let order = &reserve.order;
        let account = &order.account;
        let Some((day, now)) = page.today(account) else { return Ok(lost()) };
        let Some(mut scopes) = page.scopes(account, &day).await? else { return Ok(lost()) };
        let mut admission = books::admit(&account.caps, &mut scopes, order.wanted);
        let all = order.wanted.is_none() || matches!(admission, Admission::Held { .. });
        // What this process has set aside for calls to come is not missing to one that has come.
        if all && reclaim(page, account, sides.back).await? {
            let Some(again) = page.scopes(account, &day).await? else { return Ok(lost()) };
            scopes = again;
            admission = books::admit(&account.caps, &mut scopes, order.wanted);
        }
        let in_flight = self.open.contains_key(&account.run) || account.has_flying();
        let (amount, rule) = match admission {
            Admission::Spent { rule } => return Ok(Said::Refused { rule, stop: true }),
            Admission::Held { rule } if in_flight => return Ok(Said::Held { rule }),
            Admission::Held { rule } => {
                let rule = format!("{rule}, by calls that have not said what they cost");
                return Ok(Said::Refused { rule, stop: false });
            }
            Admission::Admitted { amount, rule } => (amount, rule),
        };
        page.shelf.put(account, &day, scopes);
        let (account, share) = (Arc::clone(account), None);
        let entry = Entry { id: fresh()?, account, day, reserved: amount, share };
        page.open(&entry, &order.asked, now).await?;
        let account = &entry.account;
        *self.open.entry(account.run.clone()).or_default() += 1;
        if let Some(wanted) = order.wanted
            && account.is_busy()
        {
            advance(page, account, wanted, sides).await?;
        }
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

fn lost() -> Said {
    Said::Refused { rule: "its books are not open".to_owned(), stop: false }
}

/// What of a transaction is about money in advance.
struct Sides<'a> {
    grants: &'a mut Vec<Grant>,
    back: &'a mut Vec<(Arc<Account>, Advance)>,
    last: bool,
}

/// Gives back what an account holds in advance, and keeps it in mind until that is on disk. False when it
/// holds nothing.
async fn reclaim(
    page: &mut Page<'_>,
    account: &Arc<Account>,
    back: &mut Vec<(Arc<Account>, Advance)>,
) -> Result<bool, Error> {
    let Some(left) = account.reclaim() else { return Ok(false) };
    let given = page.give_back(account, &left).await;
    back.push((Arc::clone(account), left));
    given.map(|()| true)
}

/// Sets aside in advance for calls that cost at most so much, where there is enough: once in a
/// transaction.
async fn advance(
    page: &mut Page<'_>,
    account: &Arc<Account>,
    wanted: Usd,
    sides: Sides<'_>,
) -> Result<(), Error> {
    let granted = sides.grants.iter().any(|grant| Arc::ptr_eq(&grant.account, account));
    if sides.last || granted {
        return Ok(());
    }
    let Some((day, _)) = page.today(account) else { return Ok(()) };
    // Yesterday's is of no use today.
    if account.day().is_some_and(|other| other != day) {
        reclaim(page, account, sides.back).await?;
    }
    let Some(mut scopes) = page.scopes(account, &day).await? else { return Ok(()) };
    let Some(amount) = account.more(wanted, &scopes) else { return Ok(()) };
    if let Admission::Admitted { amount, rule } =
        books::admit(&account.caps, &mut scopes, Some(amount))
    {
        page.shelf.put(account, &day, scopes);
        sides.grants.push(Grant { account: Arc::clone(account), day, amount, rule });
    }
    Ok(())
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
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
