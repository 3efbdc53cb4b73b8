//! Literal secrets in text: tokens, keys and passwords that stand there themselves.
//!
//! Two kinds of rule. A token whose issuer publishes its form (a prefix, an alphabet, a length) is
//! known wherever it stands. A value without a form of its own is taken for a secret only where its
//! key says so (`*_TOKEN`, `password`), and only when it looks drawn by chance. What stands for a
//! value, `${NAME}`, `<token>`, `xxxx`, `example`, is none. The text is read once, in linear time.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use keyed::Quoting;

mod chance;
mod finder;
mod keyed;
pub(crate) mod manifest;
mod shapes;
mod table;
#[cfg(test)]
mod tests;

/// No more than so many are reported of one text.
pub const MAX_LITERALS: usize = 64;

/// What a text is, which decides what counts as a value in it.
#[derive(Debug, Clone, Copy)]
pub enum Context<'a> {
    /// A file, by its name: in `.env`, YAML, INI, properties and shell files a value needs no quotes.
    File(&'a Path),
    /// One value by itself, and the key it is the value of.
    Value(&'a str),
}

/// A literal secret: where it stands and what it looks like. Never the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Literal {
    /// The rule's stable name, for example `github-token`.
    pub rule: &'static str,
    /// Bytes of the text.
    pub range: Range<usize>,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// What may be shown of it: a public prefix, if it has one, and its length.
    pub preview: String,
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {} {}", self.line, self.column, self.rule, self.preview)
    }
}

/// A find, before its place is worked out.
struct Hit {
    rule: &'static str,
    range: Range<usize>,
    /// How many of its first bytes are the issuer's, and may be shown.
    public: usize,
}

/// Every literal secret in a text, in its order, without overlaps; the first [`MAX_LITERALS`].
///
/// ```
/// use ringfence_bundle::literals::{Context, find};
/// let context = Context::File("settings.toml".as_ref());
/// assert!(find(b"token = \"${BANK_TOKEN}\"", context).is_empty());
/// let token = format!("token = \"gh{}_{}\"", 'p', "aZ3kQ9".repeat(6));
/// let found = find(token.as_bytes(), context);
/// assert_eq!((found[0].rule, found[0].line, found[0].column), ("github-token", 1, 10));
/// assert_eq!(found[0].preview, "ghp_… (40 characters)");
/// ```
#[must_use]
pub fn find(text: &[u8], context: Context<'_>) -> Vec<Literal> {
    let mut hits = Vec::new();
    table::scan(text, &mut hits);
    shapes::scan(text, &mut hits);
    match context {
        Context::File(path) => {
            keyed::scan(text, Quoting::of(path), &mut hits);
            let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
            if matches!(end, "toml" | "json" | "jsonc" | "json5") {
                keyed::within(text, false, &mut hits);
            }
        }
        Context::Value(key) => {
            keyed::value(text, key, &mut hits);
            keyed::within(text, true, &mut hits);
        }
    }
    hits.sort_by_key(|hit| (hit.range.start, std::cmp::Reverse(hit.public)));
    let mut literals: Vec<Literal> = Vec::new();
    let (mut line, mut begin) = (1, 0);
    for hit in hits {
        if literals.len() == MAX_LITERALS {
            break;
        }
        let start = hit.range.start;
        if literals.last().is_some_and(|last| start < last.range.end) {
            continue;
        }
        // Finds come in order, so that lines are counted once.
        let passed = &text[begin..start];
        line += passed.iter().filter(|byte| **byte == b'\n').count();
        begin += passed.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&text[begin..start]).chars().count() + 1;
        let shown = String::from_utf8_lossy(&text[start..start + hit.public]);
        let count = String::from_utf8_lossy(&text[hit.range.clone()]).chars().count();
        let preview = format!("{shown}… ({count} characters)");
        literals.push(Literal { rule: hit.rule, range: hit.range, line, column, preview });
    }
    literals
}
