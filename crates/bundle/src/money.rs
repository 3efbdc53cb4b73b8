//! Exact decimals: money and the bounds of predicates are never floating point.

#[cfg(test)]
mod tests;

/// Digits after the point that money keeps.
const PLACES: usize = 8;

/// Reads a USD amount as 10⁻⁸ USD: plain decimal, at most 12 digits before the point and 8 after
/// it, no sign, no exponent, no leading zero. `None` for anything else.
///
/// ```
/// use ringfence_bundle::parse_usd;
/// assert_eq!(parse_usd("0.50"), Some(50_000_000));
/// assert_eq!(parse_usd("1e3"), None);
/// ```
#[must_use]
pub fn parse_usd(text: &str) -> Option<u128> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    if whole.is_empty() || whole.len() > 12 || (whole.len() > 1 && whole.starts_with('0')) {
        return None;
    }
    let fraction = match fraction {
        Some(digits) if digits.is_empty() || digits.len() > PLACES => return None,
        Some(digits) => digits,
        None => "",
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    format!("{whole}{fraction:0<PLACES$}").parse().ok()
}

/// A decimal of any sign, at most 30 digits on either side of the point.
pub(crate) fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    [whole, fraction]
        .iter()
        .all(|part| (1..=30).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()))
}
