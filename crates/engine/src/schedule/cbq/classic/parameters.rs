//! From bit/s, packet sizes and bursts to the numbers that the estimator works with
//! (docs/reference/altq.md 2.2).
//!
//! Two steps, as in ALTQ: the configuration tool computes in floating point and hands over
//! rate-free integers, the kernel scales them back with 32-bit integers. Both truncate, and both
//! truncations are part of the published behaviour. Where the original would divide by zero or
//! overflow there is an error instead.

use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::Rate;

/// The weight of history in the estimator: g = 1 - 1/32.
const G: f64 = 31.0 / 32.0;
/// log2 of the estimator's scale: idle times are kept times 32.
pub(super) const FILTER_GAIN: u32 = 5;
/// The share that stands in for a class of rate 0.
const NO_SHARE: f64 = 0.0001;
/// The size of a cluster of BSD's network buffers. Of a larger MTU this bit is cleared for the
/// default packet size.
const MCLBYTES: u32 = 2048;
const INT_MAX: f64 = i32::MAX as f64;

/// A class's words, as far as its numbers follow from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Words {
    pub rate: Rate,
    pub packetsize: Option<u32>,
    pub maxpacketsize: Option<u32>,
    pub maxburst: Option<u32>,
    pub minburst: Option<u32>,
}

impl Words {
    /// The root's words: the link's rate, and defaults.
    pub fn root(rate: Rate) -> Words {
        Words { rate, packetsize: None, maxpacketsize: None, maxburst: None, minburst: None }
    }

    pub fn of(settings: &Settings) -> Words {
        let narrow = |n: Option<u64>| n.map(|n| n.min(u64::from(u32::MAX)) as u32);
        Words {
            rate: settings.rate("rate").unwrap_or_default(),
            packetsize: narrow(settings.bytes("packetsize")),
            maxpacketsize: narrow(settings.bytes("maxpacketsize")),
            maxburst: narrow(settings.int("maxburst")),
            minburst: narrow(settings.int("minburst")),
        }
    }
}

/// The kernel's numbers of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Nanoseconds that a byte is worth at the class's rate.
    pub ns_per_byte: i64,
    /// Bytes a second, from `ns_per_byte`: the weight in the round robin.
    pub allotment: i64,
    /// The most that idleness earns, microseconds times 32.
    pub maxidle: i64,
    /// Deepest debt, microseconds times 32; 0 or less.
    pub minidle: i64,
    /// Pause of a class that is over its limit, microseconds.
    pub offtime: i64,
}

/// What the numbers and the queue's limit are worked out from.
struct Scale {
    /// Nanoseconds of an average packet at the link's rate.
    p: f64,
    /// Nanoseconds by which a class must stretch each packet to keep to its share.
    c: f64,
    /// The class's share.
    f: f64,
    /// Nanoseconds a byte at the class's rate.
    nsc: f64,
    /// Average packet, bytes.
    s: f64,
    /// Largest packet, bytes.
    largest: f64,
}

fn scale(link: Rate, mtu: u32, words: &Words) -> Scale {
    let usual = if mtu > MCLBYTES { mtu & !MCLBYTES } else { mtu };
    let s = f64::from(words.packetsize.unwrap_or(usual).min(mtu).max(1));
    let largest = f64::from(words.maxpacketsize.unwrap_or(mtu).min(mtu).max(1));
    let nsif = 8e9 / link.as_bit_s() as f64;
    let f = if words.rate.is_zero() { NO_SHARE } else { words.rate.as_bit_s() as f64 / link.as_bit_s() as f64 };
    let mut nsc = nsif / f;
    if nsc * largest > INT_MAX {
        // The class is too slow: it gets what 32 bits can hold, about 6 kbit/s for 1500 bytes.
        nsc = (INT_MAX / largest).floor();
    }
    let p = s * nsif;
    Scale { p, c: p * (1.0 - f) / f, f, nsc, s, largest }
}

