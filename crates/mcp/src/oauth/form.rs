//! `application/x-www-form-urlencoded`, in memory that is zeroed.

use zeroize::Zeroizing;

/// The content type.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// Room for a form at once, since a buffer that grows leaves copies behind.
const ROOM: usize = 64 * 1024;

/// Pairs as a form. Whatever is not unreserved (RFC 3986) is percent-encoded.
pub(super) struct Form(Zeroizing<String>);

impl Form {
    pub(super) fn new() -> Self {
        Self(Zeroizing::new(String::with_capacity(ROOM)))
    }

    pub(super) fn pair(mut self, name: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        encode(name, &mut self.0);
        self.0.push('=');
        encode(value, &mut self.0);
        self
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn bytes(self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.0.as_bytes().to_vec())
    }
}

/// Percent-encodes into a text.
pub(super) fn encode(value: &str, into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(DIGITS[usize::from(byte >> 4)]));
            into.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

/// Undoes it, a `+` being a space. `None` when it is not text in this encoding.
pub(super) fn decode(value: &str) -> Option<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(value.len()));
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let [high, low, tail @ ..] = rest else { return None };
                let digit = |b: &u8| char::from(*b).to_digit(16);
                bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
                rest = tail;
            }
            byte => bytes.push(*byte),
        }
    }
    std::str::from_utf8(&bytes).ok().map(|text| Zeroizing::new(text.to_owned()))
}
