//! Why shared state cannot be had.

/// Why shared state cannot be read or written. Every caller fails closed on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be opened, is locked for too long, full, gone, or newer than this program.
    #[error("{place}: {reason}")]
    Unavailable {
        /// The file, or the URL without its credentials.
        place: String,
        /// In words, with what to do.
        reason: String,
    },
}
