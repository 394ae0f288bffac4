//! Units of the engine: rates in bit/s, sizes in bytes, times in nanoseconds.

use std::fmt;

/// A point in time or a span of time, in nanoseconds.
///
/// The engine never reads a clock. Its caller chooses the origin; only differences count. 64 bits
/// hold 584 years.
pub type Nanos = u64;

/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// A data rate in bit/s, 0 to 2^64 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// 0 bit/s: guarantees nothing.
    pub const ZERO: Rate = Rate(0);

    /// A rate of `n` bit/s.
    pub const fn bit_s(n: u64) -> Rate {
        Rate(n)
    }

    /// A rate of `n` kbit/s (1 kbit = 1000 bit).
    pub const fn kbit_s(n: u64) -> Rate {
        Rate(n * 1_000)
    }

    /// A rate of `n` Mbit/s.
    pub const fn mbit_s(n: u64) -> Rate {
        Rate(n * 1_000_000)
    }

    /// The rate in bit/s.
    pub const fn as_bit_s(self) -> u64 {
        self.0
    }

    /// True for 0 bit/s.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The time in which `bytes` pass at this rate, rounded up to a whole nanosecond; `Nanos::MAX`
    /// at rate 0.
    ///
    /// ```
    /// # use altq_engine::units::Rate;
    /// assert_eq!(Rate::mbit_s(10).time_for(1500), 1_200_000);
    /// ```
    pub const fn time_for(self, bytes: u64) -> Nanos {
        if self.0 == 0 {
            return Nanos::MAX;
        }
        if bytes <= u64::MAX / (8 * SECOND) {
            return (bytes * (8 * SECOND)).div_ceil(self.0);
        }
        let bits = bytes as u128 * 8 * SECOND as u128;
        let time = bits.div_ceil(self.0 as u128);
        if time > Nanos::MAX as u128 { Nanos::MAX } else { time as Nanos }
    }

    /// The whole bytes that pass in `time` at this rate, rounded down.
    pub const fn bytes_in(self, time: Nanos) -> u64 {
        let bytes = self.0 as u128 * time as u128 / (8 * SECOND as u128);
        if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 }
    }
}

impl fmt::Display for Rate {
    /// Prints the rate with the largest unit in which it is a whole number, in the form that the
    /// native language reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, word) in [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{word}", self.0 / unit);
            }
        }
        write!(f, "{}bit/s", self.0)
    }
}

/// A time with the largest unit in which it is a whole number, in the form that the native language
/// reads.
///
/// ```
/// # use altq_engine::units::time_text;
/// assert_eq!([time_text(5_000_000), time_text(1_500)], ["5ms", "1500ns"]);
/// ```
pub fn time_text(nanos: Nanos) -> String {
    for (unit, word) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanos >= unit && nanos.is_multiple_of(unit) {
            return format!("{}{word}", nanos / unit);
        }
    }
    format!("{nanos}ns")
}