/// g^n by multiplication: the same on every machine, which a library's `pow` is not.
fn g_to(n: u32) -> f64 {
    let mut power = 1.0;
    for _ in 0..n {
        power *= G;
        if power == 0.0 {
            break;
        }
    }
    power
}

/// The numbers of a class on a link of rate `link`.
pub(super) fn numbers(link: Rate, mtu: u32, words: &Words) -> Result<Numbers, SpecError> {
    let Scale { p, c, f, nsc, largest, .. } = scale(link, mtu, words);
    if nsc < 1.0 {
        let help = "use estimator exact, or keep link and classes at 8Gbit/s or less";
        let message = format!(
            "{} is too fast for the classic estimator, which counts whole nanoseconds a byte: at most 8 Gbit/s",
            words.rate
        );
        return Err(SpecError::word("rate", message).help(help));
    }
    let maxburst = words.maxburst.unwrap_or(if c > 10e6 { 4 } else { 16 });
    let minburst = words.minburst.unwrap_or(2).min(maxburst);

    // The configuration tool, in nanoseconds.
    let g_max = g_to(maxburst);
    let maxidle = p * ((1.0 / f - 1.0) * (1.0 - g_max) / g_max).max(1.0 - G);
    let g_min = g_to(minburst.saturating_sub(1));
    let offtime = c * (1.0 + (1.0 - g_min) / g_min / (1.0 - G));
    let minidle = -largest * nsc;
    // Rate-free, times 32, in microseconds.
    let k = 8.0 / nsc * 32.0 / 1000.0;

    // The kernel, in 32-bit integers.
    let ns_per_byte = nsc.trunc() as i64;
    let scaled = |word, written: bool, value: f64| {
        let passed = (value * k).abs().trunc();
        let wide = passed * ns_per_byte as f64;
        if wide <= f64::from(u32::MAX) {
            return Ok(passed as i64 * ns_per_byte / 8);
        }
        if words.rate.is_zero() && passed <= f64::from(u32::MAX) {
            // Only the rate that stands in for rate 0 is so slow, on links of some 14 Mbit/s and
            // less. Classes of rate 0 are common in old policies. They get what is left after
            // ALTQ's 32 bits have overflowed.
            return Ok(i64::from((passed as u32).wrapping_mul(ns_per_byte as u32) / 8));
        }
        let word = if written { word } else { "rate" };
        let message =
            format!("{} is too slow for the classic estimator, whose 32 bits of microseconds overflow", words.rate);
        Err(SpecError::word(word, message).help("a higher rate, smaller bursts, or estimator exact"))
    };
    Ok(Numbers {
        ns_per_byte,
        allotment: 1_000_000_000 / ns_per_byte,
        maxidle: scaled("maxburst", words.maxburst.is_some(), maxidle)?.max(1),
        minidle: ((minidle * k).trunc() as i64 * ns_per_byte / 8).min(0),
        offtime: (scaled("minburst", words.minburst.is_some(), offtime)? >> FILTER_GAIN).max(1),
    })
}

