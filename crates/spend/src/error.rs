//! Why the ledger cannot be read or written.

/// Why the ledger cannot be read or written. Whoever asks for money is then refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database: see [`ringfence_state::Error`] for causes and what to do.
    #[error("the ledger cannot be used: {0}")]
    State(#[from] ringfence_state::Error),
    /// A sum or a day in it is none. Restore a copy of the database.
    #[error("the ledger holds what no ledger can: {what}; restore a copy of {place}")]
    Damaged {
        /// What was found.
        what: String,
        /// The database.
        place: String,
    },
    /// The clock is not between the years 0 and 9999. Set it.
    #[error("the clock says no day that a ledger could count in: set it")]
    Clock,
    /// The system gives no random numbers, which it does after its first moments.
    #[error("the system gives no random numbers")]
    Random,
}
