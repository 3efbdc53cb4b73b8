//! Characters that a person cannot see, and how text is shown so that they can.

#[cfg(test)]
mod tests;

/// The first character of `text` that does not show, or that changes how its neighbours show:
/// controls other than tab and line ends, zero-width and bidirectional formatting characters,
/// invisible fillers, variation selectors and tags (Unicode TR 36, TR 39). With its byte offset.
#[must_use]
pub fn first_invisible(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|(_, c)| is_invisible(*c) && !matches!(c, '\t' | '\n' | '\r'))
}

/// The first bidirectional formatting character: it can make a line read otherwise than it parses.
pub(crate) fn first_bidi(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|(_, c)| {
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}')
    })
}

pub(crate) fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{13430}'..='\u{1343f}' | '\u{16fe4}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Text for a message: invisible characters escaped, cut after 80 characters.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == 80 {
            out.push('…');
            break;
        }
        if is_invisible(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// A line of a file for display: one character for each of the original, so that columns hold,
/// and nothing that a terminal acts on.
pub(crate) fn display_line(line: &str) -> String {
    line.chars()
        .take(400)
        .map(|c| match c {
            '\t' => ' ',
            c if is_invisible(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}
