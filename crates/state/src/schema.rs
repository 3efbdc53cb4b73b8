//! Tables, by room and by version.

use crate::pool::APPLICATION;
use crate::{Cell, Db, Error, Tx};

/// The tables of one room.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// Whose they are; its tables' names begin with it.
    pub room: &'static str,
    /// One statement a version, the first makes version 1. Only ever added to: a version that was
    /// given out stays as it was.
    pub steps: &'static [&'static str],
}

/// So that two processes make no table at once: any number that nobody else uses.
const LOCK: i64 = 0x52_494e_4746_454e;

/// Brings a room's tables to its newest version, in one transaction.
pub(crate) async fn bring(db: &Db, schema: &Schema) -> Result<(), Error> {
    let known = i64::try_from(schema.steps.len()).unwrap_or(i64::MAX);
    let newer =
        |found| Error::Newer { place: db.place().to_owned(), room: schema.room, found, known };
    // The usual case writes nothing and waits for nobody.
    let mut tx = db.read().await?;
    let found = version(&mut tx, schema.room).await?;
    tx.rollback().await?;
    match found {
        Some(found) if found == known => return Ok(()),
        Some(found) if found > known => return Err(newer(found)),
        _ => {}
    }
    let mut tx = db.write().await?;
    if tx.is_postgres() {
        tx.query("SELECT 1::BIGINT FROM pg_advisory_xact_lock($1)", &[Cell::Int(LOCK)]).await?;
        tx.execute("CREATE SCHEMA IF NOT EXISTS ringfence", &[]).await?;
    } else {
        own(db, &mut tx).await?;
    }
    let made = "CREATE TABLE IF NOT EXISTS state_versions (room TEXT PRIMARY KEY, version BIGINT NOT NULL)";
    tx.execute(made, &[]).await?;
    // Again: another process may have been faster.
    let found = version(&mut tx, schema.room).await?.unwrap_or(0);
    if found > known {
        return Err(newer(found));
    }
    let done = usize::try_from(found).unwrap_or(0);
    for step in schema.steps.iter().skip(done) {
        tx.execute(step, &[]).await?;
    }
    let set = "INSERT INTO state_versions VALUES ($1, $2) ON CONFLICT (room) DO UPDATE SET version = excluded.version";
    tx.execute(set, &[schema.room.into(), Cell::Int(known)]).await?;
    tx.commit().await
}

/// The version of a room's tables, `None` when it has none yet.
async fn version(tx: &mut Tx, room: &str) -> Result<Option<i64>, Error> {
    let there = if tx.is_postgres() {
        "SELECT 1::BIGINT FROM pg_tables WHERE schemaname = 'ringfence' AND tablename = 'state_versions'"
    } else {
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'state_versions'"
    };
    if tx.query(there, &[]).await?.is_empty() {
        return Ok(None);
    }
    let rows =
        tx.query("SELECT version FROM state_versions WHERE room = $1", &[room.into()]).await?;
    rows.first().map(|row| row.int(0)).transpose()
}

/// Marks an empty SQLite file as ours; another program's is left alone.
async fn own(db: &Db, tx: &mut Tx) -> Result<(), Error> {
    let marks = tx.query("PRAGMA application_id", &[]).await?;
    let mark = marks.first().map(|row| row.int(0)).transpose()?.unwrap_or(0);
    let tables = tx.query("SELECT 1 FROM sqlite_schema LIMIT 1", &[]).await?;
    if mark == APPLICATION {
        return Ok(());
    }
    if mark != 0 || !tables.is_empty() {
        return Err(Error::Damaged {
            place: db.place().to_owned(),
            reason: "another program's database: move it away".to_owned(),
        });
    }
    // 0x52464e43, as a statement takes no argument here.
    tx.execute("PRAGMA application_id = 1380339267", &[]).await.map(drop)
}
