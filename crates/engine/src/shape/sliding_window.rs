//! The time sliding window three colour marker (RFC 2859; docs/reference/altq.md 8.2).
//!
//! The rate of the packets is averaged over a window of time. As long as it is within the committed
//! rate all packets are green. Above it, some packets are yellow, at random, so that the green ones
//! keep to the committed rate. Above the peak rate, some packets are red, so that the green and
//! yellow ones keep to the peak rate.
//!
//! As in ALTQ, one random number per packet decides between green, yellow and red, and rates are
//! whole bytes a second.

use super::meter::Colour;
use crate::random::SplitMix64;
use crate::units::{Nanos, Rate, SECOND};

/// The average rate and the random numbers.
#[derive(Clone, Debug)]
pub struct SlidingWindow {
    /// Committed and peak rate, in bytes a second.
    committed: u64,
    peak: u64,
    window: Nanos,
    /// In bytes a second.
    average: u64,
    /// When the last packet came.
    last: Nanos,
    random: SplitMix64,
}

impl SlidingWindow {
    /// A marker that has seen no packets. `window` is at least a nanosecond.
    pub fn new(committed: Rate, peak: Rate, window: Nanos, now: Nanos) -> SlidingWindow {
        let bytes = |rate: Rate| rate.as_bit_s() / 8;
        SlidingWindow {
            committed: bytes(committed),
            peak: bytes(peak),
            window: window.max(1),
            average: 0,
            last: now,
            random: SplitMix64::new(0),
        }
    }

    /// Restarts the random numbers from this seed.
    pub fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    /// The colour of a packet of `len` bytes.
    pub fn colour(&mut self, now: Nanos, len: u64) -> Colour {
        let passed = now.saturating_sub(self.last);
        let bytes = u128::from(self.average) * u128::from(self.window) + u128::from(len) * u128::from(SECOND);
        let time = u128::from(self.window) + u128::from(passed);
        self.average = u64::try_from(bytes / time).unwrap_or(u64::MAX);
        self.last = now;
        if self.average <= self.committed {
            return Colour::Green;
        }
        let drawn = self.random.bits() % self.average;
        if drawn < self.average.saturating_sub(self.peak) {
            Colour::Red
        } else if drawn < self.average - self.committed {
            Colour::Yellow
        } else {
            Colour::Green
        }
    }
}
