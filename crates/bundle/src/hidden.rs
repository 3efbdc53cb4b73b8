//! Text that a person does not see: where it is refused, and where a script or an emoji needs it.
//!
//! What is refused and what passes is decided in `docs/decisions/0012-hidden-text.md`.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, ClassUnicode, HirKind};

use crate::text::is_invisible;

#[cfg(test)]
mod tests;

/// What a file is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Prose that a model is told to read: it must be UTF-8 without control characters.
    Prose,
    /// Text, unless it holds a NUL byte: then it is binary, and nothing is looked for.
    Any,
}

/// Names of prose, after the last dot, lower case.
const PROSE: [&str; 4] = ["md", "mdx", "markdown", "txt"];

impl Reading {
    /// How a file of this name is read.
    pub(crate) fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let prose = name
            .rsplit_once('.')
            .is_some_and(|(_, end)| PROSE.iter().any(|prose| end.eq_ignore_ascii_case(prose)));
        if prose { Self::Prose } else { Self::Any }
    }
}

/// What was found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// A character that does not show, or changes how those around it show.
    Character(char),
    /// Bytes that are not UTF-8, in prose.
    NotText,
}

/// Looks at a file as it is read, piece by piece.
#[derive(Debug)]
pub(crate) struct Scanner {
    reading: Reading,
    /// Bytes before the piece that is looked at.
    offset: u64,
    /// The character before; the end of a line where there is none.
    before: char,
    /// A character that is fine if the next one is; with the one before it and its offset.
    pending: Option<(char, char, u64)>,
    /// Whether the line has a letter that is written from right to left.
    rtl: bool,
    binary: bool,
    found: Option<(u64, Hidden)>,
}

impl Scanner {
    pub(crate) fn new(reading: Reading) -> Self {
        Self {
            reading,
            offset: 0,
            before: '\n',
            pending: None,
            rtl: false,
            binary: false,
            found: None,
        }
    }

    /// Looks at a piece; gives how many bytes at its end begin a character that the next piece must
    /// begin with again.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> usize {
        if self.binary || (self.found.is_some() && self.reading == Reading::Prose) {
            return 0;
        }
        if self.pending.is_none()
            && plain(bytes)
            && !(self.reading == Reading::Prose && bytes.contains(&b'\r'))
        {
            self.offset += bytes.len() as u64;
            self.before = bytes.last().map_or(self.before, |byte| char::from(*byte));
            self.rtl &= !bytes.contains(&b'\n');
            return 0;
        }
        if self.reading == Reading::Any && bytes.contains(&0) {
            self.binary = true;
            return 0;
        }
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.text(text);
                    return 0;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.text(std::str::from_utf8(good).unwrap_or_default());
                    let Some(length) = error.error_len() else { return bad.len() };
                    self.no_text(length);
                    rest = &bad[length..];
                }
            }
        }
    }

    /// Says that the file ends, `left` bytes after the last piece.
    pub(crate) fn finish(mut self, left: usize) -> Option<(u64, Hidden)> {
        if left > 0 {
            self.no_text(left);
        }
        self.settle(None);
        if self.binary { None } else { self.found }
    }

    fn no_text(&mut self, length: usize) {
        self.settle(None);
        if self.reading == Reading::Prose {
            self.report(self.offset, Hidden::NotText);
        }
        self.before = '\n';
        self.offset += length as u64;
    }

    fn text(&mut self, text: &str) {
        let mut rest = text;
        loop {
            if self.pending.is_none() {
                // Most of any text.
                let prose = self.reading == Reading::Prose;
                let run = rest.bytes().position(|byte| odd(byte) || (prose && byte == b'\r'));
                let run = run.unwrap_or(rest.len());
                let (run, more) = rest.split_at(run);
                self.before = run.bytes().last().map_or(self.before, char::from);
                self.rtl = self.rtl && !run.contains('\n');
                self.offset += run.len() as u64;
                rest = more;
            }
            let mut chars = rest.chars();
            let Some(c) = chars.next() else { return };
            rest = chars.as_str();
            self.settle(Some(c));
            let at = self.offset;
            self.offset += c.len_utf8() as u64;
            match c {
                '\n' => self.rtl = false,
                // By itself it takes a terminal back to the begin of the line, which is then written over.
                '\r' if self.reading == Reading::Prose => self.pending = Some((c, self.before, at)),
                '\t' | '\r' | '\u{c}' | ' '..='~' => {}
                c if c.is_ascii() => {
                    if self.reading == Reading::Prose {
                        self.report(at, Hidden::Character(c));
                    }
                }
                c if is_invisible(c) => self.invisible(c, at),
                c => self.rtl |= is_rtl(c),
            }
            self.before = c;
        }
    }

    fn report(&mut self, at: u64, hidden: Hidden) {
        self.found.get_or_insert((at, hidden));
    }

    fn invisible(&mut self, c: char, at: u64) {
        match judge(c, self.before, at, self.rtl) {
            Verdict::Fine => {}
            Verdict::Hidden => self.report(at, Hidden::Character(c)),
            Verdict::Next => self.pending = Some((c, self.before, at)),
        }
    }

    /// Judges what waited for the character after it.
    fn settle(&mut self, next: Option<char>) {
        if let Some((c, before, at)) = self.pending.take()
            && !fits(c, before, next)
        {
            self.report(at, Hidden::Character(c));
        }
    }
}

enum Verdict {
    Fine,
    Hidden,
    /// It depends on the next character.
    Next,
}

