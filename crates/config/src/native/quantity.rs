//! Numbers with units. Units are always written, and mean one thing; what could mean two is refused
//! with both spelled out.

use altq_engine::settings::ONE;
use altq_engine::units::{Nanos, Rate};

/// Why a quantity is none, and what could be written.
#[derive(Debug, PartialEq, Eq)]
pub struct Bad {
    pub message: String,
    pub help: Option<String>,
}

fn bad<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Bad> {
    Err(Bad { message: message.into(), help: Some(help.into()) })
}

/// A decimal number: `mantissa / 10^decimals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub mantissa: u128,
    pub decimals: u32,
}

impl Decimal {
    /// The number times `factor`, if it is whole.
    fn times(self, factor: u128) -> Result<u128, bool> {
        let product = self.mantissa.checked_mul(factor).ok_or(false)?;
        let divisor = 10u128.pow(self.decimals);
        if product % divisor == 0 { Ok(product / divisor) } else { Err(true) }
    }

    /// This many per cent of `whole`, rounded down to a whole number.
    pub fn percent_of(self, whole: u64) -> Option<u64> {
        let product = self.mantissa.checked_mul(u128::from(whole))?;
        u64::try_from(product / (100 * 10u128.pow(self.decimals))).ok()
    }
}

/// Splits a word into its number and its unit. `None` if it does not begin with a digit.
fn split(word: &str) -> Option<(Result<Decimal, Bad>, &str)> {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some((decimal(number), unit))
}

fn decimal(number: &str) -> Result<Decimal, Bad> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction_digits = fraction.trim_end_matches('0');
    if fraction.contains('.') || number.ends_with('.') {
        return bad(format!("`{number}` is not a number"), "a number is of digits with at most one point between them");
    }
    // 10^20 is beyond every quantity here; nine decimals take a Gbit/s to one bit/s.
    if whole.trim_start_matches('0').len() > 20 {
        return bad("this number is too large", "numbers here have at most 20 digits");
    }
    if fraction_digits.len() > 9 {
        return bad(
            "this number has too many decimals",
            "at most nine decimals are read; nothing is rounded in silence",
        );
    }
    let digits = format!("{whole}{fraction_digits}");
    match digits.parse() {
        Ok(mantissa) => Ok(Decimal { mantissa, decimals: fraction_digits.len() as u32 }),
        Err(_) => bad("this number is too large", "numbers here have at most 20 digits"),
    }
}

fn unquoted(word: &str) -> String {
    if word.chars().count() > 40 {
        format!("{}…", word.chars().take(40).collect::<String>())
    } else {
        word.to_owned()
    }
}

