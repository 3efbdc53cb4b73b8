//! What happened? Event types, hash chain, signatures, seal, verify.
//!
//! A run has one file and one writer ([`Recorder`]); the machine has one log that many processes
//! write in turn ([`MachineLog`]). [`verify`] reads both sides and names what was done to them.

#![forbid(unsafe_code)]

mod error;
mod event;
mod line;
mod machine;
mod paths;
mod read;
mod recorder;
mod run_id;
mod verify;
mod writer;

#[cfg(test)]
mod testing;

pub use error::Error;
pub use event::{Attempt, Event, Kind, Outcome, Step};
pub use machine::MachineLog;
pub use paths::{machine_file, run_file};
pub use read::{
    Entries, Entry, RunInfo, find_run, is_recording, is_sealed, list_runs, read_machine, read_run,
    several, wait_recorded,
};
pub use recorder::{Receipt, Recorder, Seal};
pub use ringfence_identity::prepare_home;
pub use run_id::RunId;
pub use verify::{Class, Finding, Report, RunReport, RunState, Severity, VerifyOptions, verify};
