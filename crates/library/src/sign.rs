//! Who says so? Signed statements: DSSE envelopes around in-toto statements.
//!
//! A signature says whose words these are. It never makes anything trusted on a machine: that is a
//! person's yes, and it is recorded elsewhere.

mod envelope;
mod lock;
mod statement;

pub use envelope::{Flaw, Signed, seal, unseal};
pub use lock::{LockSignature, Verdict, sign_lock, verify_lock};
pub(crate) use statement::{Agent, Statement, hex, is_hex, sha256};

#[cfg(test)]
mod tests;