const RATES: [(&str, u128); 4] = [("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];

/// A rate as `5Mbit/s`, or in cells of ATM: 53 bytes on the wire.
pub fn rate(word: &str) -> Result<Rate, Bad> {
    let Some((number, unit)) = split(word) else {
        return bad(format!("`{}` is not a rate", unquoted(word)), "a rate is a number with its unit, as 5Mbit/s");
    };
    let number = number?;
    let factor = match unit {
        "cells/s" => 53 * 8,
        _ => match RATES.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None => return bad_rate(word, number, unit),
        },
    };
    match number.times(factor) {
        Ok(bits) => u64::try_from(bits).map(Rate::bit_s).or_else(|_| too_large("rate", "18446744073709551615bit/s")),
        Err(true) => bad(format!("`{word}` is not a whole number of bit/s"), "write it in a smaller unit"),
        Err(false) => too_large("rate", "18446744073709551615bit/s"),
    }
}

fn too_large<T>(what: &str, most: &str) -> Result<T, Bad> {
    bad(format!("this {what} is too large"), format!("the largest is {most}"))
}

/// A unit that is none of ours: what it may have meant.
fn bad_rate(word: &str, number: Decimal, unit: &str) -> Result<Rate, Bad> {
    let word = unquoted(word);
    let (prefix, rest) = prefix(unit);
    let write = |bits: u128| number.times(bits).map_or_else(|_| "…".to_owned(), rate_text);
    let Some(factor) = prefix else {
        let help = "units are bit/s, kbit/s, Mbit/s, Gbit/s, and cells/s on an atm link";
        return bad(format!("`{word}` has no unit of a rate"), help);
    };
    let (bits, bytes) = (write(factor), write(factor * 8));
    match rest {
        "" if unit.is_empty() => {
            bad(format!("`{word}` has no unit"), format!("for bits a second write {bits}; for bytes a second {bytes}"))
        }
        "bit/s" | "bits/s" | "bit" | "bits" | "bitps" => {
            bad(format!("`{word}`: the unit is not written so"), format!("write {bits}"))
        }
        "B/s" | "Bps" | "byte/s" | "bytes/s" | "byte" | "bytes" => bad(
            format!("`{word}`: rates are in bits a second"),
            format!("for bytes a second write {bytes}; for bits a second {bits}"),
        ),
        "" | "b" | "B" | "bps" | "b/s" => bad(
            format!("`{word}` can be read in two ways: bits or bytes a second"),
            format!("for bits a second write {bits}; for bytes a second {bytes}"),
        ),
        _ => bad(
            format!("`{word}` has no unit of a rate"),
            "units are bit/s, kbit/s, Mbit/s, Gbit/s, and cells/s on an atm link",
        ),
    }
}

/// The factor of a unit's prefix, whatever its case, and the rest of the unit.
fn prefix(unit: &str) -> (Option<u128>, &str) {
    let lower = unit.to_ascii_lowercase();
    for (letter, decimal, binary) in [
        ('k', 1_000u128, 1u128 << 10),
        ('m', 1_000_000, 1 << 20),
        ('g', 1_000_000_000, 1 << 30),
        ('t', 1_000_000_000_000, 1 << 40),
    ] {
        if lower.starts_with(letter) {
            let rest = &unit[1..];
            return match rest.strip_prefix('i') {
                Some(rest) => (Some(binary), rest),
                None => (Some(decimal), rest),
            };
        }
    }
    (Some(1), unit)
}

fn rate_text(bits: u128) -> String {
    u64::try_from(bits).map_or_else(|_| "…".to_owned(), |bits| Rate::bit_s(bits).to_string())
}

/// A percentage as `5%` or `0.5%`.
pub fn percent(word: &str) -> Option<Result<Decimal, Bad>> {
    split(word.strip_suffix('%')?).filter(|(_, unit)| unit.is_empty()).map(|(number, _)| number)
}

/// A span of time as `50ms`.
pub fn time(word: &str) -> Result<Nanos, Bad> {
    let Some((number, unit)) = split(word) else {
        return bad(format!("`{}` is not a time", unquoted(word)), "a time is a number with its unit, as 50ms");
    };
    let number = number?;
    let factor = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" => return bad(format!("`{word}` has no unit"), format!("write {word}ms, {word}s, {word}us or {word}ns")),
        "sec" | "secs" | "second" | "seconds" => return bad(format!("`{word}`: seconds are written s"), "as 2s"),
        "msec" | "msecs" => return bad(format!("`{word}`: milliseconds are written ms"), "as 50ms"),
        "usec" | "usecs" => return bad(format!("`{word}`: microseconds are written us"), "as 50us"),
        "m" | "min" => {
            return bad(
                format!("`{word}` can be read in two ways: minutes or milliseconds"),
                "write 50ms, or 300s for 5 minutes",
            );
        }
        _ => return bad(format!("`{}` has no unit of time", unquoted(word)), "units are ns, us, ms and s"),
    };
    match number.times(factor) {
        Ok(nanos) => Nanos::try_from(nanos).or_else(|_| too_large("time", "18446744073s")),
        Err(true) => bad(format!("`{word}` is not a whole number of nanoseconds"), "write it in a smaller unit"),
        Err(false) => too_large("time", "18446744073s"),
    }
}

/// A whole number.
pub fn int(word: &str) -> Result<u64, Bad> {
    if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return bad(format!("`{}` is not a whole number", unquoted(word)), "write digits only");
    }
    word.parse().or_else(|_| too_large("number", "18446744073709551615"))
}

/// A part of one, as `0.02`, in billionths.
pub fn fraction(word: &str) -> Result<u32, Bad> {
    let billionths = match split(word) {
        Some((number, "")) => number?.times(u128::from(ONE)).unwrap_or(u128::MAX),
        _ => return bad(format!("`{}` is not a part of one", unquoted(word)), "write a number from 0 to 1, as 0.02"),
    };
    match u32::try_from(billionths) {
        Ok(billionths) if billionths <= ONE => Ok(billionths),
        _ => bad(format!("`{}` is more than 1", unquoted(word)), "write a number from 0 to 1, as 0.02"),
    }
}

