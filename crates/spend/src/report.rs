//! The ledger, for a person.

use ringfence_state::{Cell, State};
use serde::Serialize;

use crate::books::Kind;
use crate::store::{SCHEMA, amount, clock, damaged};
use crate::{Error, Usd, period};

/// The most sums, and calls, of one report: the newest.
const MOST: i64 = 1000;

/// What of the ledger is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of whom.
    pub who: Option<String>,
    /// Of which run.
    pub run: Option<String>,
    /// From this UTC day on, `2026-11-30`.
    pub since: Option<String>,
    /// How many calls, at most 1000.
    pub calls: usize,
}

/// What is in the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The database.
    pub place: String,
    /// The sums, newest first.
    pub sums: Vec<Sum>,
    /// The calls, newest first.
    pub calls: Vec<CallRow>,
    /// Whose money counts in a day that is yet to come, because a clock was ahead: it does so until
    /// then, as a clock that goes back opens no new day.
    pub ahead: Vec<Ahead>,
}

/// Whose day is yet to come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ahead {
    /// Whose.
    pub who: String,
    /// The day that calls count in.
    pub day: String,
}

/// What is used of one cap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Whose: the agent's DID, or the machine's.
    pub who: String,
    /// Over what.
    pub kind: Kind,
    /// The run, the day or the month.
    pub period: String,
    /// The cap, as it was when something was last written; `None` without one.
    pub cap_usd: Option<Usd>,
    /// Charged.
    pub spent_usd: Usd,
    /// Set aside: for calls in flight, and for those that never said what they cost.
    pub reserved_usd: Usd,
    /// What is left; `None` without a cap.
    pub left_usd: Option<Usd>,
    /// Last change, RFC 3339.
    pub changed: String,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallRow {
    /// Whose money.
    pub who: String,
    /// Its run.
    pub run: String,
    /// Its number there.
    pub call: i64,
    /// The day that it counts in.
    pub day: String,
    /// When it was let through, RFC 3339.
    pub at: String,
    /// Whose tool.
    pub server: String,
    /// Which.
    pub tool: String,
    /// `open`, `charged` or `released`.
    pub result: String,
    /// What was set aside for it.
    pub reserved_usd: Usd,
    /// What it cost; `None` while that is open.
    pub cost_usd: Option<Usd>,
}

/// Reads the ledger as it is; makes nothing. Empty when there is none yet.
///
/// # Errors
/// [`Error`]: it cannot be read.
pub async fn report(state: &State, filter: &Filter) -> Result<Report, Error> {
    let mut report = Report { place: state.place(), ..Report::default() };
    let Some(db) = state.existing(&SCHEMA).await? else { return Ok(report) };
    let mut tx = db.read().await?;
    let who = Cell::from(filter.who.as_deref().unwrap_or_default());
    let run = Cell::from(filter.run.as_deref().unwrap_or_default());
    let since = filter.since.as_deref().unwrap_or_default();
    let from = i64::from(filter.since.is_some()) * seconds(since).unwrap_or(0);
    let sums = "SELECT who, kind, period, cap, spent, reserved, changed FROM spend_scopes
        WHERE ($1 = '' OR who = $1)
          AND ($2 = '' OR (kind = 'run' AND period = $2))
          AND changed >= $3
        ORDER BY changed DESC, who, kind, period LIMIT $4";
    let cells = [who.clone(), run.clone(), Cell::Int(from), Cell::Int(MOST)];
    for row in tx.query(sums, &cells).await? {
        let cap = row.maybe_int(3)?.map(|_| amount(&db, &row, 3)).transpose()?;
        let (spent, reserved) = (amount(&db, &row, 4)?, amount(&db, &row, 5)?);
        report.sums.push(Sum {
            who: row.text(0)?.to_owned(),
            kind: Kind::parse(row.text(1)?).ok_or_else(|| damaged(&db, "a cap of no kind"))?,
            period: row.text(2)?.to_owned(),
            cap_usd: cap,
            spent_usd: spent,
            reserved_usd: reserved,
            left_usd: cap.map(|cap| cap.saturating_sub(spent.saturating_add(reserved))),
            changed: moment(row.int(6)?),
        });
    }
    let calls =
        "SELECT who, run, call, day, at, server, tool, result, reserved, cost FROM spend_calls
        WHERE ($1 = '' OR who = $1) AND ($2 = '' OR run = $2) AND day >= $3
        ORDER BY at DESC, call DESC, id LIMIT $4";
    let most = i64::try_from(filter.calls).unwrap_or(MOST).min(MOST);
    for row in tx.query(calls, &[who, run, since.into(), Cell::Int(most)]).await? {
        report.calls.push(CallRow {
            who: row.text(0)?.to_owned(),
            run: row.text(1)?.to_owned(),
            call: row.int(2)?,
            day: row.text(3)?.to_owned(),
            at: moment(row.int(4)?),
            server: row.text(5)?.to_owned(),
            tool: row.text(6)?.to_owned(),
            result: row.text(7)?.to_owned(),
            reserved_usd: amount(&db, &row, 8)?,
            cost_usd: row.maybe_int(9)?.map(|_| amount(&db, &row, 9)).transpose()?,
        });
    }
    let today = period::day(clock()?).ok_or(Error::Clock)?;
    let ahead = "SELECT who, day FROM spend_holders WHERE day > $1 ORDER BY who LIMIT $2";
    for row in tx.query(ahead, &[today.into(), Cell::Int(MOST)]).await? {
        report.ahead.push(Ahead { who: row.text(0)?.to_owned(), day: row.text(1)?.to_owned() });
    }
    tx.rollback().await?;
    Ok(report)
}

fn moment(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |at| at.to_string())
}

/// Whether a text is a UTC day that a ledger can count in, as `2026-11-30`.
#[must_use]
pub fn is_day(text: &str) -> bool {
    seconds(text).is_some()
}

/// The first second of a UTC day.
fn seconds(day: &str) -> Option<i64> {
    let date: jiff::civil::Date = day.parse().ok()?;
    let zoned = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    (period::day(zoned.timestamp().as_second())? == day).then(|| zoned.timestamp().as_second())
}
