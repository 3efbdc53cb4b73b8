//! What a person is shown before saying yes.

mod asked;
mod card;
pub mod changes;
mod gather;
mod lines;
mod text;
mod tools;

pub use asked::Review;
pub(crate) use asked::digest;
pub use card::{
    AgentCard, ApprovalCard, Card, Content, HookCard, Limit, NetworkCard, ProgramCard, SecretCard,
    ServerCard, Tools,
};
pub use text::{shown, shown_line};
pub use tools::{ToolCard, ToolsCard};

#[cfg(test)]
mod tests;
