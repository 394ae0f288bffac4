//! The wire: one packet at a time at its rate, exact to the fraction of a nanosecond.

use std::collections::VecDeque;

use altq_engine::units::{Nanos, Rate, SECOND};

/// A transmitter with its ring: it holds up to `slots` packets, the one on the wire included, and
/// sends them in order.
///
/// The fraction of a nanosecond is carried: packet k of a busy period ends at the period's start +
/// ceil(sum of bits · 1e9 / rate). Without the carry, 32-byte packets at 10 Gbit/s would lose 1.6 %
/// of the link to rounding.
#[derive(Clone, Debug)]
pub struct Wire {
    rate: Rate,
    slots: usize,
    /// Ends of the packets held, in order.
    ends: VecDeque<Nanos>,
    /// The exact end of the last packet is `end` minus what `fraction`/rate leaves of its last
    /// nanosecond: floor(exact end) and the rest in units of 1/rate ns.
    floor: Nanos,
    fraction: u64,
}

impl Wire {
    /// An idle wire. `slots` of 0 counts as 1.
    pub fn new(rate: Rate, slots: usize) -> Wire {
        let slots = slots.max(1);
        Wire { rate, slots, ends: VecDeque::with_capacity(slots.min(4096)), floor: 0, fraction: 0 }
    }

    /// True if it takes another packet.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.ends.len() < self.slots
    }

    /// True if it holds nothing.
    pub fn is_idle(&self) -> bool {
        self.ends.is_empty()
    }

    /// When the packet on the wire ends.
    #[inline]
    pub fn next_end(&self) -> Option<Nanos> {
        self.ends.front().copied()
    }

    /// The packet on the wire has ended.
    #[inline]
    pub fn complete(&mut self) {
        self.ends.pop_front();
    }

    /// Nothing was there to follow the last packet: the busy period is over, its fraction
    /// forgotten.
    #[inline]
    pub fn rest(&mut self) {
        if self.ends.is_empty() {
            self.floor += u64::from(self.fraction > 0);
            self.fraction = 0;
        }
    }

    /// Takes a packet of `bytes` at `now`, and says when its last bit will have left; `None` if
    /// that is beyond what 64 bits of nanoseconds hold (584 years).
    #[inline]
    pub fn take(&mut self, now: Nanos, bytes: u32) -> Option<Nanos> {
        // A busy period goes on as long as packets follow one another without a gap: an end that
        // was rounded up to `now` is none.
        if self.floor + u64::from(self.fraction > 0) < now {
            (self.floor, self.fraction) = (now, 0);
        }
        let rate = self.rate.as_bit_s().max(1);
        let work = u128::from(bytes) * 8 * u128::from(SECOND) + u128::from(self.fraction);
        // The narrow division is several times faster, and nearly always enough.
        let (whole, fraction) = match u64::try_from(work) {
            Ok(work) => (work / rate, work % rate),
            Err(_) => (u64::try_from(work / u128::from(rate)).ok()?, (work % u128::from(rate)) as u64),
        };
        (self.floor, self.fraction) = (self.floor.checked_add(whole)?, fraction);
        let end = self.floor.checked_add(u64::from(fraction > 0))?;
        self.ends.push_back(end);
        Some(end)
    }

    /// The rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Another rate, for packets taken from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        // What is left of the last nanosecond is given away; it cannot be carried to another
        // denominator.
        if self.fraction > 0 {
            (self.floor, self.fraction) = (self.floor + 1, 0);
        }
        self.rate = rate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_the_fraction() {
        // 3 bit/s: a byte takes 2.666… s. Ends of a busy period from 5: 5 + ceil(k · 8e9 / 3).
        let mut wire = Wire::new(Rate::bit_s(3), 1);
        let mut now = 5;
        for k in 1..=300u64 {
            assert!(wire.has_room());
            let end = wire.take(now, 1).unwrap();
            assert_eq!(end, 5 + (k * 8 * SECOND).div_ceil(3));
            assert_eq!(wire.next_end(), Some(end));
            wire.complete();
            now = end;
        }
        // A pause, even of no length, starts another period; so does a gap.
        let mut rested = wire.clone();
        rested.rest();
        for k in 1..=3u64 {
            assert_eq!(rested.take(now, 1), Some(now + (k * 8 * SECOND).div_ceil(3)));
        }
        assert_eq!(wire.take(now + 1, 1), Some(now + 1 + (8 * SECOND).div_ceil(3)));
    }

    #[test]
    fn a_ring_keeps_the_wire_busy() {
        let mut wire = Wire::new(Rate::mbit_s(8), 3);
        assert_eq!(
            [wire.take(0, 100), wire.take(0, 50), wire.take(10, 1)],
            [Some(100_000), Some(150_000), Some(151_000)]
        );
        assert!(!wire.has_room());
        wire.complete();
        assert!(wire.has_room());
        assert_eq!(wire.take(100_000, 9), Some(160_000));
    }

    #[test]
    fn ten_gigabit_of_small_packets_fill_the_link() {
        // 32 bytes take 25.6 ns: a million of them 25.6 ms, to the nanosecond.
        let mut wire = Wire::new(Rate::mbit_s(10_000), 1);
        let mut now = 0;
        for _ in 0..1_000_000 {
            now = wire.take(now, 32).unwrap();
            wire.complete();
        }
        assert_eq!(now, 25_600_000);
    }

    #[test]
    fn beyond_time_is_none() {
        let mut wire = Wire::new(Rate::bit_s(1), 1);
        assert_eq!(wire.take(u64::MAX - 5, 1), None);
    }
}
