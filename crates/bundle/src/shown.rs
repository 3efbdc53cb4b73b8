//! Untrusted text made visible.

use crate::Digest;
use crate::text::first_invisible;

/// Text as a person may safely see it: everything that does not show, or that changes how its
/// neighbours show, is written as `\u{…}` (controls, escape sequences, line ends, zero-width and
/// bidirectional characters, spaces of another width), so is every space that follows a space (a
/// row of them would push what comes next into a line of its own), a backslash is doubled, and
/// after `most` characters it is cut, with the number of characters left out and the digest of the
/// whole.
#[must_use]
pub fn shown(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len().min(most) + 16);
    let mut last = '\0';
    for c in text.chars().take(most) {
        let before = std::mem::replace(&mut last, c);
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            ' ' if before != ' ' => out.push(' '),
            _ if c.is_whitespace() || first_invisible(c.encode_utf8(&mut [0; 4])).is_some() => {
                out.extend(c.escape_unicode());
            }
            _ => out.push(c),
        }
    }
    let left = text.chars().skip(most).count();
    if left > 0 {
        let digest = Digest::framed("shown", &[text.as_bytes()]);
        out.push_str(&format!("… ({left} more characters, {digest})"));
    }
    out
}

/// A line of a file, for a list of changes: as [`shown`], but spaces that indent it stay (at most 40),
/// and a space at its end is written as `\u{20}`.
#[must_use]
pub fn shown_line(line: &str, most: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let (indent, rest) = line.split_at(indent.min(40));
    let Some(before) = rest.strip_suffix(' ').filter(|rest| !rest.is_empty()) else {
        return format!("{indent}{}", shown(rest, most));
    };
    if before.chars().count() >= most || before.ends_with(' ') {
        return format!("{indent}{}", shown(rest, most));
    }
    format!("{indent}{}\\u{{20}}", shown(before, most))
}
