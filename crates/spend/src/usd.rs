//! Exact money.

use std::fmt;

/// An amount in units of 1e-8 USD. Never negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(u64);

impl Usd {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// From units of 1e-8 USD.
    #[must_use]
    pub const fn from_units(units: u64) -> Self {
        Self(units)
    }

    /// In units of 1e-8 USD.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08}", self.0 / 100_000_000, self.0 % 100_000_000)
    }
}
