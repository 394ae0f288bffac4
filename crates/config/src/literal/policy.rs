//! Literals as a policy writes them: each with its unit right behind the number. Only a size may be
//! a bare number of bytes.

use altq_engine::classify::Field;
use altq_engine::settings::{Limit, ONE};
use altq_engine::units::{Nanos, Rate};

use super::number::{Decimal, Decimals, Product, split};
use super::unit::{RATE, TIME, unknown_size};
use super::wrong::{Wrong, too_large, wrong};
use crate::diagnostic::short;
use crate::names;
use crate::suggest::nearest;

/// A rate: `5Mbit/s`, `5139cells/s`.
pub fn rate(word: &str) -> Result<Rate, Wrong> {
    RATE.read(word, Decimals::Nine, false).map(Rate::bit_s)
}

/// A time: `50ms`.
pub fn time(word: &str) -> Result<Nanos, Wrong> {
    TIME.read(word, Decimals::Nine, false)
}

/// The number of a percentage, `5%` or `0.5%`. `None` if the word does not end with `%` or does not
/// begin with a digit.
pub fn percent(word: &str) -> Option<Result<Decimal, Wrong>> {
    split(word.strip_suffix('%')?, Decimals::Nine).filter(|(_, unit)| unit.is_empty()).map(|(number, _)| number)
}

/// A whole number: digits only.
pub fn int(word: &str) -> Result<u64, Wrong> {
    if !is_digits(word) {
        return wrong(format!("`{}` is not a whole number", short(word)), "write digits only");
    }
    word.parse().or_else(|_| too_large("number", "18446744073709551615"))
}

