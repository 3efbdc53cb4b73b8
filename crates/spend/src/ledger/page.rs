//! What is done with single calls in one transaction: rows, and the sums that they count in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringfence_state::{Cell, Db, Tx};
use serde_json::json;

use super::advance::Advance;
use super::batch::Over;
use super::shelf::Shelf;
use super::{Account, Entry, Told};
use crate::Error;
use crate::books::{self, Scopes};
use crate::purse::Asked;

/// Rows of calls that were paid from an advance: an array of arrays. What stands there already is left as
/// it is, and not given back.
macro_rules! insert_shares {
    ($each:literal) => {
        concat!(
            "INSERT INTO spend_calls (id, who, run, day, server, tool, call, reserved, cost, result, at) \
             SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, \
             CAST(value->>6 AS BIGINT), CAST(value->>7 AS BIGINT), CAST(value->>8 AS BIGINT), \
             value->>9, CAST(value->>10 AS BIGINT) FROM ",
            $each,
            " WHERE TRUE ON CONFLICT (id) DO NOTHING RETURNING id"
        )
    };
}

/// A transaction, and the books in it.
pub(super) struct Page<'a> {
    pub(super) db: &'a Db,
    pub(super) tx: &'a mut Tx,
    pub(super) shelf: &'a mut Shelf,
}

impl Page<'_> {
    /// The day that an account's calls count in now, and the time.
    pub(super) fn today(&self, account: &Account) -> Option<(Arc<str>, i64)> {
        self.shelf.of(account).map(|book| (book.day.as_str().into(), book.now))
    }

    /// The sums that a call of this day counts in.
    pub(super) async fn scopes(
        &mut self,
        account: &Account,
        day: &str,
    ) -> Result<Option<Scopes>, Error> {
        self.shelf.read(self.db, self.tx, account, day).await
    }

    /// Opens the row of a call that was admitted by itself.
    pub(super) async fn open(
        &mut self,
        entry: &Entry,
        asked: &Asked,
        now: i64,
    ) -> Result<(), Error> {
        let insert =
            "INSERT INTO spend_calls (id, who, run, day, server, tool, call, reserved, result, at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'open', $9)";
        let cells = [
            entry.id.as_str().into(),
            entry.account.who.as_str().into(),
            entry.account.run.as_str().into(),
            Cell::from(&*entry.day),
            asked.server.as_str().into(),
            asked.tool.as_str().into(),
            Cell::Int(number(asked.call)),
            Cell::Int(entry.reserved.column()),
            Cell::Int(now),
        ];
        self.tx.execute(insert, &cells).await?;
        Ok(())
    }

    /// Closes a row, once: one that is closed already changes nothing.
    pub(super) async fn charge(&mut self, over: &Over) -> Result<Told, Error> {
        let set = "UPDATE spend_calls SET cost = $2, result = $3 WHERE id = $1 AND result = 'open'";
        let (cost, result) = outcome(over);
        let cells = [over.entry.id.as_str().into(), Cell::Int(cost), result.into()];
        match self.tx.execute(set, &cells).await? {
            1 => self.count(over).await,
            _ => Ok(Told::default()),
        }
    }

    /// Writes the rows of calls that were paid from an advance, all at once, and says what there is to be
    /// said, by their places.
    pub(super) async fn shares(&mut self, all: &[Over]) -> Result<BTreeMap<usize, Told>, Error> {
        let mut rows = Vec::new();
        for over in all {
            let Entry { id, account, day, reserved, share } = &over.entry;
            let Some(asked) = share else { continue };
            let Some((_, now)) = self.today(account) else { continue };
            let (cost, result) = outcome(over);
            let (who, run, call) = (&account.who, &account.run, number(asked.call));
            let (server, tool, reserved) = (&asked.server, &asked.tool, reserved.column());
            rows.push(json!([
                id, who, run, &**day, server, tool, call, reserved, cost, result, now
            ]));
        }
        let mut told = BTreeMap::new();
        if rows.is_empty() {
            return Ok(told);
        }
        let insert = if self.db.is_shared() {
            insert_shares!("json_array_elements(CAST($1 AS json))")
        } else {
            insert_shares!("json_each($1)")
        };
        let rows = serde_json::Value::from(rows).to_string();
        let rows = self.tx.query(insert, &[rows.into()]).await?;
        let new = rows.iter().map(|row| row.text(0)).collect::<Result<BTreeSet<_>, _>>()?;
        for (at, over) in all.iter().enumerate() {
            if over.entry.share.is_some() {
                let known = !new.contains(over.entry.id.as_str());
                told.insert(at, if known { Told::default() } else { self.count(over).await? });
            }
        }
        Ok(told)
    }

    /// Counts what a call cost, in the period that it was set aside in, whatever day it is now.
    async fn count(&mut self, over: &Over) -> Result<Told, Error> {
        let Entry { account, day, reserved, .. } = &over.entry;
        let Some(mut scopes) = self.scopes(account, day).await? else {
            return Ok(Told::default());
        };
        let told = match over.cost {
            Some(cost) => books::charge(&account.caps, &mut scopes, *reserved, cost),
            None => {
                books::release(&mut scopes, *reserved);
                Told::default()
            }
        };
        self.shelf.put(account, day, scopes);
        Ok(told)
    }

    /// Gives back what is left of an advance.
    pub(super) async fn give_back(
        &mut self,
        account: &Account,
        left: &Advance,
    ) -> Result<(), Error> {
        if let Some(mut scopes) = self.scopes(account, &left.day).await? {
            books::release(&mut scopes, left.left);
            self.shelf.put(account, &left.day, scopes);
        }
        Ok(())
    }
}

/// What a row says of a call that is over.
fn outcome(over: &Over) -> (i64, &'static str) {
    match over.cost {
        Some(cost) => (cost.column(), "charged"),
        None => (0, "released"),
    }
}

fn number(call: u64) -> i64 {
    i64::try_from(call).unwrap_or(i64::MAX)
}
