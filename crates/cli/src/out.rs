//! Words for people on stderr, data on stdout.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one place that prints")]

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_bundle::{Diagnostic, Severity, first_invisible};

use crate::escape::escaped;

/// A colour, or nothing.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Dim,
}

/// Whether data could not be printed.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether some data did not reach stdout, though its reader is still there: a full disk. What was
/// printed is then not the whole, and the status must say so.
pub(crate) fn lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Prints a line of data.
pub(crate) fn data(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n"));
    // A reader that has gone away has all it wanted.
    if let Err(error) = written.and_then(|()| out.flush())
        && error.kind() != ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        say(&format!("{}: cannot print: {error}", paint(Colour::Red, "error")));
    }
}

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) {
    let text = serde_json::to_string(value).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"));
    data(&plain(&text));
}

/// The same JSON, in which nothing moves, hides or colours other text where a terminal shows it: such
/// characters can only stand in its strings, and are written as their escapes there.
fn plain(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        let acts = c.is_control() || first_invisible(c.encode_utf8(&mut [0; 4])).is_some();
        if acts && !c.is_ascii_whitespace() {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Prints a line for people.
pub(crate) fn say(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.write_all(b"\n"));
}

/// The text in a colour, where stderr shows colours and the person wants them.
pub(crate) fn paint(colour: Colour, text: &str) -> String {
    if !colours() {
        return text.to_owned();
    }
    let code = match colour {
        Colour::Red => 31,
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Dim => 2,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

fn colours() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    std::io::stderr().is_terminal() && !set("NO_COLOR")
}

/// A line of a file, one character for each of its own, so that a mark below it stands right, and
/// none that a terminal acts on.
pub(crate) fn literal(line: &str) -> String {
    line.chars()
        .map(|c| match c {
            c if c.is_whitespace() => ' ',
            c if first_invisible(c.encode_utf8(&mut [0; 4])).is_some() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Shows a finding with its place.
pub(crate) fn diagnostic(finding: &Diagnostic) {
    let (colour, word) = match finding.severity {
        Severity::Error => (Colour::Red, "error"),
        Severity::Warning => (Colour::Yellow, "warning"),
    };
    say(&format!(
        "{}: {}",
        paint(colour, &format!("{word}[{}]", finding.rule)),
        escaped(&finding.message)
    ));
    if let Some(place) = &finding.at {
        let number = place.line.to_string();
        let margin = " ".repeat(number.len());
        say(&format!(
            "{margin}--> {}:{}:{}",
            escaped(&place.file.to_string_lossy()),
            place.line,
            place.column
        ));
        let shown: String = literal(&place.text).chars().take(160).collect();
        say(&format!("{number} | {shown}"));
        let before: String = place.text.chars().take(place.column.saturating_sub(1)).collect();
        let indent = literal(&before).chars().count().min(160);
        let width = place.width.clamp(1, 160);
        say(&format!("{margin} | {}{}", " ".repeat(indent), paint(colour, &"^".repeat(width))));
    }
    if let Some(help) = &finding.help {
        say(&format!("  help: {}", escaped(help)));
    }
    if let Some(next) = &finding.next {
        say(&format!("  next: {}", escaped(next)));
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn json_is_the_same_and_acts_on_no_terminal() {
        let value = serde_json::json!({
            "é 你好": "\u{9b}31m\u{202e}evil\u{200b}\u{e0041}\u{7f}\u{85}\u{feff}",
            "n": [1, null, "a\tb\n\\ \""],
        });
        let text = plain(&value.to_string());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert!(!text.contains(|c: char| c.is_control() || "\u{202e}\u{200b}\u{feff}".contains(c)));
        assert!(text.contains("é 你好") && text.contains("\\udb40\\udc41"), "{text}");
    }
}
