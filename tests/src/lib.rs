//! What the black-box suite stands on: the built program, projects, users, networks, upstreams.
#![forbid(unsafe_code)]

mod agent;
mod events;
mod githost;
mod forge;
mod house;
mod keychain;
mod output;
mod program;
mod project;
mod testnet;
mod upstream;
mod who;

pub use agent::Cases;
pub use events::{Events, field};
pub use githost::GitHost;
pub use forge::{Forged, Key, framed, header};
pub use house::{repository, rust_files, test_functions};
pub use keychain::Keychain;
pub use output::{Output, Started};
pub use program::{PYTHON, program};
pub use project::Project;
pub use testnet::{Sighting, TestNet};
pub use upstream::{Seen, Upstream};
pub use who::{Who, each_user};
