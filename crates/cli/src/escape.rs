//! Text from elsewhere, made safe for a terminal.

/// The text with everything that could move, hide or colour other text shown as an escape.
pub(crate) fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let plain = c == ' ' || !(c.is_control() || c.is_whitespace() || is_hidden(c));
            let escape = (!plain).then(|| c.escape_default());
            escape.into_iter().flatten().chain(plain.then_some(c))
        })
        .collect()
}

/// Invisible and direction-changing characters (Unicode 16, `Default_Ignorable_Code_Point` and
/// `Bidi_Control`, the ranges that matter in running text).
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn what_could_deceive_is_shown() {
        assert_eq!(escaped("héllo wörld 你好"), "héllo wörld 你好");
        assert_eq!(
            escaped("a\x1b[2Kb\r\n\u{202e}c\u{200b}"),
            "a\\u{1b}[2Kb\\r\\n\\u{202e}c\\u{200b}"
        );
    }
}
