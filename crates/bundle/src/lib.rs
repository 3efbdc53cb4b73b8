//! What is declared, and what bytes is it? Manifest, overlay, lock, hosts and names, digests.
//!
//! This crate decides nothing and contacts nobody. It reads a project's `.ringfence/` folder into
//! one [`Snapshot`] and gives back values that exist only in valid form.

mod diagnostic;
mod error;
mod host;
mod lock;
mod manifest;
mod names;
mod snapshot;

pub use diagnostic::{Diagnostic, Place, Severity};
pub use error::Error;
pub use host::{Host, HostError, HostRule};
pub use lock::{Lock, Pin};
pub use manifest::{
    A2a, Agent, ApprovalRule, Approvals, Capability, Delivery, Egress, Engine, Extension,
    Filesystem, Hook, Isolation, Limits, Manifest, Meta, Meter, Network, Notify, OnTimeout,
    Pattern, Peer, PolicyTables, Predicate, PredicateTest, Pricing, RenderLocally, Sandbox, Server,
    Source, Spending, Template, Toolset, Transport,
};
pub use names::{Id, NameError, SecretName, ServerId, ToolName};
pub use snapshot::{Digest, Drift, Snapshot};
