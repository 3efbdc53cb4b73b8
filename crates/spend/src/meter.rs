//! What a reply says that it cost.

#[cfg(test)]
mod tests;

use serde_json::{Number, Value};

use crate::Usd;

/// A number that a double holds is taken when it is below this: 2^53, as far as every whole number
/// is held exactly.
const EXACT: u64 = 1 << 53;
/// And when it has at most so many digits: each decimal of 15 digits is another double (IEEE 754).
const DIGITS: usize = 15;
/// The longest path.
const MAX_PARTS: usize = 64;

/// What calls to one server cost: compiled once, for every reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    meters: Vec<Meter>,
    /// What is set aside while a call is in flight; `None` for all that is left.
    pub max_per_call: Option<Usd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Meter {
    /// As it was written.
    path: String,
    parts: Vec<String>,
    per_unit: Usd,
}

/// Why a price cannot be: a manifest that was parsed has none of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    /// Without a meter nothing says what a call cost. Add `[[servers.<name>.pricing.meters]]`.
    #[error("a price without a meter")]
    NoMeter,
    /// The path is not names, or numbers of places in a list, with a point between. Write it as
    /// `result.usage.input_tokens`.
    #[error("`{path}` is not a path such as `result.usage.input_tokens`")]
    Path {
        /// Escaped.
        path: String,
    },
    /// The amount is not a decimal with at most eight places. Write it as `"0.000003"`.
    #[error("`{amount}` is not a decimal with at most 8 places, such as `\"0.05\"`")]
    Amount {
        /// Escaped.
        amount: String,
    },
}

impl Price {
    /// From what the manifest says: pairs of `usage_path` and `usd_per_unit`, and `max_usd_per_call`.
    ///
    /// A path is the names on the way into the JSON-RPC response, with a point between: ASCII letters,
    /// digits, `_` and `-`. In a list a part is the number of a place, from 0. Several meters add up.
    ///
    /// # Errors
    /// [`PriceError`]: no meter, a path or an amount that is none.
    pub fn new<'a>(
        meters: impl IntoIterator<Item = (&'a str, &'a str)>,
        max_per_call: Option<&str>,
    ) -> Result<Self, PriceError> {
        let amount = |text: &str| {
            let amount = text.escape_debug().to_string();
            Usd::parse(text).ok_or(PriceError::Amount { amount })
        };
        let meters = meters
            .into_iter()
            .map(|(path, per_unit)| {
                let parts: Vec<String> = path.split('.').map(str::to_owned).collect();
                if parts.len() > MAX_PARTS || !parts.iter().all(|part| is_part(part)) {
                    return Err(PriceError::Path { path: path.escape_debug().to_string() });
                }
                Ok(Meter { path: path.to_owned(), parts, per_unit: amount(per_unit)? })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if meters.is_empty() {
            return Err(PriceError::NoMeter);
        }
        Ok(Self { meters, max_per_call: max_per_call.map(amount).transpose()? })
    }

    /// What a whole JSON-RPC response says that it cost: the sum of all meters, each rounded up to
    /// the next unit of 1e-8 USD.
    ///
    /// # Errors
    /// In words, which usage is missing, negative, no number, or none that is known exactly: whole
    /// numbers up to 2^64, other decimals of at most 15 digits below 2^53.
    pub fn cost(&self, response: &Value) -> Result<Usd, String> {
        let mut sum = Usd::ZERO;
        for meter in &self.meters {
            let cost =
                meter.cost(response).map_err(|reason| format!("`{}` {reason}", meter.path))?;
            sum = sum.checked_add(cost).ok_or_else(|| format!("`{}` is too much", meter.path))?;
        }
        Ok(sum)
    }
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

impl Meter {
    fn cost(&self, response: &Value) -> Result<Usd, &'static str> {
        let mut at = response;
        for part in &self.parts {
            at = match at {
                Value::Object(map) => map.get(part),
                Value::Array(list) => place(part).and_then(|place| list.get(place)),
                _ => None,
            }
            .ok_or("is missing")?;
        }
        let Value::Number(number) = at else { return Err("is not a number") };
        let (digits, places) = decimal(number)?;
        let exact = u128::from(digits) * u128::from(self.per_unit.units());
        let cost = exact.div_ceil(10_u128.pow(places));
        let cost = u64::try_from(cost).ok().filter(|cost| *cost <= Usd::MAX.units());
        cost.map(Usd::from_units).ok_or("is too much")
    }
}

/// A place in a list, written in the one way that there is.
fn place(part: &str) -> Option<usize> {
    let plain = part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    if plain { part.parse().ok() } else { None }
}

/// A number as digits and how many of them stand after the point, at most 22 of them.
fn decimal(number: &Number) -> Result<(u64, u32), &'static str> {
    if let Some(whole) = number.as_u64() {
        return Ok((whole, 0));
    }
    if number.is_i64() {
        return Err("is negative");
    }
    let double = number.as_f64().ok_or("is not a number that is known exactly")?;
    if double.is_sign_negative() {
        return Err("is negative");
    }
    // Written in the shortest way that is read as the same double, without an exponent.
    let text = format!("{double}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0').len();
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= 22);
    let (Some(places), Ok(value)) = (places, digits.parse::<u64>()) else {
        return Err("is not a number that is known exactly");
    };
    if significant > DIGITS || whole.parse::<u64>().is_ok_and(|whole| whole >= EXACT) {
        return Err("is not a number that is known exactly");
    }
    Ok((value, places))
}
