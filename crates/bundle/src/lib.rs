//! What is declared, and what bytes is it? Manifest, overlay, lock, hosts and names, digests.
//!
//! This crate decides nothing and contacts nobody. It reads a project's `.ringfence/` folder into
//! one [`Snapshot`] and gives back values that exist only in valid form.

#![forbid(unsafe_code)]

mod beside;
mod consent;
mod contents;
mod cross;
mod decode;
mod diagnostic;
mod digest;
mod document;
mod effective;
mod endpoint;
mod error;
mod fields;
mod files;
mod folder;
mod folding;
mod hidden;
mod host;
mod init;
mod keys;
mod kind;
mod levels;
pub mod literals;
mod lock;
mod manifest;
mod money;
mod names;
mod nearest;
mod objects;
mod parse;
mod paths;
mod pins;
mod places;
mod preference;
mod present;
mod programs;
mod reserved;
mod schema;
mod shown;
mod snapshot;
mod source;
mod template;
mod text;
mod tree;
mod write;

pub use beside::Beside;
pub use consent::{Three, consent_of, read_three, three_paths};
pub use decode::{Table, Value};
pub use diagnostic::{Diagnostic, Place, Severity};
pub use digest::Digest;
pub use document::Document;
pub use effective::{Effective, Row};
pub use endpoint::Endpoint;
pub use error::Error;
pub use fields::{Field, FieldType, Label, field, fields};
pub use folder::{first_hidden, read_content, tree_digest};
pub use host::{Host, HostError, HostRule};
pub use init::first_manifest;
pub use keys::{check_did, check_key};
pub use kind::{Form, Kind};
pub use levels::floor;
pub use lock::{Lock, Origin, Pin, Resolved, ToolPin, ToolPins, json_digest, tool_digest};
pub use manifest::{
    A2a, Agent, ApprovalRule, Approvals, Capability, Delivery, Egress, Engine, Extension,
    Filesystem, Hook, Isolation, Limits, Manifest, Meta, Meter, Network, Notify, OnTimeout,
    Pattern, Peer, PolicyTables, Predicate, PredicateTest, Pricing, RenderLocally, Sandbox, Server,
    Source, Spending, Template, Toolset, Transport,
};
pub use money::parse_usd;
pub use names::{Id, NameError, SecretName, ServerId, ToolName};
pub use nearest::{Nearest, nearest};
pub use objects::{Blob, Content, Objects};
pub use parse::{CLIS, PatternCheck, PolicyList, parse_manifest, policy_tables};
pub use paths::check_relative;
pub use places::Places;
pub use preference::{Layer, preferences, set_preference};
pub use programs::{
    Named, OWN_NAME, Program, Programs, SANDBOX_PATH, Who, Whose, named, of_project, on_machine,
    resolve_program, unpinned,
};
pub use reserved::reserved_variable;
pub use schema::schema;
pub use shown::{shown, shown_line};
pub use snapshot::{Drift, Reason, Snapshot};
pub use text::first_invisible;
pub use write::{write_first, write_layer, write_lock};
