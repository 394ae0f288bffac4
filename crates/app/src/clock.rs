//! Times of the day for people.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use altq_control::schedule::Local;

/// Seconds of a day.
const DAY: u64 = 86_400;

/// A time in seconds since 1970, as `2026-07-01T12:00:00Z` (RFC 3339).
pub fn utc(seconds: u64) -> String {
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days: years begin
    // in March, so that the leap day is the last of its year.
    let days = seconds / DAY + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let second = seconds % DAY;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// A span of time such as `90s`, `10m`, `2h` or `1d`, in seconds; `None` if it is none.
pub fn span(word: &str) -> Option<u64> {
    let (number, unit) = word.split_at_checked(word.find(|c: char| !c.is_ascii_digit())?)?;
    let unit = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => DAY,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Seconds since 1970 began.
pub fn unix() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(since).unwrap_or(i64::MAX)
}

/// How many seconds the clocks of this host's time zone are ahead of UTC now. An error if date(1)
/// does not say it: a time in the wrong zone would be hours away.
pub fn offset() -> Result<i64, String> {
    offset_by("date")
}

fn offset_by(command: &str) -> Result<i64, String> {
    let why = match Command::new(command).arg("+%z").output() {
        Ok(output) => match zone(&output.stdout) {
            Some(offset) => return Ok(offset),
            None => "prints none".to_owned(),
        },
        Err(error) => format!("cannot be run ({error})"),
    };
    Err(format!("the time zone of this host is not known: `{command} +%z` {why}"))
}

/// The time of the week on this host's clock, in its time zone.
pub fn local() -> Result<Local, String> {
    Ok(of_week(unix().saturating_add(offset()?)))
}

/// When a clock that shows `wall` shows this second of the day next. Both count from 1970 in the
/// time zone of the clock.
pub fn next(wall: i64, second: u32) -> i64 {
    let day = DAY as i64;
    wall.saturating_add((i64::from(second) - wall.rem_euclid(day)).rem_euclid(day))
}

/// The time of the week, so many seconds after 1970 began in its time zone.
fn of_week(seconds: i64) -> Local {
    // 1 January 1970 was a Thursday.
    let day = (seconds.div_euclid(DAY as i64) + 3).rem_euclid(7);
    Local { day: day as u32, second: seconds.rem_euclid(DAY as i64) as u32 }
}

/// An offset such as `+0230`, in seconds.
fn zone(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let number: i64 = digits.parse().ok().filter(|_| digits.len() == 4)?;
    Some(sign * (number / 100 * 3600 + number % 100 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `date -u -d @N` says the same.
    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }

    /// `date -u -d @N '+%u %T'` says the same, with Monday as 1.
    #[test]
    fn days_of_the_week_are_those_of_the_calendar() {
        for (seconds, day, second) in
            [(0, 3, 0), (-1, 2, 86_399), (951_782_400, 1, 0), (1_000_000_000, 6, 6400), (4_107_542_400, 0, 0)]
        {
            assert_eq!(of_week(seconds), Local { day, second }, "{seconds}");
        }
    }

    #[test]
    fn offsets_of_time_zones_are_read() {
        assert_eq!([zone(b"+0000\n"), zone(b"+0530\n"), zone(b"-0800\n")], [Some(0), Some(19_800), Some(-28_800)]);
        assert_eq!([zone(b""), zone(b"UTC"), zone(b"+05")], [None; 3]);
    }

    /// A host without date(1) is not taken for one in UTC.
    #[test]
    fn without_a_time_zone_there_is_an_error() {
        for command in ["/nonexistent/date", "true"] {
            assert!(offset_by(command).is_err_and(|why| why.contains("time zone")), "{command}");
        }
    }

    /// `date -u -d '2000-02-29 03:00' +%s` and its neighbours.
    #[test]
    fn the_next_time_of_day_is_today_or_tomorrow() {
        assert_eq!(next(951_782_400, 10_800), 951_793_200);
        assert_eq!(next(951_793_200, 10_800), 951_793_200);
        assert_eq!(next(951_793_201, 10_800), 951_879_600);
        assert_eq!(next(-1, 0), 0);
    }
}
