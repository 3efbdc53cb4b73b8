//! What the black-box suite stands on: the built program, projects, users, networks, upstreams.
#![forbid(unsafe_code)]

mod agent;
pub mod authority;
pub mod behind;
mod client;
pub mod conformance;
pub mod conformance_auth;
mod desk;
mod events;
mod forge;
mod githost;
mod house;
pub mod http;
mod keychain;
mod output;
mod postgres;
mod program;
mod project;
pub mod relay;
mod screen;
mod spender;
mod testnet;
mod upstream;
mod vt;
mod who;

pub use agent::Cases;
pub use authority::Authority;
pub use client::{StdioClient, eventually, names, stateless};
pub use events::{Events, field};
pub use forge::{Forged, Key, framed, header};
pub use githost::GitHost;
pub use house::{repository, rust_files, test_functions};
pub use keychain::Keychain;
pub use output::{Output, Started};
pub use postgres::Postgres;
pub use program::{PYTHON, program};
pub use project::Project;
pub use screen::Screen;
pub use spender::{Budgeted, Ledger, Spent};
pub use testnet::{Sighting, TestNet};
pub use upstream::{Seen, Upstream};
pub use vt::Vt;
pub use who::{Who, each_user};
