//! What is wrong with an archive.

use ringfence_bundle::Drift;

use crate::sign::Flaw;

/// What is wrong with an archive. Text from it is cut, and escaped where it is shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Io(#[from] std::io::Error),
    /// The compressed stream is not one whole zstd frame of the one form.
    #[error("it is not one zstd frame: {0}")]
    Frame(String),
    /// The first member is not the attestation.
    #[error("its first member is not the attestation: {0}")]
    First(String),
    /// The attestation says nothing.
    #[error("its attestation: {0}")]
    Flaw(#[from] Flaw),
    /// The attestation lists a member that no archive may have.
    #[error("member `{path}`: {reason}")]
    Member {
        /// As listed, cut.
        path: String,
        /// Why it may not be there.
        reason: String,
    },
    /// It is larger than an archive may be.
    #[error("it is too large: {0}")]
    TooLarge(String),
    /// A header is not the one that the attestation calls for.
    #[error("where the attestation has `{path}`, {found}")]
    Header {
        /// What is expected there.
        path: String,
        /// What is there, in words.
        found: String,
    },
    /// A member's bytes are others than the attestation says.
    #[error("the bytes of `{0}` are not those of the attestation")]
    Bytes(String),
    /// It ends too early.
    #[error("it ends in the middle of `{0}`")]
    Short(String),
    /// Something follows what the attestation lists.
    #[error("{0}")]
    Trailing(String),
    /// What is in it is not a bundle as its lock says.
    #[error("{0}")]
    Bundle(String),
    /// The lock in it does not hold against the bytes in it.
    #[error("its lock does not hold against its bytes: {}", named(.0))]
    Drifted(Vec<Drift>),
}

fn named(drift: &[Drift]) -> String {
    let few: Vec<_> =
        drift.iter().take(8).map(|row| format!("{} {}", row.kind, row.name)).collect();
    few.join(", ")
}
