//! Globs over names, in bounded time and without regular expressions.

/// Longest pattern that is accepted, in bytes.
pub(crate) const MAX_PATTERN: usize = 512;

/// Whether `pattern` matches all of `text`: `*` is any run of characters, `?` is one character,
/// everything else is itself. At most `pattern.len() * text.len()` steps, no recursion.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (p, t) = (pattern.as_bytes(), text.as_bytes());
    let (mut i, mut j) = (0, 0);
    // Where to go on when the last `*` has to take one more character. Earlier stars need not be
    // revisited: whatever they could give up, the last one can take.
    let mut star: Option<(usize, usize)> = None;
    while j < t.len() {
        match p.get(i) {
            Some(b'*') => {
                i += 1;
                star = Some((i, j));
            }
            Some(b'?') => {
                i += 1;
                j += char_len(t[j]);
            }
            Some(byte) if *byte == t[j] => {
                i += 1;
                j += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                let next = from + char_len(t[from]);
                star = Some((after, next));
                i = after;
                j = next;
            }
        }
    }
    p[i..].iter().all(|byte| *byte == b'*')
}

/// Length of the UTF-8 character that begins with this byte.
fn char_len(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

/// Whether a text holds a wildcard at all.
pub(crate) fn is_literal(pattern: &str) -> bool {
    !pattern.bytes().any(|byte| matches!(byte, b'*' | b'?'))
}

#[cfg(test)]
mod tests;
