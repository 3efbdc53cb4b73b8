//! What a person is shown before saying yes.

mod card;
mod lines;
mod text;

pub use card::{
    AgentCard, ApprovalCard, Card, Content, HookCard, Limit, NetworkCard, SecretCard, ServerCard,
    Tools, card,
};
pub use text::shown;

#[cfg(test)]
mod tests;
