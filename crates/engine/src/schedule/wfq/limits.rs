//! Clocks that say how much of a rate is used: a policer's token bucket and a shaper's. Fractions
//! of a nanosecond are carried, so that no rate drifts.

use crate::units::{Nanos, Rate, SECOND};

/// Fraction bits of a byte's time. At 100 Gbit/s a byte takes 0.08 ns; this states it to 1 in 10^6.
const POINT: u32 = 24;

/// Converts bytes to time at a rate above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    rate: Rate,
    /// Nanoseconds a byte, in 2^-24 ns.
    per_byte: u64,
    /// Fraction of a nanosecond carried, in 2^-24 ns.
    rest: u32,
}

impl Pace {
    fn new(rate: Rate) -> Pace {
        let bits = u128::from(rate.as_bit_s().max(1));
        Pace { rate, per_byte: (((u128::from(8 * SECOND) << POINT) + bits / 2) / bits).max(1) as u64, rest: 0 }
    }

    /// The time of `bytes` in whole nanoseconds, and the fraction to carry.
    fn of(&self, bytes: u32) -> (Nanos, u32) {
        let exact = u128::from(self.per_byte) * u128::from(bytes) + u128::from(self.rest);
        ((exact >> POINT) as u64, exact as u32 & ((1 << POINT) - 1))
    }
}

/// A token bucket that polices. It counts no tokens, but keeps the time `full` at which the bucket
/// would be full if no packet came before.
#[derive(Clone, Copy, Debug)]
pub struct Policer {
    pace: Pace,
    /// Its depth in bytes, and in the time that it takes to fill.
    burst: u64,
    depth: Nanos,
    full: Nanos,
}

impl Policer {
    /// A full bucket of `burst` bytes.
    pub fn new(rate: Rate, burst: u64) -> Policer {
        Policer { pace: Pace::new(rate), burst, depth: rate.time_for(burst), full: 0 }
    }

    /// Its rate and depth.
    pub fn words(&self) -> (Rate, u64) {
        (self.pace.rate, self.burst)
    }

    /// The same bucket with another rate and depth. Its tokens stay, up to the new depth: else a
    /// change that comes often would be a way around the limit.
    pub fn changed(self, now: Nanos, rate: Rate, burst: u64) -> Policer {
        if self.words() == (rate, burst) {
            return self;
        }
        // In bits times a second's nanoseconds.
        let full = |bytes: u64| u128::from(bytes) * 8 * u128::from(SECOND);
        let missing = u128::from(self.full.saturating_sub(now)) * u128::from(self.pace.rate.as_bit_s());
        let tokens = full(self.burst).saturating_sub(missing).min(full(burst));
        let wait = (full(burst) - tokens).div_ceil(u128::from(rate.as_bit_s().max(1)));
        let new = Policer::new(rate, burst);
        Policer { full: now.saturating_add(Nanos::try_from(wait).unwrap_or(Nanos::MAX)), ..new }
    }

    /// Whether a packet conforms: there are tokens for all of it, and they are taken. If not, none
    /// are.
    pub fn take(&mut self, now: Nanos, len: u32) -> bool {
        if self.full < now {
            (self.full, self.pace.rest) = (now, 0);
        }
        let (time, rest) = self.pace.of(len);
        let full = self.full.saturating_add(time);
        // A nanosecond more, so that rounding does not refuse a packet for which there are tokens.
        if full - now > self.depth.saturating_add(1) {
            return false;
        }
        (self.full, self.pace.rest) = (full, rest);
        true
    }
}

/// A shaper: the next packet may go from `due` on.
#[derive(Clone, Copy, Debug)]
pub struct Shaper {
    pace: Pace,
    /// For how much idle time, or lateness, it makes up.
    credit: Nanos,
    /// When its next packet may go.
    pub due: Nanos,
}

impl Shaper {
    /// A shaper that has been idle for long.
    pub fn new(rate: Rate, credit: Nanos) -> Shaper {
        Shaper { pace: Pace::new(rate), credit, due: 0 }
    }

    /// Its rate.
    pub fn rate(&self) -> Rate {
        self.pace.rate
    }

    /// The same shaper at another rate. What its last packet has still to wait for, and what
    /// idleness has earned, are kept in bytes.
    pub fn changed(self, now: Nanos, rate: Rate, credit: Nanos) -> Shaper {
        if self.rate() == rate {
            return self;
        }
        let scaled = |time: Nanos| {
            let bits = u128::from(time) * u128::from(self.pace.rate.as_bit_s());
            Nanos::try_from(bits.div_ceil(u128::from(rate.as_bit_s().max(1)))).unwrap_or(Nanos::MAX)
        };
        let due = match self.due > now {
            true => now.saturating_add(scaled(self.due - now)),
            false => now.saturating_sub(scaled((now - self.due).min(self.credit))),
        };
        Shaper { due, ..Shaper::new(rate, credit) }
    }

    /// A packet went.
    pub fn sent(&mut self, now: Nanos, len: u32) {
        let earliest = now.saturating_sub(self.credit);
        if self.due < earliest {
            (self.due, self.pace.rest) = (earliest, 0);
        }
        let (time, rest) = self.pace.of(len);
        (self.due, self.pace.rest) = (self.due.saturating_add(time), rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_takes_its_burst_and_then_its_rate() {
        // 1 Mbit/s and 25000 bytes, which are 200 ms: packets of 1000 bytes take 8 ms.
        let mut meter = Policer::new(Rate::mbit_s(1), 25_000);
        assert_eq!((0..30).filter(|_| meter.take(0, 1000)).count(), 25);
        assert!(!meter.take(7_999_998, 1000));
        assert!(meter.take(8_000_000, 1000));
        // After idleness the bucket is full and no fuller.
        assert_eq!((0..30).filter(|_| meter.take(10 * SECOND, 1000)).count(), 25);
        // In 10 s of twice the rate, half of it passes: 1250 packets and the burst.
        let mut meter = Policer::new(Rate::mbit_s(1), 25_000);
        assert_eq!((0..2500).filter(|n| meter.take(n * 4_000_000, 1000)).count(), 1250 + 24);
    }

    #[test]
    fn a_shaper_spaces_packets_and_makes_up_for_lateness() {
        let mut shape = Shaper::new(Rate::mbit_s(12), 2_000_000);
        let mut now = SECOND;
        for _ in 0..3 {
            // Two packets of idleness, and the third that takes the clock to the present.
            assert!(shape.due <= now);
            shape.sent(now, 1500);
        }
        assert_eq!(shape.due, SECOND + 1_000_000);
        // 0.5 ms late is made up for.
        now = shape.due + 500_000;
        shape.sent(now, 1500);
        assert_eq!(shape.due, SECOND + 2_000_000);
    }
}