fn is_digits(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// A fraction of one, `0.02`, in billionths: 0 to [`ONE`].
pub fn fraction(word: &str) -> Result<u32, Wrong> {
    let help = "write a number from 0 to 1, as 0.02";
    let billionths = match split(word, Decimals::Nine) {
        Some((number, "")) => number?.times(u128::from(ONE)).unwrap_or(u128::MAX),
        _ => return wrong(format!("`{}` is not a part of one", short(word)), help),
    };
    match u32::try_from(billionths) {
        Ok(billionths) if billionths <= ONE => Ok(billionths),
        _ => wrong(format!("`{}` is more than 1", short(word)), help),
    }
}

/// A percentage, `30%`, in billionths of one: 0 to [`ONE`].
pub fn percentage(word: &str) -> Result<u32, Wrong> {
    let help = "write a number from 0% to 100%, as 30%";
    let Some(number) = percent(word) else {
        return wrong(format!("`{}` is not a percentage", short(word)), help);
    };
    match number?.times(u128::from(ONE) / 100).map(u32::try_from) {
        Ok(Ok(billionths)) if billionths <= ONE => Ok(billionths),
        Err(Product::Fraction) => {
            wrong(format!("`{}` has too many decimals", short(word)), "seven decimals of a percentage are read")
        }
        _ => wrong(format!("`{}` is more than 100 %", short(word)), help),
    }
}

/// A size in bytes: `1500` or `1500bytes`.
pub fn bytes(word: &str) -> Result<u64, Wrong> {
    match word.strip_suffix("bytes").unwrap_or(word) {
        number if is_digits(number) => int(number),
        _ => Err(wrong_size(word, "bytes")),
    }
}

/// The error for a size that cannot be read. `example`: what may stand behind a number.
fn wrong_size(word: &str, example: &str) -> Wrong {
    match split(word, Decimals::Nine) {
        None => Wrong {
            message: format!("`{}` is not a size", short(word)),
            help: Some(format!("write a number of bytes, as 1500{example}")),
        },
        Some((Err(wrong), _)) => wrong,
        Some((Ok(number), unit)) => unknown_size(word, number, unit, &format!("sizes are in bytes, as 1500{example}")),
    }
}

/// A limit: `50packets` or `64000bytes`.
pub fn limit(word: &str) -> Result<Limit, Wrong> {
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let narrow = |n: u64| u32::try_from(n).or_else(|_| too_large("limit", "4294967295"));
    match unit {
        "packets" if digits > 0 => Ok(Limit::Packets(narrow(int(number)?)?)),
        "bytes" if digits > 0 => Ok(Limit::Bytes(narrow(int(number)?)?)),
        "" if digits > 0 => wrong(format!("`{word}` has no unit"), format!("write {word}packets or {word}bytes")),
        "packet" | "pkts" | "pkt" | "p" if digits > 0 => {
            wrong(format!("`{word}`: packets are written packets"), format!("write {number}packets"))
        }
        _ => Err(wrong_size(word, "bytes, or a number of packets, as 50packets")),
    }
}

/// A DSCP: a number from 0 to 63, or one of the names in lower case: `be`, `le`, `ef`, `va`, `af11`
/// to `af43`, `cs0` to `cs7` (RFC 2474 4.2.2, RFC 2597 6, RFC 3246 2.7, RFC 5865 4, RFC 8622 6).
pub fn dscp(word: &str) -> Result<u8, Wrong> {
    let number = word.parse::<u32>().ok().filter(|_| is_digits(word));
    match number.or_else(|| names::value(Field::Dscp, word)) {
        Some(dscp @ 0..=63) => Ok(dscp as u8),
        _ => {
            let near = nearest(word, names::all(Field::Dscp)).filter(|_| number.is_none());
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let help = format!("a DSCP is a number from 0 to 63, or ef, va, be, le, afXY, csX{near}");
            wrong(format!("`{}` is no DSCP", short(word)), help)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_exactly() {
        assert_eq!(rate("5Mbit/s"), Ok(Rate::mbit_s(5)));
        assert_eq!(rate("1.5kbit/s"), Ok(Rate::bit_s(1500)));
        assert_eq!(rate("0bit/s"), Ok(Rate::ZERO));
        assert_eq!(rate("18446744073709551615bit/s"), Ok(Rate::bit_s(u64::MAX)));
        // docs/reference/published-models.md 3: a PVC of 5139 cells a second; 53 bytes each on the
        // wire.
        assert_eq!(rate("5139cells/s"), Ok(Rate::bit_s(5139 * 424)));
        assert_eq!(time("50ms"), Ok(50_000_000));
        assert_eq!(time("1.5us"), Ok(1_500));
        assert_eq!(limit("50packets"), Ok(Limit::Packets(50)));
        assert_eq!(limit("64000bytes"), Ok(Limit::Bytes(64000)));
        assert_eq!(bytes("1500"), Ok(1500));
        assert_eq!(bytes("12000bytes"), Ok(12000));
        assert_eq!([fraction("0.02"), fraction("1"), fraction("0.000000001")], [Ok(20_000_000), Ok(ONE), Ok(1)]);
        assert_eq!(
            [percentage("30%"), percentage("100%"), percentage("0.0000001%")],
            [Ok(300_000_000), Ok(ONE), Ok(1)]
        );
        assert!(["100.1%", "30", "-1%", "0.00000001%", "x%"].iter().all(|word| percentage(word).is_err()));
        assert!(["1.000000001", "2%", "-1", "0.0000000001", "x"].iter().all(|word| fraction(word).is_err()));
    }

    #[test]
    fn percentages_round_down() {
        let of = |text, whole| percent(text).unwrap().unwrap().percent_of(whole);
        assert_eq!(of("5%", 10_000_000), Some(500_000));
        assert_eq!(of("0.5%", 10_000_000), Some(50_000));
        assert_eq!(of("33.3%", 10), Some(3));
        assert_eq!(of("66.7%", 10), Some(6));
        assert_eq!(of("100%", u64::MAX), Some(u64::MAX));
        assert!(percent("5").is_none());
        assert!(percent("x%").is_none());
    }

    #[test]
    fn ambiguous_units_are_refused_with_both_readings() {
        for (word, bits, as_bytes) in [
            ("1mbps", "1Mbit/s", "8Mbit/s"),
            ("10Mb", "10Mbit/s", "80Mbit/s"),
            ("10MB", "10Mbit/s", "80Mbit/s"),
            ("10", "10bit/s", "80bit/s"),
            ("1.5M", "1500kbit/s", "12Mbit/s"),
            ("64kB/s", "64kbit/s", "512kbit/s"),
        ] {
            let help = rate(word).unwrap_err().help.unwrap();
            assert!(help.contains(&format!(" {bits}")) && help.contains(&format!(" {as_bytes}")), "{word}: {help}");
        }
        assert_eq!(rate("10mbit").unwrap_err().help.unwrap(), "write 10Mbit/s");
        assert_eq!(bytes("64KB").unwrap_err().help.unwrap(), "write 64000bytes or 65536bytes");
        assert_eq!(bytes("1MiB").unwrap_err().help.unwrap(), "write 1000000bytes or 1048576bytes");
        assert!(limit("50").unwrap_err().help.unwrap().contains("50packets"));
    }

    #[test]
    fn nothing_is_rounded_in_silence() {
        assert!(rate("1.5bit/s").unwrap_err().message.contains("whole number"));
        assert!(rate("18446744073709551616bit/s").unwrap_err().message.contains("too large"));
        assert!(rate("99999999999999999999Gbit/s").is_err());
        assert!(rate(&format!("{}bit/s", "9".repeat(100_000))).is_err());
        assert!(time("0.5ns").is_err());
        assert!(rate("-5Mbit/s").is_err());
        assert!(rate("5.Mbit/s").is_err());
        assert!(rate("1.2.3Mbit/s").is_err());
    }
}