/// A character that does not show, by what stands before it.
fn judge(c: char, base: char, at: u64, rtl: bool) -> Verdict {
    let verdict = |fine: bool| if fine { Verdict::Fine } else { Verdict::Hidden };
    let next = |fine: bool| if fine { Verdict::Next } else { Verdict::Hidden };
    match c {
        '\u{feff}' => verdict(at == 0),
        // The blank of Braille is as wide as its other patterns.
        '\u{2800}' => Verdict::Fine,
        // Emoji or text: after what has both looks; after a digit, in a keycap.
        '\u{fe0e}' | '\u{fe0f}' => match base {
            '0'..='9' | '#' | '*' => next(c == '\u{fe0f}'),
            _ => verdict(!base.is_ascii() && tables().emoji.holds(base)),
        },
        // Which form of a Chinese character.
        '\u{fe00}'..='\u{fe02}' | '\u{e0100}'..='\u{e01ef}' => verdict(tables().han.holds(base)),
        '\u{180b}'..='\u{180d}' | '\u{180f}' => verdict(matches!(base, '\u{1820}'..='\u{18aa}')),
        '\u{200d}' => next(joins_emoji(base) || joins(base)),
        '\u{200c}' => next(joins(base)),
        '\u{200b}' => next(breaks(base)),
        // A mark of direction, where the line has both.
        '\u{200e}' | '\u{200f}' | '\u{61c}' if unseen(base) => Verdict::Hidden,
        '\u{200e}' | '\u{200f}' | '\u{61c}' if rtl => Verdict::Fine,
        '\u{200e}' | '\u{200f}' | '\u{61c}' => Verdict::Next,
        _ => Verdict::Hidden,
    }
}

/// Whether what follows makes it needed. `None` is the end of the text.
fn fits(c: char, base: char, next: Option<char>) -> bool {
    match c {
        '\r' => matches!(next, Some('\n' | '\r')),
        '\u{fe0f}' => next == Some('\u{20e3}'),
        '\u{200d}' if joins_emoji(base) => next.is_some_and(|c| tables().pictures.holds(c)),
        // Within a word, or at its end, where it shapes the last letter.
        '\u{200d}' | '\u{200c}' => {
            next.is_none_or(|c| joins(c) || !(c.is_alphanumeric() || unseen(c)))
        }
        '\u{200b}' => next.is_some_and(breaks),
        _ => next.is_some_and(is_rtl),
    }
}

/// Does not show, and is no white space either.
fn unseen(c: char) -> bool {
    is_invisible(c) && !c.is_ascii_whitespace()
}

/// Emoji that are put together: a picture, its look, its skin.
fn joins_emoji(c: char) -> bool {
    c == '\u{fe0f}' || matches!(c, '\u{1f3fb}'..='\u{1f3ff}') || tables().pictures.holds(c)
}

/// Scripts whose letters take other shapes when they are joined, and say so by joiners: Arabic and
/// its kin, the scripts of India and those that come from them, Mongolian (The Unicode Standard,
/// chapters 9 and 12 to 17).
fn joins(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{77f}' | '\u{7c0}'..='\u{7ff}' | '\u{840}'..='\u{dff}'
        | '\u{f00}'..='\u{109f}' | '\u{1700}'..='\u{18af}' | '\u{1a20}'..='\u{1aaf}'
        | '\u{1b00}'..='\u{1c4f}' | '\u{a800}'..='\u{a9ff}' | '\u{aa00}'..='\u{aadf}'
        | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{10ac0}'..='\u{10aff}'
        | '\u{10d00}'..='\u{10d3f}' | '\u{11000}'..='\u{11fff}')
        && !is_invisible(c)
}

/// Scripts without spaces between words, where a zero-width space says where a line may break:
/// Thai, Lao, Tibetan, Myanmar, Khmer, Tai.
fn breaks(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{1950}'..='\u{19ff}'
        | '\u{1a20}'..='\u{1aaf}' | '\u{aa60}'..='\u{aadf}')
        && !is_invisible(c)
}

/// Hebrew, Arabic and other scripts that are written from right to left.
fn is_rtl(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
        | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1eeff}')
        && c.is_alphabetic()
}

/// Whether every byte is a printing ASCII character, a tab, a form feed or an end of a line.
fn plain(bytes: &[u8]) -> bool {
    // Without an early end within a chunk, so that it is done many bytes at a time.
    bytes.chunks(1024).all(|chunk| !chunk.iter().fold(false, |any, byte| any | odd(*byte)))
}

fn odd(byte: u8) -> bool {
    (byte >= 0x7f) | ((byte < 0x20) & !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c))
}

/// Characters that have a property (Unicode Character Database).
struct Set(ClassUnicode);

impl Set {
    /// The property by its name, from the tables that `regex-syntax` brings.
    fn of(name: &str) -> Self {
        let parsed = regex_syntax::parse(&format!("\\p{{{name}}}")).map(|hir| hir.into_kind());
        match parsed {
            Ok(HirKind::Class(Class::Unicode(class))) => Self(class),
            // A test reads a member of each; without it, nothing is let pass.
            _ => Self(ClassUnicode::empty()),
        }
    }

    fn holds(&self, c: char) -> bool {
        let ranges = self.0.ranges();
        let at = ranges.partition_point(|range| range.end() < c);
        ranges.get(at).is_some_and(|range| range.start() <= c)
    }
}

struct Tables {
    emoji: Set,
    pictures: Set,
    han: Set,
}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| Tables {
        emoji: Set::of("Emoji"),
        pictures: Set::of("Extended_Pictographic"),
        han: Set::of("Han"),
    })
}
