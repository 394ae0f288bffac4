//! Literals as case files, traffic plans and the command line write them. A space may stand before
//! the unit, and a bare whole number counts bit/s, nanoseconds or bytes. A fraction needs a unit.

use altq_engine::settings::Limit;
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::units::{Nanos, Rate};

use super::number::{Decimals, split};
use super::policy;
use super::unit::{Quantity, RATE_OF_ANYTHING, SIZE, TIME_OR_MINUTES};
use super::wrong::{Wrong, too_large, wrong};
use crate::diagnostic::short;

/// A time: `250us`, `2.84ms`, `10s`, `1min`, or a bare number of nanoseconds.
pub fn time(text: &str) -> Result<Nanos, Wrong> {
    read(text, &TIME_OR_MINUTES)
}

/// A rate: `64kbit/s`, `1.5 Mbit/s`, `5139cells/s`, or a bare number of bit/s.
pub fn rate(text: &str) -> Result<Rate, Wrong> {
    read(text, &RATE_OF_ANYTHING).map(Rate::bit_s)
}

/// A size: `1500bytes`, `64kbytes` (a kbyte is 1000 bytes), or a bare number of bytes.
pub fn size(text: &str) -> Result<u64, Wrong> {
    read(text, &SIZE)
}

fn read(text: &str, quantity: &Quantity) -> Result<u64, Wrong> {
    quantity.read(text.trim(), Decimals::Eighteen, true)
}

/// A limit of a queue: `50packets`, or a size of up to 4294967295 bytes.
pub fn limit(text: &str) -> Result<Limit, Wrong> {
    let narrow = |n: u64| u32::try_from(n).or_else(|_| too_large("limit", "4294967295"));
    let text = text.trim();
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return wrong(format!("`{}` is not a limit", short(text)), "a limit is written as 50packets or 64000bytes");
    }
    match text.strip_suffix("packets") {
        Some(number) => narrow(policy::int(number.trim())?).map(Limit::Packets),
        None => narrow(size(text)?).map(Limit::Bytes),
    }
}

/// A service curve: a rate, or `2Mbit/s for 5ms then 1Mbit/s`.
pub fn curve(text: &str) -> Result<ServiceCurve, Wrong> {
    let Some((first, rest)) = text.split_once(" for ") else { return rate(text).map(ServiceCurve::linear) };
    let Some((until, then)) = rest.split_once(" then ") else {
        return wrong(format!("{text:?} is no curve"), "write \"2Mbit/s for 5ms then 1Mbit/s\"");
    };
    let curve = ServiceCurve { first: rate(first)?, until: time(until)?, then: rate(then)? };
    if curve.until == 0 {
        let message = "the first piece of a curve takes longer than no time".to_owned();
        return Err(Wrong { message, help: None });
    }
    Ok(curve)
}

/// A time that must have a unit: on the command line a bare number would be meant as seconds, but
/// in a file it counts nanoseconds. `0` needs no unit.
pub fn time_with_unit(text: &str) -> Result<Nanos, Wrong> {
    with_unit(text, "s, ms or min", "s").and_then(|()| time(text))
}

/// A rate that must have a unit, except `0`.
pub fn rate_with_unit(text: &str) -> Result<Rate, Wrong> {
    with_unit(text, "kbit/s, Mbit/s or Gbit/s", "Mbit/s").and_then(|()| rate(text))
}

fn with_unit(text: &str, units: &str, likely: &str) -> Result<(), Wrong> {
    let text = text.trim();
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !bare || text == "0" {
        return Ok(());
    }
    let shown: String = text.chars().take(20).collect();
    let message = format!("{shown} of what? write the unit, {units}, such as {shown}{likely}");
    Err(Wrong { message, help: None })
}

/// A DSCP by number or by name, in upper or lower case: see [`policy::dscp`].
pub fn dscp(text: &str) -> Result<u8, Wrong> {
    policy::dscp(&text.trim().to_ascii_lowercase())
}

