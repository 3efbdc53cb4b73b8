//! Assemble the plan, supervise it, tear it down.

mod approvals;
mod ask;
mod environment;
mod error;
mod execute;
mod launch;
mod live;
mod plan;
mod project;
mod proxy;
mod rooms;
mod secrets;
mod serve;
mod session;
mod shadow;
mod shared;
mod signin;
mod stderr;
mod summary;
mod supervise;
mod terminal;
mod wall;
mod webhook;

pub use ask::{Asked, Field, How, Inquiry, Moved, Piece, Unfit, What, moved};
pub use error::{Error, Kind};
pub use execute::{Ask, Cleaned, EndedBy, Finished, Progress, execute, sweep};
pub use live::{Leased, Live, crashed, leases, list, stop, wait_over};
pub use plan::{Backend, Line, Plan, Request, View};
pub use secrets::{Answered, SecretRow, State, Survey, Wanting, survey};
pub use serve::{
    Folder, Listen, Listening, Mcp, Say, Token, Tokens, Value as TokenValue, gateway, mcp,
    parse_lifetime,
};
pub use shared::shared;
pub use signin::{SignInRow, Signing, login, logout, sign_ins};
pub use summary::{About, Row, Verdict, rows, screen};
