//! The text of a `.env` file, line by line.

use zeroize::Zeroizing;

/// One line that sets a name.
pub(super) struct Entry {
    pub(super) name: String,
    /// From 1.
    pub(super) line: usize,
    /// Or why readers differ about it.
    pub(super) value: Result<Zeroizing<String>, &'static str>,
}

const EXPANDS: &str =
    "other readers expand `$` and backquotes: put the value between single quotes";
const BACKSLASH: &str = "readers differ about this backslash: put the value between single quotes";
const QUOTES: &str = "a quote within the value: put the whole value between single quotes";

/// Every line that sets a name. An error says which line is not one, and quotes none of it.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let (taken, entry) = entry(rest, line).map_err(|why| format!("line {line}: {why}"))?;
        found.extend(entry);
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    Ok(found)
}

/// One entry, comment or empty line, and how many bytes of `text` it takes with its line end.
fn entry(text: &str, line: usize) -> Result<(usize, Option<Entry>), &'static str> {
    let end = text.find('\n').map_or(text.len(), |at| at + 1);
    let first = text[..end].trim();
    if first.is_empty() || first.starts_with('#') {
        return Ok((end, None));
    }
    let (left, _) = text[..end].split_once('=').ok_or("expected NAME=value")?;
    let start = left.len() + 1;
    let name = left.trim();
    let name = name.strip_prefix("export ").map_or(name, str::trim);
    if !is_name(name) {
        return Err("what stands before the `=` is not a name");
    }
    let value = &text[start..];
    let blank = value.len() - value.trim_start_matches([' ', '\t']).len();
    let quote = value[blank..].chars().next().filter(|c| matches!(c, '"' | '\''));
    let (taken, value) = match quote {
        Some(quote) => {
            let inner = &value[blank + 1..];
            let close = closing(inner, quote).ok_or("a quote that is not closed")?;
            let after = &inner[close + 1..];
            let stop = after.find('\n').map_or(after.len(), |at| at + 1);
            let tail = after[..stop].trim();
            if !(tail.is_empty() || tail.starts_with('#')) {
                return Err("something follows the closing quote");
            }
            let inner = &inner[..close];
            let value = if quote == '\'' { Ok(own(inner)) } else { unescape(inner) };
            (start + blank + 1 + close + 1 + stop, value)
        }
        None => (end, plain(&text[start..end])),
    };
    Ok((taken, Some(Entry { name: name.to_owned(), line, value })))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// Where the quote closes: a backslash escapes within double quotes only.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        if escaped {
            escaped = false;
            return None;
        }
        escaped = quote == '"' && c == '\\';
        (c == quote).then_some(at)
    })
}

fn plain(text: &str) -> Result<Zeroizing<String>, &'static str> {
    let text = text.trim();
    let comment = text
        .char_indices()
        .find(|(at, c)| *c == '#' && (*at == 0 || text[..*at].ends_with([' ', '\t'])));
    let text = comment.map_or(text, |(at, _)| text[..at].trim_end());
    if expands(text) {
        Err(EXPANDS)
    } else if text.contains('\\') {
        Err(BACKSLASH)
    } else if text.contains(['"', '\'']) {
        Err(QUOTES)
    } else {
        Ok(own(text))
    }
}

fn unescape(text: &str) -> Result<Zeroizing<String>, &'static str> {
    let mut out = Zeroizing::new(String::with_capacity(text.len()));
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        if expands(&rest[..at]) {
            return Err(EXPANDS);
        }
        out.push_str(&rest[..at]);
        out.push(match rest.as_bytes().get(at + 1) {
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'\\') => '\\',
            Some(b'"') => '"',
            Some(b'$') => '$',
            _ => return Err(BACKSLASH),
        });
        rest = &rest[at + 2..];
    }
    if expands(rest) {
        return Err(EXPANDS);
    }
    out.push_str(rest);
    Ok(out)
}

/// Whether a shell or another reader would put something else in its place.
fn expands(text: &str) -> bool {
    let after = |at: usize| text.as_bytes().get(at + 1).copied().unwrap_or(b' ');
    text.contains('`')
        || text.match_indices('$').any(|(at, _)| {
            matches!(after(at), b'{' | b'(' | b'_' | b'$') || after(at).is_ascii_alphanumeric()
        })
}

fn own(text: &str) -> Zeroizing<String> {
    Zeroizing::new(text.to_owned())
}
