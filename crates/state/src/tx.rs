//! A transaction, in whichever database.

use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use sqlx::{Column, Row as _, TypeInfo, ValueRef};

use crate::fault::fault;
use crate::file::Identity;
use crate::pool::Pool;
use crate::{Cell, Error, Row};

/// A transaction. Dropped without [`Tx::commit`], nothing of it has happened, and its connection is
/// closed, as after an error: no connection is used again whose state is not known.
#[must_use]
pub struct Tx {
    connection: Connection,
    place: Arc<str>,
    /// It is over, and the connection can be used again.
    over: bool,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
    WriteSoon,
}

enum Connection {
    Sqlite { connection: PoolConnection<Sqlite>, file: Arc<Identity>, mode: Mode },
    Postgres(PoolConnection<Postgres>),
}

impl Tx {
    pub(crate) async fn begin(pool: &Pool, mode: Mode) -> Result<Self, Error> {
        let place = pool.place().clone();
        let (connection, begin): (_, &[&'static str]) = match pool {
            Pool::Sqlite { pool, file, .. } => {
                file.holds()?;
                let connection = pool.acquire().await.map_err(|error| fault(&place, &error))?;
                let begin: &[&str] = match mode {
                    Mode::Read => &["BEGIN DEFERRED"],
                    Mode::Write => &["BEGIN IMMEDIATE"],
                    Mode::WriteSoon => &["PRAGMA synchronous = NORMAL", "BEGIN IMMEDIATE"],
                };
                (Connection::Sqlite { connection, file: file.clone(), mode }, begin)
            }
            Pool::Postgres { pool, .. } => {
                let connection = pool.acquire().await.map_err(|error| fault(&place, &error))?;
                let begin: &[&str] = match mode {
                    Mode::Read => &["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"],
                    Mode::Write => &["BEGIN ISOLATION LEVEL READ COMMITTED"],
                    Mode::WriteSoon => &[
                        "BEGIN ISOLATION LEVEL READ COMMITTED",
                        "SET LOCAL synchronous_commit = off",
                    ],
                };
                (Connection::Postgres(connection), begin)
            }
        };
        let mut tx = Self { connection, place, over: false };
        for statement in begin {
            tx.execute(statement, &[]).await?;
        }
        Ok(tx)
    }

    /// Runs a statement, and says how many rows it changed.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Damaged`]. The transaction can then only be dropped.
    pub async fn execute(&mut self, sql: &'static str, cells: &[Cell]) -> Result<u64, Error> {
        let done = match &mut self.connection {
            Connection::Sqlite { connection, .. } => bind_sqlite(sqlx::query(sql), cells)
                .execute(&mut **connection)
                .await
                .map(|done| done.rows_affected()),
            Connection::Postgres(connection) => bind_postgres(sqlx::query(sql), cells)
                .execute(&mut **connection)
                .await
                .map(|done| done.rows_affected()),
        };
        done.map_err(|error| fault(&self.place, &error))
    }

    /// Runs a statement, and gives its rows. All of them are held in memory: a statement over a table
    /// that grows says `LIMIT`.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Damaged`], also when a column is neither `BIGINT` nor `TEXT`.
    /// The transaction can then only be dropped.
    pub async fn query(&mut self, sql: &'static str, cells: &[Cell]) -> Result<Vec<Row>, Error> {
        let rows = match &mut self.connection {
            Connection::Sqlite { connection, .. } => bind_sqlite(sqlx::query(sql), cells)
                .fetch_all(&mut **connection)
                .await
                .and_then(|rows| rows.iter().map(from_sqlite).collect::<Result<Vec<_>, _>>()),
            Connection::Postgres(connection) => bind_postgres(sqlx::query(sql), cells)
                .fetch_all(&mut **connection)
                .await
                .and_then(|rows| rows.iter().map(from_postgres).collect()),
        };
        let rows = rows.map_err(|error| fault(&self.place, &error))?;
        let place: &str = &self.place;
        Ok(rows.into_iter().map(|cells| Row { place: place.to_owned(), cells }).collect())
    }

    /// Whether it is PostgreSQL's.
    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.connection, Connection::Postgres(_))
    }

    /// Makes all of it durable: when this returns, it is on disk.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Damaged`]: whether it happened is then not known.
    pub async fn commit(mut self) -> Result<(), Error> {
        self.check()?;
        self.execute("COMMIT", &[]).await?;
        // What went into a file that nobody finds any more is not kept.
        self.check()?;
        self.end().await
    }

    /// Undoes all of it.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: nothing of it has happened nevertheless.
    pub async fn rollback(mut self) -> Result<(), Error> {
        self.execute("ROLLBACK", &[]).await?;
        self.end().await
    }

    /// Leaves the connection as the next one expects it.
    async fn end(&mut self) -> Result<(), Error> {
        if matches!(self.connection, Connection::Sqlite { mode: Mode::WriteSoon, .. }) {
            self.execute("PRAGMA synchronous = FULL", &[]).await?;
        }
        self.over = true;
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        match &self.connection {
            Connection::Sqlite { file, mode, .. } if *mode != Mode::Read => file.holds(),
            _ => Ok(()),
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if !self.over {
            match &mut self.connection {
                Connection::Sqlite { connection, .. } => connection.close_on_drop(),
                Connection::Postgres(connection) => connection.close_on_drop(),
            }
        }
    }
}

fn bind_sqlite<'q>(
    mut query: Query<'q, Sqlite, SqliteArguments>,
    cells: &[Cell],
) -> Query<'q, Sqlite, SqliteArguments> {
    for cell in cells {
        query = match cell {
            Cell::NoInt => query.bind(None::<i64>),
            Cell::NoText => query.bind(None::<String>),
            Cell::Int(number) => query.bind(*number),
            Cell::Text(text) => query.bind(text.clone()),
        };
    }
    query
}

fn bind_postgres<'q>(
    mut query: Query<'q, Postgres, PgArguments>,
    cells: &[Cell],
) -> Query<'q, Postgres, PgArguments> {
    for cell in cells {
        query = match cell {
            Cell::NoInt => query.bind(None::<i64>),
            Cell::NoText => query.bind(None::<String>),
            Cell::Int(number) => query.bind(*number),
            Cell::Text(text) => query.bind(text.clone()),
        };
    }
    query
}

fn other(name: &str) -> sqlx::Error {
    sqlx::Error::TypeNotFound { type_name: name.to_owned() }
}

fn from_sqlite(row: &SqliteRow) -> Result<Vec<Cell>, sqlx::Error> {
    (0..row.columns().len())
        .map(|index| {
            let value = row.try_get_raw(index)?;
            if value.is_null() {
                return Ok(Cell::NoInt);
            }
            match value.type_info().name() {
                "INTEGER" => row.try_get_unchecked(index).map(Cell::Int),
                "TEXT" => row.try_get_unchecked(index).map(Cell::Text),
                name => Err(other(name)),
            }
        })
        .collect()
}

fn from_postgres(row: &PgRow) -> Result<Vec<Cell>, sqlx::Error> {
    row.columns()
        .iter()
        .enumerate()
        .map(|(index, column)| {
            if row.try_get_raw(index)?.is_null() {
                return Ok(Cell::NoInt);
            }
            match column.type_info().name() {
                "INT8" => row.try_get(index).map(Cell::Int),
                "TEXT" => row.try_get(index).map(Cell::Text),
                name => Err(other(name)),
            }
        })
        .collect()
}
