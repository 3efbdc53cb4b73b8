//! Why shared state cannot be had.

/// Why shared state cannot be read or written. Every caller fails closed on it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of the database is not one that may be used: it is malformed, is no PostgreSQL
    /// address, or leaves the machine without TLS. Mend the value that `[state] url_ref` names.
    #[error(
        "the database's address is refused: {reason}; mend the value that `[state] url_ref` in machine.toml names"
    )]
    Address {
        /// What is wrong with it. Never the address itself, which may hold a password.
        reason: String,
    },
    /// The file is not one that only this user can have written: a link, another user's, open to
    /// others, or in a folder that is. Look at it before anything else is done.
    #[error("{place}: {reason}")]
    Unsafe {
        /// The file or folder.
        place: String,
        /// What is wrong with it, and what to type.
        reason: String,
    },
    /// The database cannot be reached, is locked for too long, full, read-only or gone.
    #[error("{place}: {reason}")]
    Unavailable {
        /// The file, or the address without its credentials.
        place: String,
        /// In words, with what to do.
        reason: String,
    },
    /// What is there is not what was written: the file is damaged, or is none of ours.
    #[error("{place}: {reason}")]
    Damaged {
        /// The file, or the address without its credentials.
        place: String,
        /// In words, with what to do.
        reason: String,
    },
    /// A newer Ringfence has written here.
    #[error(
        "{place}: a newer Ringfence keeps its {room} here (version {found}, this one knows {known}); use the newer program"
    )]
    Newer {
        /// The file, or the address without its credentials.
        place: String,
        /// Whose tables.
        room: &'static str,
        /// The version that is there.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
}
