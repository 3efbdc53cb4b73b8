//! The ledger's tables, and what is done in them.

use std::collections::BTreeMap;

use ringfence_state::{Cell, Db, Row, Schema, Tx};

use crate::books::{Kind, Scope};
use crate::{Error, Usd, period};

/// The ledger's tables. Amounts are in units of 1e-8 USD, times in seconds since 1970.
pub(crate) const SCHEMA: Schema = Schema {
    room: "spend",
    steps: &[
        // Whose money it is, and the latest day that was counted in.
        "CREATE TABLE spend_holders (who TEXT PRIMARY KEY, day TEXT NOT NULL)",
        // The sums that caps are held against.
        "CREATE TABLE spend_scopes (
            who TEXT NOT NULL, kind TEXT NOT NULL, period TEXT NOT NULL,
            spent BIGINT NOT NULL CHECK (spent >= 0),
            reserved BIGINT NOT NULL CHECK (reserved >= 0),
            warned BIGINT NOT NULL, cap BIGINT, changed BIGINT NOT NULL,
            PRIMARY KEY (who, kind, period))",
        // Each call: what was set aside, and what came of it.
        "CREATE TABLE spend_calls (
            id TEXT PRIMARY KEY, who TEXT NOT NULL, run TEXT NOT NULL, day TEXT NOT NULL,
            server TEXT NOT NULL, tool TEXT NOT NULL, call BIGINT NOT NULL,
            reserved BIGINT NOT NULL, cost BIGINT, result TEXT NOT NULL, at BIGINT NOT NULL)",
        "CREATE INDEX spend_calls_at ON spend_calls (at)",
    ],
};

/// How long single calls are kept, in seconds: 100 days. The sums stay.
const KEPT: i64 = 100 * 86_400;

/// Which sums.
pub(crate) type Key = (Kind, String);

/// One holder's sums within a transaction: read once, written once.
pub(crate) struct Book {
    who: String,
    /// The day that new calls count in.
    pub(crate) day: String,
    /// Now, by the clock that all who share the ledger have.
    pub(crate) now: i64,
    scopes: BTreeMap<Key, Entry>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    scope: Scope,
    cap: Option<Usd>,
    changed: bool,
}

/// This machine's clock, in seconds since 1970.
pub(crate) fn clock() -> Result<i64, Error> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.ok().and_then(|now| i64::try_from(now.as_secs()).ok()).ok_or(Error::Clock)
}

impl Book {
    /// Locks a holder's sums against every other process, and finds the day to count in. On PostgreSQL
    /// the server's clock counts, so that hosts agree.
    pub(crate) async fn open(db: &Db, tx: &mut Tx, who: &str) -> Result<Self, Error> {
        let made = "INSERT INTO spend_holders VALUES ($1, '0000-01-01') ON CONFLICT DO NOTHING";
        let locked = if db.is_shared() {
            "SELECT day, FLOOR(EXTRACT(EPOCH FROM CLOCK_TIMESTAMP()))::BIGINT FROM spend_holders WHERE who = $1 FOR UPDATE"
        } else {
            "SELECT day, NULL FROM spend_holders WHERE who = $1"
        };
        let mut rows = tx.query(locked, &[who.into()]).await?;
        if rows.is_empty() {
            tx.execute(made, &[who.into()]).await?;
            rows = tx.query(locked, &[who.into()]).await?;
        }
        let Some(row) = rows.first() else {
            return Err(damaged(db, "a holder that cannot be made"));
        };
        let newest = row.text(0)?;
        if !is_day(newest) {
            return Err(damaged(db, "a day that is none"));
        }
        let now = match row.maybe_int(1)? {
            Some(now) => now,
            None => clock()?,
        };
        let day = period::counted(&period::day(now).ok_or(Error::Clock)?, Some(newest));
        if day != newest {
            let set = "UPDATE spend_holders SET day = $2 WHERE who = $1";
            tx.execute(set, &[who.into(), day.as_str().into()]).await?;
        }
        Ok(Self { who: who.to_owned(), day, now, scopes: BTreeMap::new() })
    }

