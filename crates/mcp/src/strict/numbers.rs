//! Numbers: which texts survive being read and written.

use serde_json::Number;

/// The numbers of a valid JSON text, in their order. On a text that is not valid JSON it yields
/// something, and the parser refuses the text.
pub(super) struct Tokens<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }
}

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.at += 1;
                    while let Some(&byte) = bytes.get(self.at) {
                        self.at += if byte == b'\\' { 2 } else { 1 };
                        if byte == b'"' {
                            break;
                        }
                    }
                }
                b'-' | b'0'..=b'9' => {
                    let start = self.at;
                    while bytes.get(self.at).is_some_and(|b| {
                        matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                    }) {
                        self.at += 1;
                    }
                    return self.text.get(start..self.at);
                }
                _ => self.at += 1,
            }
        }
        None
    }
}

/// The number, when it has at most `limit` characters and the same value once written again.
pub(super) fn exact(text: &str, limit: usize) -> Option<Number> {
    if text.len() > limit {
        return None;
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(number.into());
    }
    if text != "-0"
        && let Ok(number) = text.parse::<i64>()
    {
        return Some(number.into());
    }
    let number = Number::from_f64(text.parse::<f64>().ok()?)?;
    (decimal(text)? == decimal(&number.to_string())?).then_some(number)
}

/// A decimal as sign, digits without outer zeros, and exponent of the last digit; zero has no digits.
#[derive(PartialEq, Eq, Debug)]
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

fn decimal(text: &str) -> Option<Decimal> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let mut exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    while digits.last() == Some(&b'0') {
        digits.pop();
        exponent = exponent.checked_add(1)?;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    digits.drain(..zeros);
    if digits.is_empty() {
        exponent = 0;
    }
    Some(Decimal { negative, digits, exponent })
}
