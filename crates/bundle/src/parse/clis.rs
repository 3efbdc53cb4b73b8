//! Names of agent CLIs.

use crate::decode::{Table, Value, closest, list_of};
use crate::{Id, text};

/// The agent CLIs that `adapters` has a data file for, sorted: what `[settings.<cli>]`,
/// `extensions.*.target`, `delivery.render_locally` and `sandbox.state` name. Another name is taken,
/// with a warning. A test of `adapters` holds this list against its files.
pub const CLIS: [&str; 15] = [
    "aider",
    "claude-code",
    "cline",
    "codex",
    "continue",
    "copilot",
    "cursor",
    "droid",
    "gemini",
    "kilo",
    "opencode",
    "pi",
    "qwen",
    "vscode",
    "zed",
];

/// A CLI's name as a value.
pub(super) fn cli(value: &Value<'_>) -> Option<Id> {
    let id = super::id(value)?;
    if let Some((message, help)) = unknown(id.as_str()) {
        value.warn("unknown-cli", message, Some(help));
    }
    Some(id)
}

/// A CLI's name as the key of a table.
pub(super) fn check_name(table: &Table<'_>, name: &str) {
    // One that is no name at all has its finding already.
    if let (Ok(_), Some((message, help))) = (Id::parse(name), unknown(name)) {
        table.name_warning(name, "unknown-cli", message, Some(help));
    }
}

fn unknown(name: &str) -> Option<(String, String)> {
    if CLIS.contains(&name) {
        return None;
    }
    let message = format!("`{}` is no agent CLI that is known here", text::shown(name));
    let help = closest(name, CLIS.into_iter()).map_or_else(
        || format!("known are {}", list_of(CLIS.into_iter())),
        |near| format!("did you mean `{near}`?"),
    );
    Some((message, help))
}
