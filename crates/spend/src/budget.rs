//! The budget of one run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::ledger::{Account, Answer, Ledger, Order};
use crate::purse::{Asked, Boxed, Early, Held, Pending, Purse, Reservation, Settled, Verdict};
use crate::{Caps, Price, Usd};

/// The budget of one run: what its servers' calls cost, and how much they may.
pub struct Budget {
    ledger: Ledger,
    account: Arc<Account>,
    prices: BTreeMap<String, Arc<Price>>,
}

impl Budget {
    /// `who` is what days and months are counted by: the agent's DID, or the machine's where a bundle
    /// has none. `prices` are by server. Does no I/O: the ledger is opened by the first priced call.
    #[must_use]
    pub fn new(
        ledger: Ledger,
        who: &str,
        run: &str,
        caps: Caps,
        prices: impl IntoIterator<Item = (String, Price)>,
    ) -> Self {
        let counted = (who.to_owned(), run.to_owned());
        let account = Arc::new(Account::new(who, run, counted, caps));
        let prices = prices.into_iter().map(|(server, price)| (server, Arc::new(price))).collect();
        Self { ledger, account, prices }
    }

    /// Counts what the cap of one run is held against in the sum of this run of this holder: for a
    /// process that has several runs one after the other, each of its own folder, and one budget for
    /// all of them.
    #[must_use]
    pub fn counted_with(self, who: &str, run: &str) -> Self {
        let Account { who: whose, run: own, caps, .. } = &*self.account;
        let counted = (who.to_owned(), run.to_owned());
        Self { account: Arc::new(Account::new(whose, own, counted, caps.clone())), ..self }
    }

    async fn ask(&self, asked: Asked) -> Early {
        let free = |rule: &str| Early::Known(Verdict::Free { rule: rule.to_owned() });
        let Some(price) = self.prices.get(&asked.server) else {
            return free("the server has no price");
        };
        if self.account.caps.is_empty() {
            return free("no spending cap");
        }
        let order = Order { account: self.account.clone(), asked, wanted: price.max_per_call };
        match self.ledger.reserve(order).await {
            Answer::Refused { rule, stop } => Early::Known(Verdict::Refused { rule, stop }),
            Answer::Paid { ticket, amount, rule } => {
                let held = Box::new(Charge { ticket, price: price.clone(), amount });
                Early::Known(Verdict::Reserved(Reservation::new(amount, rule, held)))
            }
            Answer::Reserved { ticket, amount, rule, durable } => {
                let held = Charge { ticket, price: price.clone(), amount };
                let words = rule.clone();
                let durable = Box::pin(async move {
                    // The charge is alive meanwhile: dropped, it is given back.
                    let held = Box::new(held);
                    durable.await.unwrap_or_else(|_| Err("the ledger has ended".to_owned()))?;
                    Ok(Reservation::new(amount, words, held))
                });
                Early::Pending(Pending::new(amount, rule, durable))
            }
        }
    }
}

impl Purse for Budget {
    fn reserve(&self, asked: Asked) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            match self.ask(asked).await {
                Early::Known(verdict) => verdict,
                Early::Pending(pending) => match pending.durable().await {
                    Ok(reservation) => Verdict::Reserved(reservation),
                    Err(rule) => Verdict::Refused { rule, stop: false },
                },
            }
        })
    }

    fn reserve_early(&self, asked: Asked) -> Boxed<'_, Early> {
        Box::pin(self.ask(asked))
    }

    fn warning(&self) -> Option<String> {
        self.account.told().1
    }
}

/// A reservation's side of the ledger.
struct Charge {
    ticket: crate::ledger::Ticket,
    price: Arc<Price>,
    amount: Usd,
}

impl Held for Charge {
    fn settle<'a>(self: Box<Self>, reply: Option<&'a Value>) -> Boxed<'a, Settled> {
        let cost = match reply {
            None => Err("there was no answer".to_owned()),
            Some(reply) => self.price.cost(reply),
        };
        let reserved = self.amount;
        let (charged, stop) = match cost {
            Err(reason) => {
                let words = format!("the cost is not known: {reason}; {reserved} is charged");
                (reserved, Some(words))
            }
            Ok(cost) if cost > reserved => {
                let words = format!("the call cost {cost}, more than the {reserved} set aside");
                (cost, Some(words))
            }
            Ok(cost) => (cost, None),
        };
        let told = self.ticket.settle(charged);
        Box::pin(async move {
            let (capped, warning) = told.told().await;
            Settled { cost: charged, stop: stop.or(capped), warning }
        })
    }

    fn release(self: Box<Self>) -> Boxed<'static, ()> {
        let told = self.ticket.release();
        Box::pin(async move {
            if let Some(told) = told {
                let _ = told.await;
            }
        })
    }

    fn sent(&mut self, sent: bool) {
        self.ticket.sent(sent);
    }
}
