//! Rates, times and sizes as they are written in cases and on the command line: a number and its
//! unit.
//!
//! A bare whole number is in the unit of altq's files: nanoseconds, bit/s, bytes. A fraction needs
//! a unit, and must come out as a whole number of those: nothing is rounded.

use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::units::{Nanos, Rate};

const TIMES: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];
/// A cell of ATM is 53 bytes.
const RATES: [(&str, u64); 5] =
    [("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000), ("cells/s", 53 * 8)];
const SIZES: [(&str, u64); 4] = [("bytes", 1), ("byte", 1), ("kbytes", 1_000), ("Mbytes", 1_000_000)];

/// A span of time: `250us`, `2.84ms`, `10s`, `1min`.
pub fn time(text: &str) -> Result<Nanos, String> {
    number(text, "time", "ns", &TIMES)
}

/// A rate: `64kbit/s`, `1.5Mbit/s`, `10Gbit/s`, `5139cells/s` (of 53 bytes).
pub fn rate(text: &str) -> Result<Rate, String> {
    number(text, "rate", "bit/s", &RATES).map(Rate::bit_s)
}

/// A service curve: a rate, or `2Mbit/s for 5ms then 1Mbit/s`.
pub fn curve(text: &str) -> Result<ServiceCurve, String> {
    let Some((first, rest)) = text.split_once(" for ") else { return rate(text.trim()).map(ServiceCurve::linear) };
    let Some((until, then)) = rest.split_once(" then ") else {
        return Err(format!("{text:?} is no curve; write \"2Mbit/s for 5ms then 1Mbit/s\""));
    };
    let curve = ServiceCurve { first: rate(first.trim())?, until: time(until.trim())?, then: rate(then.trim())? };
    if curve.until == 0 { Err("the first piece of a curve takes longer than no time".to_owned()) } else { Ok(curve) }
}

/// A span of time whose unit is written, as who types one means seconds, and a file nanoseconds;
/// `0` is none in any unit.
pub fn time_with_unit(text: &str) -> Result<Nanos, String> {
    with_unit(text, "s, ms or min", "s").and_then(|()| time(text))
}

/// A rate whose unit is written.
pub fn rate_with_unit(text: &str) -> Result<Rate, String> {
    with_unit(text, "kbit/s, Mbit/s or Gbit/s", "Mbit/s").and_then(|()| rate(text))
}

fn with_unit(text: &str, units: &str, likely: &str) -> Result<(), String> {
    let bare = !text.trim().is_empty() && text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if bare && text.trim() != "0" {
        let shown: String = text.trim().chars().take(20).collect();
        return Err(format!("{shown} of what? write the unit, {units}, such as {shown}{likely}"));
    }
    Ok(())
}

/// A size: `1500bytes`, `64kbytes` (1 kbyte = 1000 bytes).
pub fn size(text: &str) -> Result<u64, String> {
    number(text, "size", "bytes", &SIZES)
}

/// A DSCP by number or by name: RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va), 8622 (le).
pub fn dscp(text: &str) -> Result<u8, String> {
    let word = text.trim().to_ascii_lowercase();
    let digit = |at: usize, of: std::ops::RangeInclusive<u8>| {
        word.as_bytes().get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| of.contains(digit))
    };
    let value = match word.as_str() {
        "ef" => Some(46),
        "va" => Some(44),
        "be" => Some(0),
        "le" => Some(1),
        _ if word.starts_with("cs") && word.len() == 3 => digit(2, 0..=7).map(|class| class * 8),
        _ if word.starts_with("af") && word.len() == 4 => {
            digit(2, 1..=4).zip(digit(3, 1..=3)).map(|(class, drop)| class * 8 + drop * 2)
        }
        _ if word.bytes().all(|byte| byte.is_ascii_digit()) => word.parse().ok().filter(|value| *value < 64),
        _ => None,
    };
    let shown: String = text.chars().take(40).collect();
    value.ok_or_else(|| format!("{shown:?} is no DSCP; one is a number from 0 to 63, or ef, va, be, le, afXY, csX"))
}

/// A percentage of a rate, as `rate 20%` would give it: to the bit, rounded down. `None` if it is
/// no number from 0 to 100.
pub fn share_of(percent: &str, rate: Rate) -> Option<Rate> {
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
    let digits = |text: &str| !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let tens = 10u128.pow(fraction.len() as u32);
    let percent = whole.parse::<u128>().ok()?.checked_mul(tens)?.checked_add(fraction.parse().ok()?)?;
    if percent > 100 * tens {
        return None;
    }
    u64::try_from(u128::from(rate.as_bit_s()).checked_mul(percent)? / (100 * tens)).ok().map(Rate::bit_s)
}

fn number(text: &str, what: &str, bare: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let fail = |why: String| {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        let shown: String = text.chars().take(40).collect();
        Err(format!("{shown:?} is no {what}: {why}; write a number and one of {}", names.join(", ")))
    };
    let scale = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, scale)) => *scale,
        None if unit.is_empty() && !digits.contains('.') => 1,
        None if unit.is_empty() => return fail(format!("a fraction of {bare}")),
        None => return fail(format!("there is no unit {:?}", unit.chars().take(20).collect::<String>())),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') || fraction.len() > 18 {
        return fail("that is no number".into());
    }
    let (Ok(whole), Ok(part)) = (whole.parse::<u64>(), fraction.parse::<u64>()) else {
        return fail("that is no number, or too large".into());
    };
    let part = u128::from(part) * u128::from(scale);
    let tens = 10u128.pow(fraction.len() as u32);
    if part % tens != 0 {
        return fail(format!("it is not a whole number of {bare}"));
    }
    match u64::try_from(u128::from(whole) * u128::from(scale) + part / tens) {
        Ok(value) => Ok(value),
        Err(_) => fail("it is too large".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(time("2.84ms"), Ok(2_840_000));
        assert_eq!(time("10s"), Ok(10_000_000_000));
        assert_eq!(time("17"), Ok(17));
        assert_eq!(
            (time_with_unit("17ns"), time_with_unit("0"), rate_with_unit("1kbit/s")),
            (Ok(17), Ok(0), Ok(Rate::kbit_s(1)))
        );
        assert_eq!(time_with_unit("17").unwrap_err(), "17 of what? write the unit, s, ms or min, such as 17s");
        assert!(rate_with_unit("1.5").unwrap_err().contains("such as 1.5Mbit/s") && time_with_unit("").is_err());
        assert_eq!(rate("1.5Mbit/s"), Ok(Rate::kbit_s(1_500)));
        assert_eq!(rate("5 Gbit/s"), Ok(Rate::mbit_s(5_000)));
        assert_eq!(size("64kbytes"), Ok(64_000));
    }

    #[test]
    fn dscps() {
        for (text, value) in [
            ("ef", 46),
            ("EF", 46),
            ("af41", 34),
            ("af13", 14),
            ("cs1", 8),
            ("cs7", 56),
            ("be", 0),
            ("le", 1),
            ("63", 63),
        ] {
            assert_eq!(dscp(text), Ok(value), "{text}");
        }
        for wrong in ["64", "", "af44", "af01", "cs8", "cs", "af4", "-1", "csé"] {
            assert!(dscp(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_say_why() {
        for (text, why) in [
            ("1.5", "a fraction of ns"),
            ("", "no number"),
            ("s", "no number"),
            ("1.5.5s", "no number"),
            ("0.3ns", "not a whole number of ns"),
            ("99999999999999999999s", "too large"),
            ("99999999999s", "too large"),
            ("-1s", "there is no unit"),
            ("3 parsecs", "there is no unit"),
        ] {
            let error = time(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(rate("10mbps").unwrap_err().contains("Mbit/s"));
    }
}
