//! Reading one JSON text in exactly one way, or not at all.
//!
//! Two readers that disagree about a text are how a gate is passed: the gate judges one reading and
//! the server acts on the other. So whatever two readers are known to disagree about is refused
//! here, and what goes on is the parsed value written anew.

mod numbers;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Bounds on a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the whole text.
    pub bytes: usize,
    /// Arrays and objects inside one another. Never more than 100.
    pub depth: usize,
    /// Characters of one number.
    pub number: usize,
    /// Values in one another and side by side: each takes some 70 bytes of memory, however short.
    pub values: usize,
}

impl Default for Limits {
    /// 4 MiB, 64 levels, 64 characters a number, 100,000 values.
    fn default() -> Self {
        Self { bytes: 4 * 1024 * 1024, depth: 64, number: 64, values: 100_000 }
    }
}

/// Why a text was refused. No variant holds more of the text than a short escaped excerpt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrictError {
    /// Longer than [`Limits::bytes`].
    #[error("the message is larger than {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
    /// Not UTF-8 (RFC 8259, section 8.1).
    #[error("the message is not UTF-8 at byte {at}")]
    NotUtf8 {
        /// First wrong byte, from 0.
        at: usize,
    },
    /// Not JSON, a lone surrogate, or something after the value.
    #[error("the message is not one JSON value: {reason}")]
    Syntax {
        /// The parser's words, with line and column.
        reason: String,
    },
    /// One object has the same key twice (RFC 8259, section 4: readers disagree).
    #[error("the key \"{key}\" stands twice in one object")]
    DuplicateKey {
        /// Escaped, shortened.
        key: String,
    },
    /// Two keys of one object differ only in case, which some readers ignore.
    #[error("the key \"{key}\" differs only in case from another key of its object")]
    CollidingKey {
        /// Escaped, shortened.
        key: String,
    },
    /// Deeper than [`Limits::depth`].
    #[error("the message is nested deeper than {limit} levels")]
    TooDeep {
        /// The bound.
        limit: usize,
    },
    /// More than [`Limits::values`].
    #[error("the message holds more than {limit} values")]
    TooMany {
        /// The bound.
        limit: usize,
    },
    /// Longer than [`Limits::number`], or not the same value once read and written.
    #[error("the number {number} cannot be passed on exactly; send it as a string")]
    Number {
        /// Shortened.
        number: String,
    },
}

/// Reads one JSON value, strictly.
///
/// # Errors
/// [`StrictError`]: too large, not UTF-8, not exactly one JSON value, a key twice (also when the
/// two spellings differ only in case), too deep, too many values, or a number that would not survive.
pub fn parse(bytes: &[u8], limits: Limits) -> Result<Value, StrictError> {
    if bytes.len() > limits.bytes {
        return Err(StrictError::TooLarge { limit: limits.bytes });
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| StrictError::NotUtf8 { at: error.valid_up_to() })?;
    if values(bytes) > limits.values {
        return Err(StrictError::TooMany { limit: limits.values });
    }
    let state = State {
        limits,
        numbers: RefCell::new(numbers::Tokens::new(text)),
        found: RefCell::new(None),
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = Node { state: &state, depth: 0 }.deserialize(&mut deserializer);
    let value = read.and_then(|value| deserializer.end().map(|()| value));
    // What a visitor found is more exact than the words the parser wrapped around it.
    match (state.found.take(), value) {
        (Some(found), _) => Err(found),
        (None, Ok(value)) => Ok(value),
        (None, Err(error)) => Err(StrictError::Syntax { reason: error.to_string() }),
    }
}

/// How many values a JSON text holds at most, found without reading them into memory: one, and one
/// more for each comma and each bracket that opens outside a string.
pub(crate) fn values(text: &[u8]) -> usize {
    let (mut count, mut at) = (1, 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b',' | b'[' | b'{' => count += 1,
            b'"' => {
                while let Some(&byte) = text.get(at) {
                    at += if byte == b'\\' { 2 } else { 1 };
                    if byte == b'"' {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    count
}

struct State<'t> {
    limits: Limits,
    numbers: RefCell<numbers::Tokens<'t>>,
    found: RefCell<Option<StrictError>>,
}

impl State<'_> {
    fn refuse<E: serde::de::Error>(&self, error: StrictError) -> E {
        let words = E::custom(&error);
        self.found.borrow_mut().get_or_insert(error);
        words
    }

    /// The next number of the text, checked.
    fn number<E: serde::de::Error>(&self) -> Result<Value, E> {
        let token = self.numbers.borrow_mut().next().ok_or_else(|| E::custom("no number here"))?;
        numbers::exact(token, self.limits.number)
            .map(Value::Number)
            .ok_or_else(|| self.refuse(StrictError::Number { number: excerpt(token) }))
    }
}

#[derive(Clone, Copy)]
struct Node<'s> {
    state: &'s State<'s>,
    depth: usize,
}

impl Node<'_> {
    fn below<E: serde::de::Error>(self) -> Result<Self, E> {
        let limit = self.state.limits.depth.min(100);
        if self.depth >= limit {
            return Err(self.state.refuse(StrictError::TooDeep { limit }));
        }
        Ok(Self { state: self.state, depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Value, E> {
        self.state.number()
    }
    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Value, E> {
        self.state.number()
    }
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Value, E> {
        self.state.number()
    }
    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let child = self.below()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(child)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let child = self.below()?;
        let mut seen = HashSet::new();
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if !seen.insert(fold(&key)) {
                let short = excerpt(&key);
                return Err(self.state.refuse(if map.contains_key(&key) {
                    StrictError::DuplicateKey { key: short }
                } else {
                    StrictError::CollidingKey { key: short }
                }));
            }
            map.insert(key, access.next_value_seed(child)?);
        }
        Ok(Value::Object(map))
    }
}

/// A key as a reader sees it that ignores case: lower case, upper case and back, so that `ß` and `ẞ`
/// meet `SS`, `ſ` meets `s`, the Kelvin sign meets `k`, and Turkish `İ` and `ı` meet `i`. Wider than
/// Unicode's case folding, never narrower.
#[must_use]
pub fn fold(key: &str) -> String {
    if key.is_ascii() {
        return key.to_ascii_lowercase();
    }
    // The lower case of `İ` is `i` and a dot above, which some readers drop.
    let lower = key.chars().flat_map(char::to_lowercase).filter(|c| *c != '\u{307}');
    lower.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// At most 60 characters, escaped for display.
fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}
