//! What happened? Event types, hash chain, signatures, seal, verify.

mod event;
mod recorder;

pub use event::{Event, Outcome, RunId, Step};
pub use recorder::{Error, MachineLog, Receipt, Recorder, Seal};
