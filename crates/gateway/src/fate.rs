//! What became of a started server, in words for the person at the machine.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ringfence_mcp::UpstreamError;
use serde_json::Value;

use crate::scrub::Veil;

/// Lines of stderr that are told, and characters of each.
const LINES: usize = 5;
const CHARACTERS: usize = 200;
/// How long a server that has closed its stdout has to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Knows what became of a server that was started. Nothing of it is for the agent.
pub trait Fate: Send + Sync {
    /// How it ended, or that it has not after so long; and what it said.
    fn learn(&self, patience: Duration) -> Pin<Box<dyn Future<Output = Told> + Send + '_>>;
}

/// How a server ended and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// In words, for example `it exited with status 3`.
    pub end: String,
    /// The last 64 KiB or less of its stderr, as it wrote them: hostile text.
    pub stderr: String,
    /// Whether more stood before.
    pub cut: bool,
}

/// Why a server gave nothing, for the person. `None` when the error says all there is to say.
pub(crate) async fn words(
    fate: Option<&dyn Fate>,
    error: &UpstreamError,
    veil: &Veil,
) -> Option<String> {
    let patience = match error {
        UpstreamError::Closed { .. } | UpstreamError::Down { .. } => PATIENCE,
        UpstreamError::Timeout { .. } | UpstreamError::Nonsense { .. } => Duration::ZERO,
        _ => return None,
    };
    let told = fate?.learn(patience).await;
    Some(said(told, |text| veil.error(text)))
}

/// On one line, secrets taken out first: a cut one would no longer be known.
fn said(Told { end, stderr, cut }: Told, scrub: impl Fn(&mut Value)) -> String {
    // What a secret was cut to at the beginning is not among the later half.
    let spared = if cut { stderr.len() / 2 } else { 0 };
    let mut text = Value::String(stderr);
    scrub(&mut text);
    let text = text.as_str().unwrap_or_default();
    let later = text.len().saturating_sub(if cut { spared } else { text.len() });
    let later = text.get(text.ceil_char_boundary(later)..).unwrap_or_default();
    let mut lines: Vec<String> = later
        .lines()
        .rev()
        .map(str::trim_end)
        .filter(|line| !line.trim().is_empty())
        .take(LINES)
        .map(|line| {
            let more = if line.chars().nth(CHARACTERS).is_some() { "…" } else { "" };
            line.chars().take(CHARACTERS).collect::<String>() + more
        })
        .collect();
    lines.reverse();
    if lines.is_empty() {
        return format!("{end}; it wrote nothing to stderr");
    }
    format!("{end}; its stderr ends: {}", lines.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::{Told, said};
    use serde_json::Value;

    fn told(stderr: &str, cut: bool) -> String {
        let hide = |text: &mut Value| {
            *text = Value::String(text.as_str().unwrap().replace("s3cret\nvalue", "[secret]"));
        };
        said(Told { end: "it exited with status 3".into(), stderr: stderr.into(), cut }, hide)
    }

    #[test]
    fn the_last_lines_are_told_bounded_and_without_secrets() {
        assert_eq!(
            told("MISSING CONFIG: set FOO\n", false),
            "it exited with status 3; its stderr ends: MISSING CONFIG: set FOO"
        );
        assert_eq!(told(" \n\n", false), "it exited with status 3; it wrote nothing to stderr");
        let seven = told("1\n2\n3\n\n4\n5\n6\n7", false);
        assert!(seven.ends_with("ends: 3 | 4 | 5 | 6 | 7"), "{seven}");
        let long = told(&"é".repeat(201), false);
        assert!(long.ends_with(&format!("ends: {}…", "é".repeat(200))), "{long}");
        // A secret of two lines is whole when it is looked for.
        assert!(told("a s3cret\nvalue b", false).ends_with("ends: a [secret] b"));
        // What stands before the middle of a cut text may be the rest of a secret.
        let cut = told(&format!("ret\nvalue\n{}\nlast", "x".repeat(100)), true);
        assert!(!cut.contains("value") && cut.ends_with("x | last"), "{cut}");
    }
}
