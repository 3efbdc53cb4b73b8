//! Who signs? `did:key` Ed25519 keys, key files, sign and verify.

#![forbid(unsafe_code)]

mod base58;
mod did;
mod error;
mod folder;
mod keyfile;
mod signer;

pub use did::Did;
pub use error::Error;
pub use folder::{open_private, prepare_home};
pub use signer::{Signer, machine_did};
