//! What did it cost, and is there budget left?
//!
//! A priced call sets aside what it may cost before it goes on ([`Purse::reserve`]), and is charged
//! what its reply says ([`Reservation::settle`]). The sums are in the shared [`ringfence_state`], so
//! that they hold for all processes of a machine, or of many.
//!
//! What is set aside is durable before a call goes on. What is settled becomes so a moment later: when
//! that is lost, what was set aside stays spent, and nothing ever gives it back.

#![forbid(unsafe_code)]

mod books;
mod budget;
mod error;
mod ledger;
mod meter;
mod period;
mod purse;
mod report;
mod store;
mod usd;

pub use books::{Cap, Caps, Kind};
pub use budget::Budget;
pub use error::Error;
pub use ledger::Ledger;
pub use meter::{Price, PriceError};
pub use purse::{Asked, Boxed, Early, Held, Pending, Purse, Reservation, Settled, Verdict};
pub use report::{Ahead, CallRow, Filter, Report, Sum, is_day, report};
pub use usd::Usd;
