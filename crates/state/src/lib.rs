//! Where is shared state kept? One database: SQLite in the machine's folder, or PostgreSQL by URL.
//!
//! Statements are written once, for both: `$1` for arguments, `BIGINT` and `TEXT` for columns. A room
//! brings its own tables ([`Schema`]) and gets a [`Db`], whose transactions are what it works with.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use ringfence_state::{Cell, Schema, State};
//!
//! const NOTES: Schema = Schema {
//!     room: "notes",
//!     steps: &["CREATE TABLE notes (id BIGINT PRIMARY KEY, words TEXT NOT NULL)"],
//! };
//! # use std::os::unix::fs::PermissionsExt;
//! # let home = tempfile::tempdir()?;
//! # std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o700))?;
//! # let home = home.path();
//! let state = State::open(home, None)?; // nothing is touched yet
//! let db = state.db(&NOTES).await?;
//! let mut tx = db.write().await?;
//! tx.execute("INSERT INTO notes VALUES ($1, $2)", &[Cell::Int(1), "one".into()]).await?;
//! tx.commit().await?; // durable
//! let mut tx = db.read().await?;
//! let rows = tx.query("SELECT words FROM notes WHERE id = $1", &[Cell::Int(1)]).await?;
//! assert_eq!(rows[0].text(0)?, "one");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod cell;
mod error;
mod fault;
mod file;
mod pool;
mod schema;
mod tx;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

pub use cell::{Cell, Row};
pub use error::Error;
pub use schema::Schema;
pub use tx::Tx;

use address::Address;
use pool::Pool;
use tx::Mode;

/// The file in the machine's folder, when there is no PostgreSQL.
pub const STATE_FILE: &str = "state.db";

/// The one database of a machine, or of many. Nothing is opened before a room asks for its tables.
#[derive(Clone)]
pub struct State {
    inner: Arc<Inner>,
}

struct Inner {
    place: Place,
    opened: Mutex<Opened>,
}

/// Where it is.
enum Place {
    File(PathBuf),
    Postgres(Address),
}

/// What is there of it.
#[derive(Default)]
struct Opened {
    pool: Option<Pool>,
    /// Rooms whose tables are known to be there, as this program needs them.
    ready: Vec<&'static str>,
}

impl State {
    /// SQLite in `<home>/state.db`, or PostgreSQL at `url` (`postgres://user@host/database`). Does no
    /// I/O. To another machine TLS is used with the server's name verified, whatever the URL says;
    /// on loopback and by Unix socket what the URL says (default: TLS where the server has it).
    ///
    /// # Errors
    /// [`Error::Address`] when the URL is malformed, or asks for a connection to another machine
    /// without TLS.
    pub fn open(home: &Path, url: Option<&str>) -> Result<Self, Error> {
        let place = match url {
            Some(url) => Place::Postgres(Address::parse(url)?),
            None => Place::File(home.join(STATE_FILE)),
        };
        Ok(Self { inner: Arc::new(Inner { place, opened: Mutex::default() }) })
    }

    /// The file, or the address without its credentials.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.inner.place {
            Place::File(path) => path.display().to_string(),
            Place::Postgres(address) => address.shown().to_owned(),
        }
    }

    /// The database with a room's tables in it. Opens it when that was not done yet, and brings the
    /// tables to the newest version; an error is not kept, the next call tries again.
    ///
    /// # Errors
    /// [`Error::Unsafe`], [`Error::Unavailable`], [`Error::Damaged`]; [`Error::Newer`] when a newer
    /// program made the tables.
    pub async fn db(&self, schema: &Schema) -> Result<Db, Error> {
        let mut opened = self.inner.opened.lock().await;
        let pool = match &opened.pool {
            Some(pool) => pool.clone(),
            None => {
                let pool = match &self.inner.place {
                    Place::File(path) => Pool::file(path).await?,
                    Place::Postgres(address) => Pool::postgres(address).await?,
                };
                opened.pool = Some(pool.clone());
                pool
            }
        };
        let db = Db { pool };
        if !opened.ready.contains(&schema.room) {
            schema::bring(&db, schema).await?;
            opened.ready.push(schema.room);
        }
        Ok(db)
    }

    /// The database as it is, `None` when there is no file yet: for commands that read, which make
    /// nothing.
    ///
    /// # Errors
    /// As [`State::db`].
    pub async fn existing(&self, schema: &Schema) -> Result<Option<Db>, Error> {
        if let Place::File(path) = &self.inner.place
            && !file::exists(path)?
        {
            return Ok(None);
        }
        self.db(schema).await.map(Some)
    }
}

/// The open database.
#[derive(Clone)]
pub struct Db {
    pool: Pool,
}

impl Db {
    /// Begins a transaction that may write. On SQLite it holds the only lock for writing from its
    /// beginning, and waits up to 5 seconds for it; on PostgreSQL it locks the rows that it changes,
    /// and waits as long for each.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it is locked for too long, read-only, full or gone; [`Error::Damaged`].
    pub async fn write(&self) -> Result<Tx, Error> {
        Tx::begin(&self.pool, Mode::Write).await
    }

    /// As [`Db::write`], but what is committed is on disk only with the next [`Db::write`] of anyone,
    /// or a moment later: for what may be lost when the machine (not the process) goes down.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn write_soon(&self) -> Result<Tx, Error> {
        Tx::begin(&self.pool, Mode::WriteSoon).await
    }

    /// Begins a transaction that reads one state of everything.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn read(&self) -> Result<Tx, Error> {
        Tx::begin(&self.pool, Mode::Read).await
    }

    /// Whether many hosts can have it open.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.pool.is_postgres()
    }

    /// The file, or the address without its credentials.
    #[must_use]
    pub fn place(&self) -> &str {
        self.pool.place()
    }
}

#[cfg(test)]
mod tests;
