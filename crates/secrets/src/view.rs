//! A text with its escapes undone, which still knows where each byte came from.

use std::ops::Range;

use zeroize::Zeroizing;

/// Bytes and, for each of them and for the end, where it begins in the original.
pub(crate) struct View {
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    from: Vec<usize>,
}

/// What one step of decoding takes and gives.
struct Unit {
    taken: usize,
    bytes: [u8; 4],
    given: usize,
}

impl View {
    /// The text itself.
    pub(crate) fn new(text: &[u8]) -> Self {
        Self { bytes: Zeroizing::new(text.to_vec()), from: (0..=text.len()).collect() }
    }

    /// Undoes percent encoding (RFC 3986, section 2.1). `None` when there is none.
    pub(crate) fn unpercent(&self) -> Option<Self> {
        self.decode(b'%', |rest| {
            let byte = hex(rest.get(1..3)?)?;
            Some(Unit { taken: 3, bytes: [u8::try_from(byte).ok()?, 0, 0, 0], given: 1 })
        })
    }

    /// Undoes JSON's escapes (RFC 8259, section 7). `None` when there are none.
    pub(crate) fn unescape(&self) -> Option<Self> {
        self.decode(b'\\', |rest| {
            let single = |byte| Some(Unit { taken: 2, bytes: [byte, 0, 0, 0], given: 1 });
            match rest.get(1)? {
                byte @ (b'"' | b'\\' | b'/') => single(*byte),
                b'b' => single(8),
                b'f' => single(12),
                b'n' => single(b'\n'),
                b'r' => single(b'\r'),
                b't' => single(b'\t'),
                b'u' => unicode(rest),
                _ => None,
            }
        })
    }

    /// Joins lines, as a text in base64 or hexadecimal is that was broken into lines (RFC 2045,
    /// section 6.8; RFC 7468). `None` when there is one line.
    pub(crate) fn unwrap_lines(&self) -> Option<Self> {
        let without = |view: &Self, mark| {
            view.decode(mark, |rest| {
                let indent = rest[1..].iter().take(16).take_while(|b| b" \t".contains(b)).count();
                Some(Unit { taken: 1 + indent, bytes: [0; 4], given: 0 })
            })
        };
        match without(self, b'\r') {
            Some(view) => without(&view, b'\n').or(Some(view)),
            None => without(self, b'\n'),
        }
    }

    /// Where a range of this view stands in the original.
    pub(crate) fn original(&self, range: Range<usize>) -> Range<usize> {
        let start = self.from[range.start];
        let last = self.from[range.end - 1];
        start..self.from[range.end].max(last + 1)
    }

    fn decode(&self, mark: u8, unit: impl Fn(&[u8]) -> Option<Unit>) -> Option<Self> {
        let first = memchr::memchr(mark, &self.bytes)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.bytes.len()));
        let mut from = Vec::with_capacity(self.from.len());
        bytes.extend_from_slice(&self.bytes[..first]);
        from.extend_from_slice(&self.from[..first]);
        let mut at = first;
        let mut any = false;
        while at < self.bytes.len() {
            let here = self.from[at];
            match (self.bytes[at] == mark).then(|| unit(&self.bytes[at..])).flatten() {
                Some(unit) => {
                    bytes.extend_from_slice(&unit.bytes[..unit.given]);
                    from.extend(std::iter::repeat_n(here, unit.given));
                    at += unit.taken;
                    any = true;
                }
                None => {
                    bytes.push(self.bytes[at]);
                    from.push(here);
                    at += 1;
                }
            }
        }
        from.push(*self.from.last()?);
        any.then_some(Self { bytes, from })
    }
}

/// `\uXXXX`, or two of them that make one character.
fn unicode(rest: &[u8]) -> Option<Unit> {
    let high = hex(rest.get(2..6)?)?;
    let (code, taken) = if (0xd800..0xdc00).contains(&high) && rest.get(6..8) == Some(b"\\u") {
        let low = hex(rest.get(8..12)?)?;
        let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        (0x10000 + ((high - 0xd800) << 10) + low, 12)
    } else {
        (high, 6)
    };
    let mut bytes = [0; 4];
    let given = char::from_u32(code)?.encode_utf8(&mut bytes).len();
    Some(Unit { taken, bytes, given })
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
}
