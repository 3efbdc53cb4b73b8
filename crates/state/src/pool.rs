//! The connections.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, PgPool, SqlitePool};

use crate::Error;
use crate::address::Address;
use crate::fault::fault;
use crate::file::{self, Identity};

/// How long a lock, or a connection, is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Until a lock that cannot be waited for is tried again.
const AGAIN: Duration = Duration::from_millis(5);
/// The most connections of one process: a ledger's, one to read, and one for what waits for a person.
const MOST: u32 = 4;
/// A connection that nobody used for so long is tried before it is used again.
const STALE: Duration = Duration::from_secs(1);
/// A connection that nobody used for so long is given back, with its memory.
const IDLE: Duration = Duration::from_secs(60);
/// `RFNC`, in SQLite's header: whose file it is.
pub(crate) const APPLICATION: i64 = 0x5246_4e43;

/// Open connections. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Pool {
    Sqlite { pool: SqlitePool, file: Arc<Identity>, place: Arc<str> },
    Postgres { pool: PgPool, place: Arc<str> },
}

impl Pool {
    pub(crate) async fn file(path: &Path) -> Result<Self, Error> {
        let place: Arc<str> = path.display().to_string().into();
        let file = Arc::new(file::prepare(path)?);
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(false)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(PATIENCE)
            // A file that somebody prepared runs nothing by way of its schema.
            .pragma("trusted_schema", "OFF")
            .pragma("cell_size_check", "ON")
            .disable_statement_logging();
        let begun = Instant::now();
        let pool = loop {
            let pool = SqlitePoolOptions::new()
                .max_connections(MOST)
                .acquire_timeout(PATIENCE)
                .idle_timeout(IDLE)
                .test_before_acquire(false)
                .connect_with(options.clone())
                .await;
            match pool {
                Ok(pool) => break pool,
                // Turning a new file's log on waits for nobody: whoever comes second is told at once
                // that it is locked, whatever `busy_timeout` says.
                Err(error) if is_busy(&error) && begun.elapsed() < PATIENCE => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => return Err(fault(&place, &error)),
            }
        };
        file.holds()?;
        Ok(Self::Sqlite { pool, file, place })
    }

    pub(crate) async fn postgres(address: &Address) -> Result<Self, Error> {
        let place: Arc<str> = address.shown().into();
        let pool = PgPoolOptions::new()
            .max_connections(MOST)
            .acquire_timeout(PATIENCE)
            .idle_timeout(IDLE)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(
                    async move { Ok(meta.idle_for < STALE || connection.ping().await.is_ok()) },
                )
            })
            .connect_with(address.options())
            .await
            .map_err(|error| fault(&place, &error))?;
        Ok(Self::Postgres { pool, place })
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres { .. })
    }

    pub(crate) fn place(&self) -> &Arc<str> {
        match self {
            Self::Sqlite { place, .. } | Self::Postgres { place, .. } => place,
        }
    }
}

/// `SQLITE_BUSY`, in any of its kinds (<https://sqlite.org/rescode.html#busy>).
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.and_then(|code| code.parse::<i64>().ok()).is_some_and(|code| code & 0xff == 5)
}
