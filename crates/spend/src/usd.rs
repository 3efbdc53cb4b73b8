//! Exact money.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Serialize, Serializer};

/// Units of one USD.
const UNIT: u64 = 100_000_000;
/// Digits after the point.
const PLACES: usize = 8;

/// An amount in units of 1e-8 USD. Never negative, at most [`Usd::MAX`], never floating point.
///
/// ```
/// use ringfence_spend::Usd;
/// let fee = Usd::parse("0.05").unwrap();
/// assert_eq!(fee.checked_add(fee).unwrap().to_string(), "0.10");
/// assert_eq!(Usd::parse("0.000000001"), None); // nine places
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(u64);

impl Usd {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The most that a ledger holds, about 92 billion USD.
    pub const MAX: Self = Self(i64::MAX.unsigned_abs());

    /// From units of 1e-8 USD; more than [`Usd::MAX`] becomes that.
    #[must_use]
    pub const fn from_units(units: u64) -> Self {
        if units > Self::MAX.0 { Self::MAX } else { Self(units) }
    }

    /// In units of 1e-8 USD.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Reads a plain decimal: digits, at most eight of them after a point; no sign, exponent, white
    /// space or superfluous zero in front. `None` for anything else, and above [`Usd::MAX`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        };
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty()
            || (whole.len() > 1 && whole.starts_with('0'))
            || fraction.len() > PLACES
            || !digits(whole)
            || !digits(fraction)
        {
            return None;
        }
        let units: u64 = format!("{whole}{fraction:0<PLACES$}").parse().ok()?;
        (units <= Self::MAX.0).then_some(Self(units))
    }

    /// The sum, `None` above [`Usd::MAX`].
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).filter(|sum| *sum <= Self::MAX.0).map(Self)
    }

    /// The sum, at most [`Usd::MAX`].
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self::from_units(self.0.saturating_add(other.0))
    }

    /// What is left of it, nothing when the other is more.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Whether it is at least so many percent of `cap`.
    #[must_use]
    pub fn reaches(self, percent: u8, cap: Self) -> bool {
        u128::from(self.0) * 100 >= u128::from(cap.0) * u128::from(percent)
    }

    /// As a column of the ledger holds it.
    pub(crate) fn column(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

/// At least two places, at most eight: `0.05`, `1.00`, `0.000003`.
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:08}", self.0 % UNIT);
        let kept = fraction.trim_end_matches('0').len().max(2);
        f.pad(&format!("{}.{}", self.0 / UNIT, fraction.get(..kept).unwrap_or(&fraction)))
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