/// ALTQ's limit of a class's queue, in packets (docs/reference/altq.md 2.2): what passes in
/// `maxdelay` at the class's rate, at least 4; without that word `default`; 0, so that everything
/// is dropped, for a class that has no rate and does not borrow.
///
/// `link` is the rate by which shares are measured, `mtu` the link's, in bytes.
pub fn queue_limit(link: Rate, mtu: u32, class: &Settings, default: u32) -> u32 {
    let words = Words::of(class);
    if words.rate.is_zero() && !class.flag("borrow") {
        return 0;
    }
    let Some(maxdelay) = class.time("maxdelay") else { return default };
    let Scale { nsc, s, .. } = scale(link, mtu, &words);
    // A float as large as any u32 saturates in the cast.
    ((maxdelay as f64 / (nsc * s)) as u32).max(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Value;

    fn of(rate: u64, link: u64) -> Numbers {
        numbers(Rate::bit_s(link), 1500, &Words::root(Rate::bit_s(rate))).unwrap()
    }

    #[test]
    fn worked_example() {
        // docs/reference/altq.md 2.2: 10 of 100 Mbit/s.
        let n = of(10_000_000, 100_000_000);
        assert_eq!((n.ns_per_byte, n.maxidle, n.minidle, n.offtime), (800, 22800, -38400, 2193));
        assert_eq!(n.allotment, 1_250_000);
    }

    #[test]
    fn root() {
        // f = 1: maxidle = p/32 = 3750 ns, times 32; offtime 0 becomes 1.
        let n = of(100_000_000, 100_000_000);
        assert_eq!((n.ns_per_byte, n.maxidle, n.offtime), (80, 120, 1));
    }

    #[test]
    fn what_the_original_cannot_do_is_an_error() {
        for (rate, link) in [(8_000_000_001, 10_000_000_000), (9_000_000_000, 9_000_000_000)] {
            let words = Words::root(Rate::bit_s(rate));
            let error = numbers(Rate::bit_s(link), 1500, &words).unwrap_err();
            assert_eq!(error.word, Some("rate"));
        }
        assert_eq!(of(8_000_000_000, 8_000_000_000).ns_per_byte, 1);
        let words = Words { maxburst: Some(65535), ..Words::root(Rate::mbit_s(1)) };
        assert_eq!(numbers(Rate::mbit_s(100), 1500, &words).unwrap_err().word, Some("maxburst"));
        let words = Words { maxburst: Some(600), minburst: Some(600), ..Words::root(Rate::mbit_s(99)) };
        assert!(numbers(Rate::mbit_s(100), 1500, &words).is_err());
    }

    #[test]
    fn too_slow_is_what_32_bits_hold() {
        // 3 kbit/s: 2.67e6 ns a byte, times 1500 bytes is over 2^31: (2^31 - 1) / 1500 instead.
        assert_eq!(of(3_000, 10_000_000).ns_per_byte, 1_431_655);
        // Rate 0 stands for a ten-thousandth of the link.
        assert_eq!(of(0, 100_000_000).ns_per_byte, 800_000);
        // 100 bit/s: the pause of 4 minutes does not fit.
        let words = Words::root(Rate::bit_s(100));
        assert_eq!(numbers(Rate::mbit_s(10), 1500, &words).unwrap_err().word, Some("rate"));
        // Rate 0 on 10 Mbit/s: c = 1.2 ms * 9999 = 11.9988 s, offtime 24.3856 s, k =
        // 8/1431655*32/1000: 4360 passed, and 4360 * 1431655 mod 2^32 = 1947048504, / 8 / 32.
        assert_eq!(of(0, 10_000_000).offtime, 7_605_658);
    }

    #[test]
    fn large_mtu_loses_a_bit_as_packet_size() {
        // 3000 & ~2048 = 952.
        let plain = numbers(Rate::mbit_s(100), 3000, &Words::root(Rate::mbit_s(10))).unwrap();
        let written = Words { packetsize: Some(952), ..Words::root(Rate::mbit_s(10)) };
        assert_eq!(plain, numbers(Rate::mbit_s(100), 3000, &written).unwrap());
    }

    #[test]
    fn limits_of_queues() {
        let class = |ms: u64| {
            Settings::new().with("rate", Value::Rate(Rate::mbit_s(10))).with("maxdelay", Value::Time(ms * 1_000_000))
        };
        let limit = |s: &Settings| queue_limit(Rate::mbit_s(100), 1500, s, 30);
        // 1500 bytes take 1.2 ms at 10 Mbit/s.
        assert_eq!(limit(&class(60)), 50);
        assert_eq!(limit(&class(1)), 4);
        assert_eq!(limit(&Settings::new().with("rate", Value::Rate(Rate::mbit_s(10)))), 30);
        assert_eq!(limit(&Settings::new()), 0);
        assert_eq!(limit(&Settings::new().with("borrow", Value::Flag)), 30);
    }
}
