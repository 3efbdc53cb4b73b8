//! Whether a file in varlock's language (`@env-spec`) executes nothing.
//!
//! A list of what is known to be harmless: whatever is not on it is refused, so that a newer varlock
//! brings nothing unseen. Each line stands for itself: what would reach over lines is refused too.

/// Functions and types that read nothing, run nothing and ask nobody (varlock 1.20).
const CALLS: [&str; 27] = [
    "concat",
    "fallback",
    "ref",
    "if",
    "ifs",
    "eq",
    "not",
    "isEmpty",
    "remap",
    "forEnv",
    "inferFromPrefix",
    "array",
    "boolean",
    "domain",
    "duration",
    "email",
    "enum",
    "ip",
    "isoDate",
    "number",
    "port",
    "record",
    "regex",
    "semver",
    "string",
    "url",
    "uuid",
];

/// Decorators that only describe (varlock 1.20).
const DECORATORS: [&str; 20] = [
    "currentEnv",
    "defaultRequired",
    "defaultSensitive",
    "deprecated",
    "disable",
    "docs",
    "docsUrl",
    "envFlag",
    "example",
    "icon",
    "internal",
    "optional",
    "placeholder",
    "public",
    "required",
    "sensitive",
    "static",
    "tag",
    "type",
    "todo",
];

const EXECUTES: &str = "`$(` and backquotes execute a command";

/// One line that sets a name.
#[derive(Debug, PartialEq)]
pub(super) struct Item {
    pub(super) name: String,
    /// From 1.
    pub(super) line: usize,
    /// Its value is made of other values.
    pub(super) composed: bool,
}

/// Every name that is set, or the first line that could execute something, and why. Values are not
/// quoted.
pub(super) fn items(text: &str) -> Result<Vec<Item>, (usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let item = match line.strip_prefix('#') {
            Some(comment) => decorators(comment).map(|()| None),
            None => item(line, number).map(Some),
        };
        found.extend(item.map_err(|why| (number, why))?);
    }
    Ok(found)
}

/// A comment: only decorators in it mean anything.
fn decorators(comment: &str) -> Result<(), String> {
    let mut any = false;
    for (at, _) in comment.match_indices('@') {
        let before = comment[..at].chars().next_back();
        let word = word(&comment[at + 1..]);
        if word.is_empty() || before.is_some_and(|c| c.is_alphanumeric() || "._-+".contains(c)) {
            continue;
        }
        any = true;
        if !DECORATORS.contains(&word) {
            return Err(format!("`@{}` may load or execute something", cut(word)));
        }
    }
    if any { calls(comment) } else { Ok(()) }
}

fn item(line: &str, number: usize) -> Result<Item, String> {
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    let name = line.split(|c: char| !(c.is_ascii_alphanumeric() || "_.-".contains(c))).next();
    let name = name.unwrap_or_default();
    let rest = line[name.len()..].trim_start();
    if name.is_empty() || !(rest.is_empty() || rest.starts_with(['=', '#'])) {
        return Err("expected NAME=value".to_owned());
    }
    let value = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    if let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let inner = &value[1..];
        if inner.starts_with(quote) && inner[1..].starts_with(quote) {
            return Err("a value over several lines".to_owned());
        }
        let close = inner.find(quote).ok_or("a value over several lines")?;
        let tail = inner[close + 1..].trim_start();
        if inner[..close].contains('\\') || !(tail.is_empty() || tail.starts_with('#')) {
            return Err("a quote within a quoted value".to_owned());
        }
    }
    calls(value)?;
    if let Some((_, comment)) = value.split_once('#') {
        decorators(comment)?;
    }
    let composed = value.contains('$') || value.contains('(');
    Ok(Item { name: name.to_owned(), line: number, composed })
}

/// Refuses every call that is not on the list, in quotes or not.
fn calls(text: &str) -> Result<(), String> {
    if text.contains("$(") || text.contains('`') {
        return Err(EXECUTES.to_owned());
    }
    if text.matches('(').count() != text.matches(')').count() {
        return Err("a parenthesis that is not closed on its line".to_owned());
    }
    for (at, _) in text.match_indices('(') {
        let before = text[..at].trim_end();
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let name = &before[start..];
        let decorator = before[..start].ends_with('@');
        if !(decorator || CALLS.contains(&name)) {
            return Err(format!("`{}(` may execute something", cut(name)));
        }
    }
    Ok(())
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// A short piece that is safe to show.
fn cut(text: &str) -> String {
    text.chars().take(24).flat_map(char::escape_debug).collect()
}
