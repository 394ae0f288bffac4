//! A rate measured by decaying sums, as in ALTQ's FAIRQ (docs/reference/altq.md 5).

use crate::units::{Nanos, Rate, SECOND};

/// The bytes of the packets that were sent, and the time that they took. Both sums lose an eighth
/// with every packet, so they are about those of the last eight packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decay {
    time: Nanos,
    bytes: u64,
    last: Nanos,
}

/// A longer pause counts as this long.
const PAUSE: Nanos = 8 * SECOND;

impl Decay {
    /// Before the first packet.
    pub const NEW: Decay = Decay { time: 0, bytes: 0, last: 0 };

    /// Counts a packet of so many bytes.
    #[inline]
    pub fn add(&mut self, now: Nanos, bytes: u32) {
        self.time += now.saturating_sub(self.last).min(PAUSE);
        self.bytes += u64::from(bytes);
        self.time -= self.time / 8;
        self.bytes -= self.bytes / 8;
        self.last = now;
    }

    /// False before its first packet.
    #[inline]
    pub fn measured(&self) -> bool {
        self.bytes > 0
    }

    /// True if the measured rate was below `rate` when the last packet was sent.
    #[inline]
    pub fn below(&self, rate: Rate) -> bool {
        !rate.is_zero() && rate.time_for(self.bytes) < self.time
    }

    /// Whether the measured rate is at most `rate` at `now`, with a packet of `bytes` counted as
    /// sent. The same as `at_most_from(rate, bytes) <= now`, without a division, as this is asked
    /// for every packet.
    #[inline]
    pub fn at_most(&self, now: Nanos, rate: Rate, bytes: u32) -> bool {
        if rate.is_zero() || !self.measured() {
            return !rate.is_zero();
        }
        let Some(since) = now.checked_sub(self.last) else { return false };
        let due = u128::from(self.bytes + u64::from(bytes)) * u128::from(8 * SECOND);
        due <= u128::from(self.time.saturating_add(since)) * u128::from(rate.as_bit_s())
    }

    /// The first time at which the measured rate is at most `rate`, with a packet of `bytes`
    /// counted as sent; `None`: never. A class that sends each packet at this time sends at `rate`.
    #[inline]
    pub fn at_most_from(&self, rate: Rate, bytes: u32) -> Option<Nanos> {
        if rate.is_zero() {
            return None;
        }
        if !self.measured() {
            return Some(0);
        }
        let due = rate.time_for(self.bytes + u64::from(bytes));
        Some(self.last.saturating_add(due.saturating_sub(self.time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_measured_exactly() {
        // 1000 bytes each ms: 8 Mbit/s. Both sums decay alike, so their ratio is right from the
        // start, but for the first pause.
        let mut decay = Decay { last: 1_000_000_000, ..Decay::default() };
        for n in 1..=50 {
            decay.add(1_000_000_000 + n * 1_000_000, 1000);
        }
        assert!(decay.below(Rate::kbit_s(8_010)) && !decay.below(Rate::kbit_s(7_990)));
        // The sums are 7 packets and 7 ms; with the next packet 8, which take 8 ms at the same rate
        // and 16 at half of it.
        let from = |rate| decay.at_most_from(rate, 1000).unwrap() - 1_050_000_000;
        assert!(
            from(Rate::mbit_s(8)).abs_diff(1_000_000) < 20_000 && from(Rate::mbit_s(4)).abs_diff(9_000_000) < 20_000
        );
        assert_eq!(decay.at_most_from(Rate::bit_s(0), 1000), None);
    }

    #[test]
    fn at_most_is_true_from_at_most_from_on() {
        let mut decay = Decay::NEW;
        assert!(decay.at_most(0, Rate::bit_s(1), 1000) && !decay.at_most(0, Rate::bit_s(0), 1000));
        for n in 1..=40 {
            decay.add(n * 777_777, 40 + 37 * n as u32);
            for rate in [1, 999_983, 8_000_000, 100_000_007, 1 << 40].map(Rate::bit_s) {
                let from = decay.at_most_from(rate, 1500).unwrap();
                // Where `from` is the time of the last packet, `at_most` is false before it.
                assert!(decay.at_most(from, rate, 1500) && !decay.at_most(from - 1, rate, 1500), "{n} {rate}");
            }
        }
    }
}
