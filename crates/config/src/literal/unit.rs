//! Units, and what an unknown unit may mean.

use altq_engine::units::Rate;

use super::number::{Decimal, Decimals, Product, split};
use super::wrong::{Wrong, too_large, wrong};
use crate::diagnostic::short;

/// A kind of literal (rate, time or size) in one of the two forms.
pub(super) struct Quantity {
    /// Its name: `rate`, `time`, `size`.
    pub what: &'static str,
    /// An example of such a literal.
    pub example: &'static str,
    /// The unit of its value.
    pub base: &'static str,
    /// The largest literal.
    pub largest: &'static str,
    /// Its units, each with its multiple of `base`.
    pub units: &'static [(&'static str, u128)],
    /// The error for a number with another unit.
    pub unknown: fn(&str, Decimal, &str) -> Wrong,
}

/// A rate in a policy. `cells/s` are of ATM: 53 bytes on the wire.
pub(super) const RATE: Quantity = Quantity {
    what: "rate",
    example: "a rate is a number with its unit, as 5Mbit/s",
    base: "bit/s",
    largest: "18446744073709551615bit/s",
    units: &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000), ("cells/s", 53 * 8)],
    unknown: |word, number, unit| {
        unknown_rate(word, number, unit, "units are bit/s, kbit/s, Mbit/s, Gbit/s, and cells/s on an atm link")
    },
};

/// A rate outside of policies.
pub(super) const RATE_OF_ANYTHING: Quantity = Quantity {
    unknown: |word, number, unit| {
        unknown_rate(word, number, unit, "units are bit/s, kbit/s, Mbit/s, Gbit/s and cells/s")
    },
    ..RATE
};

/// A time in a policy.
pub(super) const TIME: Quantity = Quantity {
    what: "time",
    example: "a time is a number with its unit, as 50ms",
    base: "nanoseconds",
    largest: "18446744073s",
    units: &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)],
    unknown: |word, number, unit| unknown_time(word, number, unit, "ns, us, ms and s"),
};

const MINUTE: u128 = 60_000_000_000;

/// A time outside of policies.
pub(super) const TIME_OR_MINUTES: Quantity = Quantity {
    units: &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", MINUTE), ("h", 60 * MINUTE)],
    unknown: |word, number, unit| unknown_time(word, number, unit, "ns, us, ms, s, min and h"),
    ..TIME
};

/// A size outside of policies; in a policy it is a whole number of bytes.
pub(super) const SIZE: Quantity = Quantity {
    what: "size",
    example: "a size is a number with its unit, as 1500bytes",
    base: "bytes",
    largest: "18446744073709551615bytes",
    units: &[("bytes", 1), ("byte", 1), ("kbytes", 1_000), ("Mbytes", 1_000_000)],
    unknown: |word, number, unit| unknown_size(word, number, unit, "units are bytes, kbytes and Mbytes"),
};

impl Quantity {
    /// Reads a number and its unit. `bare`: a whole number may stand without a unit, and white
    /// space may stand between number and unit.
    pub(super) fn read(&self, word: &str, decimals: Decimals, bare: bool) -> Result<u64, Wrong> {
        let Some((number, unit)) = split(word, decimals) else {
            return wrong(format!("`{}` is not a {}", short(word), self.what), self.example);
        };
        let number = number?;
        let unit = if bare { unit.trim_start() } else { unit };
        let factor = match self.units.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if bare && unit.is_empty() && !word.contains('.') => 1,
            None => return Err((self.unknown)(word, number, unit)),
        };
        match number.times(factor).map(u64::try_from) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) | Err(Product::TooLarge) => too_large(self.what, self.largest),
            Err(Product::Fraction) => {
                let message = format!("`{}` is not a whole number of {}", short(word), self.base);
                wrong(message, "write it in a smaller unit")
            }
        }
    }
}

