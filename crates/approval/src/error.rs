//! Why a question could not be kept or answered.

/// Why a question could not be kept or answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be used: nothing is approved.
    #[error(transparent)]
    State(#[from] ringfence_state::Error),
    /// There is no such question. `ringfence approvals list` shows those that wait.
    #[error("there is no question {0}")]
    Unknown(String),
    /// What the database holds was not written by this program, or by a newer one.
    #[error("{0} in the state database cannot be read: was it written by a newer Ringfence?")]
    Unreadable(String),
    /// Somebody was faster, or it no longer waits.
    #[error("question {id} is {standing} already: this answer does not count")]
    Settled {
        /// Its id.
        id: String,
        /// How it stands, in words.
        standing: String,
    },
    /// Its time is over.
    #[error("question {0} has expired: this answer does not count")]
    Expired(String),
    /// The digest is not this question's: something else was looked at.
    #[error("question {id} has the digest {digest}: this is not what was looked at")]
    OtherDigest {
        /// Its id.
        id: String,
        /// What it is bound to.
        digest: String,
    },
    /// A decision that came from elsewhere does not verify.
    #[error("the decision does not count: {0}")]
    Decision(String),
    /// The address of a webhook is not one that is called.
    #[error("{0}")]
    Address(String),
    /// The machine's folder for answers cannot be used.
    #[error("{path}: {source}")]
    Io {
        /// The folder or file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system gives no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
}
