//! A file's text, and the place of a byte range in it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::{Diagnostic, Place, Severity, text};

/// Manifest and overlay are at most this long, in bytes.
pub(crate) const MAX_BYTES: usize = 4 * MIB;
/// A lock is at most this long, in bytes: it may hold the tool definitions of many servers.
pub(crate) const MAX_LOCK_BYTES: usize = 16 * MIB;

const MIB: usize = 1024 * 1024;

/// One file that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Source {
    file: PathBuf,
    text: String,
    /// Byte offset of each line.
    lines: Vec<usize>,
}

impl Source {
    pub(crate) fn new(file: &Path, text: &str) -> Self {
        let lines = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1))
            .collect();
        Self { file: file.to_owned(), text: text.to_owned(), lines }
    }

    /// Text from bytes, or what makes them unfit: too long, not UTF-8, a byte order mark, a NUL.
    pub(crate) fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self, Box<Diagnostic>> {
        Self::bounded(file, bytes, MAX_BYTES)
    }

    /// As [`Source::from_bytes`], for a lock.
    pub(crate) fn of_lock(file: &Path, bytes: &[u8]) -> Result<Self, Box<Diagnostic>> {
        Self::bounded(file, bytes, MAX_LOCK_BYTES)
    }

    fn bounded(file: &Path, bytes: &[u8], most: usize) -> Result<Self, Box<Diagnostic>> {
        let fault = |rule, message: &str, at: usize| {
            let upto = &bytes[..at.min(bytes.len())];
            let line = upto.iter().filter(|b| **b == b'\n').count() + 1;
            let begin = upto.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
            let rest = &bytes[begin..bytes.len().min(begin + 400)];
            let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            Box::new(Diagnostic {
                severity: Severity::Error,
                rule,
                message: message.to_owned(),
                at: Some(Place {
                    file: file.to_owned(),
                    line,
                    column: String::from_utf8_lossy(&upto[begin..]).chars().count() + 1,
                    text: text::display_line(&String::from_utf8_lossy(&rest[..end])),
                    width: 1,
                }),
                help: Some(format!(
                    "the file must be plain UTF-8 text of at most {} MiB",
                    most / MIB
                )),
                next: Some("ringfence validate".to_owned()),
            })
        };
        if bytes.len() > most {
            let message = format!("the file is larger than {} MiB", most / MIB);
            return Err(fault("too-large", &message, 0));
        }
        if bytes.starts_with(b"\xef\xbb\xbf") {
            return Err(fault("byte-order-mark", "the file begins with a byte order mark", 0));
        }
        if let Some(at) = bytes.iter().position(|b| *b == 0) {
            return Err(fault("nul-byte", "the file holds a NUL byte: it is not text", at));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(file, text)),
            Err(error) => Err(fault("not-utf8", "the file is not UTF-8 text", error.valid_up_to())),
        }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The line (from 1) of a byte offset.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|start| *start <= at).max(1)
    }

    /// The place of a byte range; a range that runs over several lines is cut at the first.
    pub(crate) fn place(&self, range: Range<usize>) -> Place {
        let start = self.boundary(range.start);
        let line = self.line(start);
        let begin = self.lines[line - 1];
        let full = self.text[begin..].lines().next().unwrap_or_default();
        let end = self.boundary(range.end).clamp(start, start.max(begin + full.len()));
        Place {
            file: self.file.clone(),
            line,
            column: self.text[begin..start].chars().count() + 1,
            text: text::display_line(full),
            width: self.text[start..end].chars().count().max(1),
        }
    }

    /// The nearest character boundary at or before an offset.
    fn boundary(&self, at: usize) -> usize {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}
