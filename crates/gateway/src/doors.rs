//! The three doors: one server, many servers under one address, and a search over many. All end in
//! [`Gateway::call`].

mod aggregated;
mod compact;
mod hello;
mod leases;
mod levels;
mod many;
mod merged;
mod names;
mod own;
mod search;
mod transparent;

use std::sync::Arc;

use ringfence_bundle::ServerId;
use ringfence_mcp::Backend;

use crate::{Caller, Gateway, Selection};

pub use leases::{Lease, LeaseBook};

/// One server, as it is: `/<server>/mcp`.
#[must_use]
pub fn transparent(gateway: &Arc<Gateway>, caller: Caller, server: ServerId) -> Arc<dyn Backend> {
    Arc::new(transparent::Transparent::new(Arc::clone(gateway), caller, server))
}

/// Many servers as one: their tools are `<server>__<tool>`, their prompts `<server>__<prompt>`, their
/// resources `<server>+<uri>`. A connection of a revision with a handshake can lease another toolset
/// of the trusted bundle.
#[must_use]
pub fn aggregated(
    gateway: &Arc<Gateway>,
    caller: Caller,
    selection: Selection,
) -> Arc<dyn Backend> {
    Arc::new(aggregated::Aggregated::new(many::Many::new(gateway, caller, selection)))
}

/// Many servers behind three tools, for agents that should not carry a thousand schemas:
/// `tools_search`, `tools_describe`, `tools_call`.
#[must_use]
pub fn compact(gateway: &Arc<Gateway>, caller: Caller, selection: Selection) -> Arc<dyn Backend> {
    Arc::new(compact::Compact::new(many::Many::new(gateway, caller, selection)))
}