/// A percentage of a rate, `20%`, rounded down to the bit. `None` if it is not one from 0 % to
/// 100 %.
pub fn part_of(text: &str, rate: Rate) -> Option<Rate> {
    let number = text.trim().strip_suffix('%')?.trim();
    let percent = match split(number, Decimals::Eighteen)? {
        (Ok(percent), "") if !percent.is_over_100() => percent,
        _ => return None,
    };
    percent.percent_of(rate.as_bit_s()).map(Rate::bit_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(time("2.84ms"), Ok(2_840_000));
        assert_eq!(time("10s"), Ok(10_000_000_000));
        assert_eq!(time("17"), Ok(17));
        assert_eq!(time(" 0.00000000005 min "), Ok(3));
        assert_eq!(
            (time_with_unit("17ns"), time_with_unit("0"), rate_with_unit("1kbit/s")),
            (Ok(17), Ok(0), Ok(Rate::kbit_s(1)))
        );
        assert_eq!(
            time_with_unit("17").unwrap_err().to_string(),
            "17 of what? write the unit, s, ms or min, such as 17s"
        );
        assert!(rate_with_unit("1.5").unwrap_err().message.contains("such as 1.5Mbit/s"));
        assert!(time_with_unit("").is_err());
        assert_eq!(rate("1.5Mbit/s"), Ok(Rate::kbit_s(1_500)));
        assert_eq!(rate("5 Gbit/s"), Ok(Rate::mbit_s(5_000)));
        assert_eq!(size("64kbytes"), Ok(64_000));
        assert_eq!((limit("50 packets"), limit("64kbytes")), (Ok(Limit::Packets(50)), Ok(Limit::Bytes(64_000))));
        assert!(limit("5Gbytes").is_err() && limit("-1packets").is_err() && limit("4294967296").is_err());
        let curve = ServiceCurve { first: Rate::mbit_s(2), until: 5_000_000, then: Rate::mbit_s(1) };
        assert_eq!(super::curve("2Mbit/s for 5ms then 1Mbit/s"), Ok(curve));
        assert!(super::curve("2Mbit/s for 0 then 1Mbit/s").is_err() && super::curve("2Mbit/s for 5ms").is_err());
    }

    #[test]
    fn parts_of_a_rate() {
        assert_eq!(part_of(" 33.3333333333 %", Rate::mbit_s(1)), Some(Rate::bit_s(333_333)));
        assert_eq!(part_of("100%", Rate::bit_s(u64::MAX)), Some(Rate::bit_s(u64::MAX)));
        for wrong in ["20", "%", "100.000000000000000001%", "-1%", "1.%", "1e1%"] {
            assert_eq!(part_of(wrong, Rate::mbit_s(1)), None, "{wrong}");
        }
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
            ("1.5", "`1.5` has no unit; write 1.5ms, 1.5s, 1.5us or 1.5ns"),
            ("", "`` is not a time"),
            ("s", "`s` is not a time; a time is a number with its unit, as 50ms"),
            ("1.5.5s", "`1.5.5` is not a number"),
            ("0.3ns", "`0.3ns` is not a whole number of nanoseconds; write it in a smaller unit"),
            ("99999999999999999999s", "this time is too large"),
            ("99999999999s", "this time is too large"),
            ("-1s", "`-1s` is not a time"),
            ("3 parsecs", "`3 parsecs` has no unit of time; units are ns, us, ms, s, min and h"),
            ("5m", "`5m` can be read in two ways: minutes or milliseconds"),
        ] {
            let error = time(text).unwrap_err().to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        assert_eq!(
            rate("10mbps").unwrap_err().to_string(),
            "`10mbps` can be read in two ways: bits or bytes a second; \
             for bits a second write 10Mbit/s; for bytes a second 80Mbit/s"
        );
        assert!(size("64k").unwrap_err().to_string().ends_with("write 64000bytes or 65536bytes"));
    }
}
