//! Text from elsewhere, made safe for a terminal.

use ringfence_trust::review::shown;

/// Most characters of one text; what is cut says so.
const MOST: usize = 2000;

/// The text with everything that could move, hide or colour other text shown as an escape, as in
/// the review that a person says yes to. Cut after 2,000 characters, with how many are left out and
/// the digest of the whole.
pub(crate) fn escaped(text: &str) -> String {
    shown(text, MOST)
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn what_could_deceive_is_shown() {
        assert_eq!(escaped("héllo wörld 你好"), "héllo wörld 你好");
        assert_eq!(
            escaped("a\x1b[2Kb\r\n\u{202e}c\u{200b}\u{2800}\u{3000}d"),
            "a\\u{1b}[2Kb\\r\\n\\u{202e}c\\u{200b}\\u{2800}\\u{3000}d"
        );
        assert_eq!(escaped("a   b"), "a \\u{20}\\u{20}b");
        assert!(escaped(&"x".repeat(10_000)).contains("… (8000 more characters, sha256:"));
    }
}
