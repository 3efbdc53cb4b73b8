//! A run's name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;

/// A run's id: `<utc yyyymmdd>-<hhmmss>-<8 hex>`, so that names sort by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// A new id of this second, with 32 random bits.
    #[must_use]
    pub fn fresh() -> Self {
        let mut random = [0_u8; 4];
        getrandom::fill(&mut random).expect("the kernel gives random bytes once it has booted");
        let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
        Self(format!("{now}-{:08x}", u32::from_le_bytes(random)))
    }

    /// Parses an id. The result is one path component without a dot.
    ///
    /// # Errors
    /// [`Error::NoSuchRun`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let form = |(at, byte): (usize, u8)| match at {
            8 | 15 => byte == b'-',
            16.. => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            _ => byte.is_ascii_digit(),
        };
        if text.len() == 24 && text.bytes().enumerate().all(form) {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
        Err(Error::NoSuchRun(format!(
            "`{shown}` is not a run id; expected one like 20260131-235959-0123abcd"
        )))
    }

    /// As much of the id as tells it from these others, and never less than the day and a digit.
    #[must_use]
    pub fn short_among<'a>(&self, others: impl IntoIterator<Item = &'a Self>) -> &str {
        let same = |other: &Self| {
            self.0.bytes().zip(other.0.bytes()).take_while(|(one, two)| one == two).count()
        };
        let others = others.into_iter().filter(|other| *other != self);
        let most = others.map(same).max().unwrap_or(0).max(9);
        self.0.get(..=most).unwrap_or(&self.0)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RunId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.0
    }
}

#[cfg(test)]
mod tests {
    use super::RunId;

    #[test]
    fn as_much_of_it_as_tells_it_apart() {
        let ids =
            ["20260131-235959-0123abcd", "20260131-235959-01239999", "20260131-225959-0123abcd"];
        let ids = ids.map(|id| RunId::parse(id).unwrap());
        let short: Vec<_> = ids.iter().map(|id| id.short_among(&ids)).collect();
        assert_eq!(short, ["20260131-235959-0123a", "20260131-235959-01239", "20260131-22"]);
        for id in &ids {
            let begun = |other: &&RunId| other.as_str().starts_with(id.short_among(&ids));
            assert_eq!(ids.iter().filter(begun).count(), 1);
        }
        assert_eq!(ids[0].short_among([]), "20260131-2");
    }

    #[test]
    fn a_fresh_id_parses_and_the_rest_does_not() {
        let fresh = RunId::fresh();
        assert_eq!(RunId::parse(fresh.as_str()).unwrap(), fresh);
        assert_ne!(RunId::fresh(), fresh);
        let good = "20260131-235959-0123abcd";
        assert_eq!(RunId::parse(good).unwrap().as_str(), good);
        for at in 0..good.len() {
            for bad in ['/', '.', 'G', 'A', '\0', ' '] {
                let mut text = good.to_owned();
                text.replace_range(at..=at, &bad.to_string());
                assert!(RunId::parse(&text).is_err(), "{text:?}");
            }
        }
        for text in ["", "machine", "20260131-235959-0123abcd0", "20260131-235959-0123abc"] {
            assert!(RunId::parse(text).is_err(), "{text:?}");
        }
    }
}
