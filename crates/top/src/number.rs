//! Numbers as texts of at most five columns.

use altq_engine::units::Nanos;

/// A number with three digits and a letter for its scale: `850`, `9.87k`, `54.0M`, `100M`.
fn scaled(value: u64, base: u64, letters: [&str; 7]) -> String {
    let mut unit = 1u128;
    for letter in letters {
        // If rounding to three digits gives a thousand, the next letter is used.
        let shown = u128::from(value);
        if shown * 2 < unit * 1999 || letter == letters[letters.len() - 1] {
            if unit == 1 {
                return format!("{value}{letter}");
            }
            let hundredths = (shown * 100 + unit / 2) / unit;
            let tenths = (shown * 10 + unit / 2) / unit;
            return match hundredths {
                0..1000 if letter.len() < 2 => format!("{}.{:02}{letter}", hundredths / 100, hundredths % 100),
                _ if tenths < 100 || tenths < 1000 && letter.len() < 2 => {
                    format!("{}.{}{letter}", tenths / 10, tenths % 10)
                }
                _ => format!("{}{letter}", (shown + unit / 2) / unit),
            };
        }
        unit *= u128::from(base);
    }
    String::new()
}

/// A rate in bit/s: `54.0M`.
pub fn rate(bit_s: u64) -> String {
    scaled(bit_s, 1000, ["", "k", "M", "G", "T", "P", "E"])
}

/// A number of things: `13.9k`.
pub fn count(number: u64) -> String {
    rate(number)
}

/// A size in bytes: `99kB`, `1.2MB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes, 1000, ["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// A time: `90us`, `1.5ms`, `22ms`, `12s`.
pub fn time(ns: Nanos) -> String {
    match ns {
        0..999_500_000_000 => {
            scaled(ns.min(999_499_999_999), 1000, ["ns", "us", "ms", "s", "s", "s", "s"]).replacen(".00s", "s", 1)
        }
        _ => format!("{}min", (ns / 60_000_000_000).min(99)),
    }
}

/// How many a second: `0.5`, `12`, `1.20k`.
pub fn per_second(number: u64, time: Nanos) -> String {
    let tenths = (u128::from(number) * 10_000_000_000).checked_div(u128::from(time)).unwrap_or(0);
    match tenths {
        0 if number > 0 => "<0.1".to_owned(),
        1..100 if tenths % 10 > 0 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => count(u64::try_from(tenths / 10).unwrap_or(u64::MAX)),
    }
}

/// A part of a whole: `45%`.
pub fn percent(part: u64, whole: u64) -> String {
    match (u128::from(part) * 100).checked_div(u128::from(whole)) {
        Some(0) if part > 0 => "<1%".to_owned(),
        Some(percent) => format!("{percent}%"),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_hand() {
        let rates = [0, 7, 999, 1000, 9_870, 54_040, 999_499, 999_500, 99_960_000, 100_000_000, 2_500_000_000];
        let shown =
            ["0", "7", "999", "1.00k", "9.87k", "54.0k", "999k", "1.00M", "100M", "100M", "2.50G"].map(str::to_owned);
        assert_eq!(rates.map(rate), shown);
        let sizes = [0, 64, 1500, 31_000, 999_400, 12_500_000].map(bytes);
        assert_eq!(sizes, ["0B", "64B", "1.5kB", "31kB", "999kB", "13MB"].map(str::to_owned));
        let times = [850, 1_500, 90_000, 400_000, 1_540_000, 22_000_000, 12_000_000_000, 3_600_000_000_000].map(time);
        assert_eq!(times, ["850ns", "1.5us", "90us", "400us", "1.5ms", "22ms", "12.0s", "60min"].map(str::to_owned));
        let s = 1_000_000_000;
        let rates = [(0, s), (1, 20 * s), (5, 10 * s), (12, s), (120, 10 * s), (1200, s), (3, 0)];
        let shown = ["0", "<0.1", "0.5", "12", "12", "1.20k", "<0.1"].map(str::to_owned);
        assert_eq!(rates.map(|(number, time)| per_second(number, time)), shown);
        assert_eq!([(45, 100), (1, 1000), (0, 7), (3, 0)].map(|(a, b)| percent(a, b)), ["45%", "<1%", "0%", "-"]);
    }

    #[test]
    fn nothing_is_wider_than_five_columns() {
        let mut value = 1u64;
        while value < u64::MAX / 3 {
            for value in [value - 1, value, value + 1, value * 2 - 1] {
                for text in [rate(value), bytes(value), time(value), per_second(value, 7)] {
                    assert!(text.len() <= 5, "{value}: {text}");
                }
            }
            value = (u128::from(value) * 10 / 7 + 1) as u64;
        }
    }
}