    /// The sums that a call of this run and day counts in.
    pub(crate) fn keys(run: &str, day: &str) -> [Key; 3] {
        [
            (Kind::Run, run.to_owned()),
            (Kind::Day, day.to_owned()),
            (Kind::Month, period::month(day).to_owned()),
        ]
    }

    /// Reads sums that are not yet read.
    pub(crate) async fn read(
        &mut self,
        db: &Db,
        tx: &mut Tx,
        keys: &[Key; 3],
    ) -> Result<(), Error> {
        if keys.iter().all(|key| self.scopes.contains_key(key)) {
            return Ok(());
        }
        let select = "SELECT kind, period, spent, reserved, warned, cap FROM spend_scopes WHERE who = $1 AND period IN ($2, $3, $4)";
        let [run, day, month] = keys.clone().map(|(_, period)| Cell::from(period));
        let mut found = BTreeMap::new();
        for row in tx.query(select, &[self.who.as_str().into(), run, day, month]).await? {
            let kind = Kind::parse(row.text(0)?).ok_or_else(|| damaged(db, "a cap of no kind"))?;
            let scope = Scope {
                spent: amount(db, &row, 2)?,
                reserved: amount(db, &row, 3)?,
                warned: row.int(4)? != 0,
            };
            let cap = row.maybe_int(5)?.map(|_| amount(db, &row, 5)).transpose()?;
            let key = (kind, row.text(1)?.to_owned());
            found.insert(key, Entry { scope, cap, changed: false });
        }
        for key in keys {
            let entry = found.remove(key).unwrap_or_default();
            self.scopes.entry(key.clone()).or_insert(entry);
        }
        Ok(())
    }

    /// The sums, to look at and change. They were read before.
    pub(crate) fn scopes(&self, keys: &[Key; 3]) -> [Scope; 3] {
        [0, 1, 2].map(|n| self.scopes.get(&keys[n]).copied().unwrap_or_default().scope)
    }

    /// Puts a changed sum back. The cap is only kept to be shown.
    pub(crate) fn put(&mut self, key: Key, scope: Scope, cap: Option<Usd>) {
        self.scopes.insert(key, Entry { scope, cap, changed: true });
    }

    /// Writes what has changed.
    pub(crate) async fn write(&self, tx: &mut Tx) -> Result<(), Error> {
        let upsert =
            "INSERT INTO spend_scopes (who, kind, period, spent, reserved, warned, cap, changed)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (who, kind, period) DO UPDATE SET
            spent = excluded.spent, reserved = excluded.reserved, warned = excluded.warned,
            cap = excluded.cap, changed = excluded.changed";
        for ((kind, period), entry) in self.scopes.iter().filter(|(_, entry)| entry.changed) {
            let cells = [
                self.who.as_str().into(),
                kind.as_str().into(),
                period.as_str().into(),
                Cell::Int(entry.scope.spent.column()),
                Cell::Int(entry.scope.reserved.column()),
                Cell::Int(i64::from(entry.scope.warned)),
                Cell::from(entry.cap.map(Usd::column)),
                Cell::Int(self.now),
            ];
            tx.execute(upsert, &cells).await?;
        }
        Ok(())
    }
}

/// Forgets single calls of long ago.
pub(crate) async fn prune(db: &Db) -> Result<(), Error> {
    let mut tx = db.write().await?;
    let old = Cell::Int(clock()?.saturating_sub(KEPT));
    tx.execute("DELETE FROM spend_calls WHERE at < $1", &[old]).await?;
    Ok(tx.commit().await?)
}

pub(crate) fn amount(db: &Db, row: &Row, column: usize) -> Result<Usd, Error> {
    let units = u64::try_from(row.int(column)?).map_err(|_| damaged(db, "a negative sum"))?;
    Ok(Usd::from_units(units))
}

pub(crate) fn damaged(db: &Db, what: &str) -> Error {
    Error::Damaged { what: what.to_owned(), place: db.place().to_owned() }
}

fn is_day(text: &str) -> bool {
    text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(n, b)| if n == 4 || n == 7 { b == b'-' } else { b.is_ascii_digit() })
}
