//! What a person is told when something declared is wrong.

use std::path::PathBuf;

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The bundle cannot be used.
    Error,
    /// The bundle can be used, but probably not as meant.
    Warning,
}

/// A place in a file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file, as it was named when it was read.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// The text of that line, without its line end.
    pub text: String,
    /// How many characters of the line are meant, at least 1.
    pub width: usize,
}

/// One finding about a manifest, overlay, lock or machine file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The rule's stable name, for example `unknown-key`.
    pub rule: &'static str,
    /// What was found and what was expected.
    pub message: String,
    /// Where.
    pub at: Option<Place>,
    /// A suggestion ("did you mean `servers`?").
    pub help: Option<String>,
    /// The next command to type.
    pub next: Option<String>,
}
