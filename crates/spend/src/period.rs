//! Days and months, in UTC.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The UTC day of a moment in seconds since 1970, as `2026-11-30`. `None` outside of the years 0 to
/// 9999, where days as texts would no longer be in order.
pub(crate) fn day(seconds: i64) -> Option<String> {
    let date = Timestamp::from_second(seconds).ok()?.to_zoned(TimeZone::UTC).date();
    (0..=9999).contains(&date.year()).then(|| date.to_string())
}

/// The month of a day.
pub(crate) fn month(day: &str) -> &str {
    day.get(..7).unwrap_or(day)
}

/// The day that counts: today, unless the ledger has seen a later one. A clock that goes back opens
/// no new period.
pub(crate) fn counted(today: &str, newest: Option<&str>) -> String {
    newest.map_or(today, |newest| newest.max(today)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_utc_and_never_go_back() {
        assert_eq!(day(0).unwrap(), "1970-01-01");
        assert_eq!(day(86_399).unwrap(), "1970-01-01");
        assert_eq!(day(86_400).unwrap(), "1970-01-02");
        assert_eq!(month("2026-11-30"), "2026-11");
        assert_eq!(day(i64::MAX), None);
        assert_eq!(counted("2026-11-30", None), "2026-11-30");
        assert_eq!(counted("2026-12-01", Some("2026-11-30")), "2026-12-01");
        assert_eq!(counted("2026-11-29", Some("2026-11-30")), "2026-11-30");
    }
}
