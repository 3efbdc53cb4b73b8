//! Paths that a manifest may name.

use crate::text;

#[cfg(test)]
mod tests;

/// Checks a path beside the manifest: `./` and then plain components, no `..`, nothing absolute.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_relative(given: &str) -> Result<(), String> {
    let fault = |reason: &str| Err(format!("`{}`: {reason}", text::shown(given)));
    let Some(rest) = given.strip_prefix("./") else {
        return fault("expected a path that begins with `./`, beside the manifest");
    };
    if given.len() > 1024 {
        return fault("the path is longer than 1024 bytes");
    }
    if given.contains(['\\', '\0']) || given.chars().any(text::is_invisible) {
        return fault("it holds a backslash or a character that does not show");
    }
    match rest.split('/').find(|part| part.is_empty() || matches!(*part, "." | "..")) {
        Some("..") => fault("`..` leads out of the bundle"),
        Some(_) => fault("it holds an empty or `.` component"),
        None => Ok(()),
    }
}
