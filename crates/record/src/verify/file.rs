//! Reads a file's lines into a check.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};

use super::chain::{Checker, Seen};
use crate::line::MAX_LINE;

/// Feeds at most `length` bytes of a file to a check. Returns how many bytes stand behind the last
/// line end.
pub(super) fn feed(
    file: File,
    length: u64,
    checker: &mut Checker<'_>,
    mut see: impl FnMut(u64, Seen),
) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(64 << 10, file.take(length));
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut reader).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
        if let Some(line) = line.strip_suffix(b"\n") {
            let seen = checker.line(line);
            see(checker.lines(), seen);
        } else if line.len() > MAX_LINE {
            let (length, ended) = skip_line(&mut reader)?;
            if !ended {
                return Ok(line.len() as u64 + length);
            }
            checker.oversized();
        } else {
            return Ok(line.len() as u64);
        }
    }
}

/// Skips to just behind the next line end. How many bytes, and whether there was one.
fn skip_line(reader: &mut impl io::BufRead) -> io::Result<(u64, bool)> {
    let mut skipped = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok((skipped, false));
        }
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let used = end.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        skipped += used as u64;
        if end.is_some() {
            return Ok((skipped, true));
        }
    }
}