fn unknown_rate(word: &str, number: Decimal, unit: &str, units: &str) -> Wrong {
    let word = short(word);
    let write = |bits: u128| number.times(bits).map_or_else(|_| "…".to_owned(), rate_text);
    let (factor, rest) = prefix(unit);
    let (bits, bytes) = (write(factor), write(factor * 8));
    let (message, help) = match rest {
        "" if unit.is_empty() && number.decimals > 0 => (format!("`{word}` has no unit"), units.to_owned()),
        "" if unit.is_empty() => {
            (format!("`{word}` has no unit"), format!("for bits a second write {bits}; for bytes a second {bytes}"))
        }
        "bit/s" | "bits/s" | "bit" | "bits" | "bitps" => {
            (format!("`{word}`: the unit is not written so"), format!("write {bits}"))
        }
        "B/s" | "Bps" | "byte/s" | "bytes/s" | "byte" | "bytes" => (
            format!("`{word}`: rates are in bits a second"),
            format!("for bytes a second write {bytes}; for bits a second {bits}"),
        ),
        "" | "b" | "B" | "bps" | "b/s" => (
            format!("`{word}` can be read in two ways: bits or bytes a second"),
            format!("for bits a second write {bits}; for bytes a second {bytes}"),
        ),
        _ => (format!("`{word}` has no unit of a rate"), units.to_owned()),
    };
    Wrong { message, help: Some(help) }
}

fn rate_text(bits: u128) -> String {
    u64::try_from(bits).map_or_else(|_| "…".to_owned(), |bits| Rate::bit_s(bits).to_string())
}

fn unknown_time(word: &str, value: Decimal, unit: &str, units: &str) -> Wrong {
    let minutes = match (value.times(60), value.times(60_000)) {
        (Ok(seconds), _) => format!("{seconds}s"),
        (_, Ok(ms)) => format!("{ms}ms"),
        _ => "the seconds".to_owned(),
    };
    let number = short(word.strip_suffix(unit).unwrap_or(word).trim_end());
    let word = short(word);
    let (message, help) = match unit {
        "" => (format!("`{word}` has no unit"), format!("write {word}ms, {word}s, {word}us or {word}ns")),
        "sec" | "secs" | "second" | "seconds" => {
            (format!("`{word}`: seconds are written s"), format!("write {number}s"))
        }
        "msec" | "msecs" => (format!("`{word}`: milliseconds are written ms"), format!("write {number}ms")),
        "usec" | "usecs" => (format!("`{word}`: microseconds are written us"), format!("write {number}us")),
        "m" => (
            format!("`{word}` can be read in two ways: minutes or milliseconds"),
            format!("for milliseconds write {number}ms; for minutes write {minutes}"),
        ),
        "mins" | "minute" | "minutes" if units.contains("min") => {
            (format!("`{word}`: minutes are written min"), format!("write {number}min"))
        }
        "min" | "mins" | "minute" | "minutes" => {
            (format!("`{word}`: this time is written in seconds"), format!("write {minutes}"))
        }
        _ => (format!("`{word}` has no unit of time"), format!("units are {units}")),
    };
    Wrong { message, help: Some(help) }
}

/// The error for a size with a unit that is not known. `units` says which there are.
pub(super) fn unknown_size(word: &str, number: Decimal, unit: &str, units: &str) -> Wrong {
    let word = short(word);
    let write = |factor: u128| number.times(factor).map_or_else(|_| "…".to_owned(), |n| format!("{n}bytes"));
    let (message, help) = match prefix(unit) {
        (1, "byte" | "B" | "b") => (format!("`{word}`: bytes are written bytes"), format!("write {}", write(1))),
        (factor, "" | "b" | "B" | "byte" | "bytes") if factor > 1 => {
            // 1000 and 1024, 1000^2 and 1024^2, …
            let power = if factor % 1000 == 0 { factor.ilog10() / 3 } else { factor.ilog2() / 10 };
            let (decimal, binary) = (1000u128.pow(power), 1024u128.pow(power));
            (
                format!("`{word}` can be read in two ways: thousands or 1024s"),
                format!("write {} or {}", write(decimal), write(binary)),
            )
        }
        _ => (format!("`{word}` has no unit of size"), units.to_owned()),
    };
    Wrong { message, help: Some(help) }
}

/// The factor of a unit's prefix, in upper or lower case, and the rest of the unit.
fn prefix(unit: &str) -> (u128, &str) {
    for (letter, decimal, binary) in [
        ('k', 1_000u128, 1u128 << 10),
        ('m', 1_000_000, 1 << 20),
        ('g', 1_000_000_000, 1 << 30),
        ('t', 1_000_000_000_000, 1 << 40),
    ] {
        if let Some(rest) = unit.strip_prefix([letter, letter.to_ascii_uppercase()]) {
            return match rest.strip_prefix('i') {
                Some(rest) => (binary, rest),
                None => (decimal, rest),
            };
        }
    }
    (1, unit)
}