/// A percentage, as `30%`, in billionths of one.
pub fn share(word: &str) -> Result<u32, Bad> {
    let Some(number) = percent(word) else {
        return bad(format!("`{}` is not a percentage", unquoted(word)), "write a number from 0% to 100%, as 30%");
    };
    match number?.times(u128::from(ONE) / 100).map(u32::try_from) {
        Ok(Ok(billionths)) if billionths <= ONE => Ok(billionths),
        Err(true) => {
            bad(format!("`{}` has too many decimals", unquoted(word)), "seven decimals of a percentage are read")
        }
        _ => bad(format!("`{}` is more than 100 %", unquoted(word)), "write a number from 0% to 100%, as 30%"),
    }
}

/// A size in bytes: `1500` or `1500bytes`.
pub fn bytes(word: &str) -> Result<u64, Bad> {
    let number = word.strip_suffix("bytes").unwrap_or(word);
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return int(number);
    }
    bad_bytes(word, "bytes")
}

fn bad_bytes<T>(word: &str, example: &str) -> Result<T, Bad> {
    let Some((number, unit)) = split(word) else {
        return bad(
            format!("`{}` is not a size", unquoted(word)),
            format!("write a number of bytes, as 1500{example}"),
        );
    };
    let number = number?;
    let (factor, rest) = prefix(unit);
    let write = |factor: u128| number.times(factor).map_or_else(|_| "…".to_owned(), |n| format!("{n}bytes"));
    match (factor, rest) {
        (Some(1), "byte" | "B" | "b") => {
            bad(format!("`{word}`: bytes are written bytes"), format!("write {}", write(1)))
        }
        (Some(factor), "" | "b" | "B" | "byte" | "bytes") if factor > 1 => {
            let binary = if factor % 1000 == 0 { 1u128 << (10 * factor.ilog10() / 3) } else { factor };
            let decimal = 10u128.pow(3 * binary.ilog2() / 10);
            let message = format!("`{word}` can be read in two ways: thousands or 1024s");
            bad(message, format!("write {} or {}", write(decimal), write(binary)))
        }
        _ => bad(format!("`{}` has no unit of size", unquoted(word)), format!("sizes are in bytes, as 1500{example}")),
    }
}

/// A limit: `50packets` or `64000bytes`.
pub fn limit(word: &str) -> Result<altq_engine::settings::Limit, Bad> {
    use altq_engine::settings::Limit;
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let narrow = |n: u64| u32::try_from(n).or_else(|_| too_large("limit", "4294967295"));
    match unit {
        "packets" if digits > 0 => Ok(Limit::Packets(narrow(int(number)?)?)),
        "bytes" if digits > 0 => Ok(Limit::Bytes(narrow(int(number)?)?)),
        "" if digits > 0 => bad(format!("`{word}` has no unit"), format!("write {word}packets or {word}bytes")),
        "packet" | "pkts" | "pkt" | "p" if digits > 0 => {
            bad(format!("`{word}`: packets are written packets"), format!("write {number}packets"))
        }
        _ => bad_bytes(word, "bytes, or a number of packets, as 50packets"),
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::settings::Limit;

    use super::*;

    #[test]
    fn quantities_are_read_exactly() {
        assert_eq!(rate("5Mbit/s"), Ok(Rate::mbit_s(5)));
        assert_eq!(rate("1.5kbit/s"), Ok(Rate::bit_s(1500)));
        assert_eq!(rate("0bit/s"), Ok(Rate::ZERO));
        assert_eq!(rate("18446744073709551615bit/s"), Ok(Rate::bit_s(u64::MAX)));
        // seeds/002: a PVC of 5139 cells a second; 53 bytes each on the wire.
        assert_eq!(rate("5139cells/s"), Ok(Rate::bit_s(5139 * 424)));
        assert_eq!(time("50ms"), Ok(50_000_000));
        assert_eq!(time("1.5us"), Ok(1_500));
        assert_eq!(limit("50packets"), Ok(Limit::Packets(50)));
        assert_eq!(limit("64000bytes"), Ok(Limit::Bytes(64000)));
        assert_eq!(bytes("1500"), Ok(1500));
        assert_eq!(bytes("12000bytes"), Ok(12000));
        assert_eq!([fraction("0.02"), fraction("1"), fraction("0.000000001")], [Ok(20_000_000), Ok(ONE), Ok(1)]);
        assert_eq!([share("30%"), share("100%"), share("0.0000001%")], [Ok(300_000_000), Ok(ONE), Ok(1)]);
        assert!(["100.1%", "30", "-1%", "0.00000001%", "x%"].iter().all(|word| share(word).is_err()));
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
