//! Taking exact secret values out of what comes back from outside.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::Secret;
use crate::needles::{Bytes, spellings};
use crate::view::View;

/// Values shorter than this are not searched for: they would be found everywhere.
pub const MIN_BYTES: usize = 8;

/// How often a text within a text is unescaped.
const DEPTH: usize = 3;

/// Replaces every occurrence of given values by `[redacted:NAME]`: the value as it is, in base64
/// (both alphabets, alone or within a longer text) and in hexadecimal, also broken into lines,
/// percent-encoded, and behind JSON escapes.
///
/// Costs about one step a byte when nothing is found. Values are held zeroed on drop.
pub struct Scrubber {
    /// By their first eight bytes, and among those with the same ones the longest first, so that the
    /// first that fits is the longest.
    needles: Vec<(Bytes, usize)>,
    names: Vec<String>,
    too_short: Vec<String>,
    /// Which 16-bit hashes of a needle's first eight bytes occur: a bit each.
    gate: Zeroizing<Vec<u64>>,
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrubber").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Scrubber {
    /// A scrubber for these names and their values.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Self {
        let mut scrubber = Self {
            needles: Vec::new(),
            names: Vec::new(),
            too_short: Vec::new(),
            gate: Zeroizing::new(vec![0; 1 << 10]),
        };
        for (name, secret) in secrets {
            if secret.expose().len() < MIN_BYTES {
                scrubber.too_short.push(name.to_owned());
                continue;
            }
            let number = scrubber.names.len();
            scrubber.names.push(name.to_owned());
            for needle in spellings(secret.expose()) {
                let (word, bit) = slot(&needle);
                scrubber.gate[word] |= bit;
                scrubber.needles.push((needle, number));
            }
        }
        scrubber.needles.sort_by(|(a, _), (b, _)| {
            a[..MIN_BYTES].cmp(&b[..MIN_BYTES]).then(b.len().cmp(&a.len()))
        });
        scrubber
    }

    /// Names whose values are shorter than [`MIN_BYTES`] and are therefore not searched for.
    #[must_use]
    pub fn too_short(&self) -> &[String] {
        &self.too_short
    }

    /// The longest text that is searched for as it stands, in bytes. Whoever scrubs a stream in
    /// pieces holds back that much less one (three or six times as much where it may be
    /// percent-encoded or escaped, and the line ends where it may be broken into lines).
    #[must_use]
    pub fn longest(&self) -> usize {
        self.needles.iter().map(|(needle, _)| needle.len()).max().unwrap_or(0)
    }

    /// Scrubs bytes; borrowed when nothing was found. For JSON use [`Scrubber::value`], which keeps
    /// it JSON.
    #[must_use]
    pub fn bytes<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let found = self.find(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut clean = Vec::with_capacity(text.len());
        let mut at = 0;
        for (range, name) in found {
            clean.extend_from_slice(&text[at..range.start]);
            clean.extend_from_slice(self.mark(name).as_bytes());
            at = range.end;
        }
        clean.extend_from_slice(&text[at..]);
        Cow::Owned(clean)
    }

    /// Scrubs text; borrowed when nothing was found.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(clean) => Cow::Owned(
                String::from_utf8(clean)
                    .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()),
            ),
        }
    }

    /// Scrubs a JSON value in place, strings, keys and numbers, however deep, and says whether it
    /// found any. A number that spells a value becomes a string.
    pub fn value(&self, value: &mut Value) -> bool {
        if self.needles.is_empty() {
            return false;
        }
        match value {
            Value::Null | Value::Bool(_) => false,
            Value::Number(number) => {
                let clean = match self.text(&number.to_string()) {
                    Cow::Borrowed(_) => return false,
                    Cow::Owned(clean) => clean,
                };
                *value = Value::String(clean);
                true
            }
            Value::String(text) => {
                let clean = match self.text(text) {
                    Cow::Borrowed(_) => return false,
                    Cow::Owned(clean) => clean,
                };
                *text = clean;
                true
            }
            Value::Array(items) => self.each(items),
            Value::Object(map) => self.object(map),
        }
    }

    /// Scrubs all of them; does not stop at the first find.
    fn each<'v>(&self, items: impl IntoIterator<Item = &'v mut Value>) -> bool {
        let mut found = false;
        for item in items {
            found |= self.value(item);
        }
        found
    }

    fn object(&self, map: &mut Map<String, Value>) -> bool {
        let mut found = self.each(map.values_mut());
        if map.keys().any(|key| matches!(self.text(key), Cow::Owned(_))) {
            found = true;
            let mut clean = Map::with_capacity(map.len());
            for (key, item) in std::mem::take(map) {
                let base = self.text(&key).into_owned();
                // Two keys that differed in what was taken out stay two.
                let mut key = base.clone();
                let mut copies = 1;
                while clean.contains_key(&key) {
                    copies += 1;
                    key = format!("{base}#{copies}");
                }
                clean.insert(key, item);
            }
            *map = clean;
        }
        found
    }

    fn mark(&self, name: usize) -> String {
        format!("[redacted:{}]", self.names[name])
    }

    /// Every occurrence, in order, without overlaps.
    fn find(&self, text: &[u8]) -> Vec<(Range<usize>, usize)> {
        let mut found = self.scan(text);
        let escaped = memchr::memchr2(b'%', b'\\', text).is_some();
        let broken = memchr::memchr2(b'\n', b'\r', text).is_some();
        if (escaped || broken) && !self.needles.is_empty() {
            let mut view = View::new(text);
            for _ in 0..=DEPTH {
                let (plain, joined) = (view.unpercent(), view.unwrap_lines());
                for view in [Some(&view), plain.as_ref(), joined.as_ref()].into_iter().flatten() {
                    found.extend(
                        self.scan(&view.bytes)
                            .into_iter()
                            .map(|(range, name)| (view.original(range), name)),
                    );
                }
                match view.unescape() {
                    Some(next) => view = next,
                    None => break,
                }
            }
        }
        found.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let mut merged: Vec<(Range<usize>, usize)> = Vec::with_capacity(found.len());
        for (range, name) in found {
            match merged.last_mut() {
                Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push((range, name)),
            }
        }
        merged
    }

    /// Occurrences of needles as they stand: at each place the longest.
    fn scan(&self, text: &[u8]) -> Vec<(Range<usize>, usize)> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(window) = text.get(at..at + MIN_BYTES) {
            let (word, bit) = slot(window);
            if self.gate[word] & bit != 0 {
                let rest = &text[at..];
                let from = self.needles.partition_point(|(it, _)| it[..MIN_BYTES] < *window);
                let alike = self.needles[from..].iter();
                let mut alike = alike.take_while(|(it, _)| it[..MIN_BYTES] == *window);
                let hit = alike.find(|(needle, _)| rest.starts_with(needle));
                if let Some((needle, name)) = hit {
                    found.push((at..at + needle.len(), *name));
                }
            }
            // One byte on even after a hit: another value may begin within this one.
            at += 1;
        }
        found
    }
}

/// Where a text's first eight bytes are marked.
fn slot(text: &[u8]) -> (usize, u64) {
    let mut first = [0; MIN_BYTES];
    first.copy_from_slice(&text[..MIN_BYTES]);
    let hash = u64::from_le_bytes(first).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    (usize::try_from(hash >> 6).unwrap_or(0), 1 << (hash & 63))
}

#[cfg(test)]
mod tests;
