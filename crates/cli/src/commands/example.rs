//! `ringfence example`: the first example's own agent and MCP server.

mod agent;
mod server;

use super::Done;
use crate::args::{Example, ExampleKind};

pub(crate) fn run(example: &Example) -> Done {
    match example.which {
        ExampleKind::Agent => agent::run(),
        ExampleKind::McpServer => server::run(),
    }
}
