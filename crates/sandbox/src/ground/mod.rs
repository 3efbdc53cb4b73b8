//! The ground that every wall stands on: the project's files, as whom the agent has them, and what must be
//! put back.

pub(crate) mod guard;
pub(crate) mod ids;
pub(crate) mod journal;
pub(crate) mod placeholder;
pub(crate) mod tree;
