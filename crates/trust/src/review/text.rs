//! Untrusted text made visible.

pub use ringfence_bundle::{shown, shown_line};

/// One argument of a command, quoted where its ends or its words would not be clear.
pub(super) fn quoted(text: &str, most: usize) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let text_shown = shown(text, most);
    if !text.is_empty() && text.chars().all(plain) {
        return text_shown;
    }
    format!("\"{}\"", text_shown.replace('"', "\\\""))
}
