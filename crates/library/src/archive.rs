//! Shared archives: one zstd frame around one tar of regular files, the first of which says, signed,
//! what every other one is.
//!
//! There is one way to write an archive of given bytes, and it is the only one that is read: a
//! reader makes each header itself, from what the attestation says, and compares.

mod attest;
mod fault;
mod frame;
mod header;
mod member;
mod pack;
mod share;
mod unpack;

pub use fault::Fault;
pub use pack::{Packed, Scan, pack};
pub use share::share;

pub(crate) use attest::{ATTESTATION, About, MAX_ATTESTATION, Row, check_named, read_attestation};
pub(crate) use member::{BUNDLE, STORE};
pub(crate) use unpack::{Unpacked, unpack};

#[cfg(test)]
pub(crate) mod tests;
