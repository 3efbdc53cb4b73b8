//! What a check of the evidence found.

use std::path::PathBuf;

use serde::Serialize;

use crate::RunId;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something ended before it was finished; what was signed before still holds.
    Warning,
    /// The evidence is not what was written.
    Error,
}

/// What kind of damage. Names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Class {
    /// A line is not the one that was written.
    Edited,
    /// A line is JSON, but not in the one spelling that a recorder writes.
    NotCanonical,
    /// A line does not follow from the one before it, and it cannot be told which of the two is wrong.
    BrokenChain,
    /// Lines were taken out, or the end was cut off.
    MissingLine,
    /// A line stands twice or out of order.
    DuplicateSeq,
    /// A signature does not fit the lines it closes.
    BadSignature,
    /// A group is signed by a key that is not this file's.
    UnknownKey,
    /// Lines at the end that no signature covers.
    UnsignedTail,
    /// A last write that was not finished.
    Torn,
    /// A run that ended without a seal: its supervisor was killed, or its end was cut off at a group.
    Unsealed,
    /// A run that the machine log names has no file.
    MissingRun,
    /// A run's file that the machine log does not name.
    Unannounced,
    /// A run's file is not what its seal says.
    SealMismatch,
    /// The machine log is gone, or its copy of the last signed line is.
    MissingLog,
    /// A file could not be read.
    Unreadable,
    /// An event of a newer program, or of none.
    UnknownEvent,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1, where one is meant.
    pub line: Option<u64>,
    /// What kind.
    pub class: Class,
    /// How bad.
    pub severity: Severity,
    /// What it means.
    pub message: String,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Its recorder is at work; checked up to the last signed group.
    Live,
    /// Closed, and its seal is in the machine log.
    Sealed,
    /// Over without a seal; checked up to the last signed group.
    Unsealed,
}

/// One run's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// The run.
    pub run: RunId,
    /// How it stands.
    pub state: RunState,
    /// Whole lines in its file.
    pub lines: u64,
    /// Lines up to the last good signature.
    pub signed_lines: u64,
    /// Who signs it, as the machine log says.
    pub key: Option<String>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whole lines in the machine log.
    pub machine_lines: u64,
    /// The runs that were checked, oldest first.
    pub runs: Vec<RunReport>,
    /// Everything found, by file and line.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing was tampered with. Warnings (a crash, a torn write) do not count.
    #[must_use]
    pub fn intact(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity < Severity::Error)
    }
}
