//! The wire: sends one packet at a time at its rate, exact to the fraction of a nanosecond.

use std::collections::VecDeque;

use altq_engine::drive::{Taken, Transmitter};
use altq_engine::link::Overhead;
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Departure, Packet};

/// The end of a transmission does not fit 64 bits of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet needs more than 584 years on a wire of {rate}")]
pub struct BeyondTime {
    /// The rate of the wire that is so slow.
    pub rate: Rate,
}

/// A wire with its driver's ring: it holds up to `slots` packets, the one being sent included, and
/// sends them in order.
///
/// Fractions of a nanosecond are carried from packet to packet: packet k of a busy period ends at
/// the period's start + ceil(sum of bits · 1e9 / rate). Without that, packets of 32 bytes at 10
/// Gbit/s would lose 1.6 % of the link to rounding.
#[derive(Clone, Debug)]
pub struct Wire {
    rate: Rate,
    slots: usize,
    /// How packets are framed on the wire; `None`: as the engine charges them.
    medium: Option<Overhead>,
    /// When the transmissions of the packets held end, in order.
    ends: VecDeque<Nanos>,
    /// The exact end of the last packet, rounded down to a nanosecond.
    floor: Nanos,
    /// The fraction that was rounded off, in units of 1/rate ns.
    fraction: u64,
}

impl Wire {
    /// An idle wire. `slots` of 0 counts as 1.
    pub fn new(rate: Rate, slots: usize) -> Wire {
        let slots = slots.max(1);
        Wire { rate, slots, medium: None, ends: VecDeque::with_capacity(slots.min(4096)), floor: 0, fraction: 0 }
    }

    /// Frames packets as on this medium, whatever the engine charges for them. `None`: as the
    /// engine charges them.
    pub fn with_medium(mut self, medium: Option<Overhead>) -> Wire {
        self.medium = medium;
        self
    }

    /// Bytes that a packet takes on the wire.
    #[inline]
    pub fn bytes(&self, packet: &Packet) -> u32 {
        bytes_on(self.medium, packet)
    }

    /// Bytes that a packet takes on the wire for which the engine charges nothing but its own.
    #[inline]
    pub(crate) fn bytes_of(&self, len: u32, segments: u16) -> u32 {
        self.medium.map_or(len, |medium| medium.charge_segments(len, segments))
    }

    /// True if it can take another packet.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.ends.len() < self.slots
    }

    /// True if it holds nothing.
    pub fn is_idle(&self) -> bool {
        self.ends.is_empty()
    }

    /// When the transmission of the packet on the wire ends.
    #[inline]
    pub fn next_end(&self) -> Option<Nanos> {
        self.ends.front().copied()
    }

    /// Ends the transmission of the packet on the wire.
    #[inline]
    pub fn complete(&mut self) {
        self.ends.pop_front();
    }

    /// Ends the busy period, because no packet follows the last one, and drops its fraction.
    #[inline]
    pub fn rest(&mut self) {
        if self.ends.is_empty() {
            self.floor += u64::from(self.fraction > 0);
            self.fraction = 0;
        }
    }

    /// Takes a packet of `bytes` at `now`. Returns when its last bit will have left.
    ///
    /// # Errors
    /// [`BeyondTime`] if that is more than 584 years from the start of time.
    #[inline]
    pub fn send(&mut self, now: Nanos, bytes: u32) -> Result<Nanos, BeyondTime> {
        // A busy period goes on while packets follow one another without a gap. If the last end was
        // rounded up to `now`, there is no gap.
        if self.floor + u64::from(self.fraction > 0) < now {
            self.begin(now);
        }
        let end = self.pass(bytes)?;
        self.ends.push_back(end);
        Ok(end)
    }

    /// As [`send`](Wire::send), for a caller that keeps the ends of transmissions itself: the wire
    /// does not hold the packet, and the caller says when a busy period [begins](Wire::begin).
    ///
    /// # Errors
    /// [`BeyondTime`] as of [`send`](Wire::send).
    #[inline(always)]
    pub fn pass(&mut self, bytes: u32) -> Result<Nanos, BeyondTime> {
        self.end_of(bytes).ok_or(BeyondTime { rate: self.rate })
    }

    /// Begins a busy period.
    #[inline(always)]
    pub fn begin(&mut self, now: Nanos) {
        (self.floor, self.fraction) = (now, 0);
    }

    /// When a packet of `bytes` will have left, after those that were taken before it in this busy
    /// period.
    #[inline(always)]
    fn end_of(&mut self, bytes: u32) -> Option<Nanos> {
        let rate = self.rate.as_bit_s().max(1);
        let work = u64::from(bytes).checked_mul(8 * SECOND).and_then(|work| work.checked_add(self.fraction));
        // The narrow division is several times faster, and nearly always enough.
        let (whole, fraction) = match work {
            Some(work) => (work / rate, work % rate),
            None => self.wide(bytes, rate)?,
        };
        (self.floor, self.fraction) = (self.floor.checked_add(whole)?, fraction);
        self.floor.checked_add(u64::from(fraction > 0))
    }

    /// The time of a packet of `bytes` and the fraction that is carried, in whole nanoseconds and
    /// the rest.
    #[cold]
    fn wide(&self, bytes: u32, rate: u64) -> Option<(Nanos, u64)> {
        let work = u128::from(bytes) * 8 * u128::from(SECOND) + u128::from(self.fraction);
        Some((u64::try_from(work / u128::from(rate)).ok()?, (work % u128::from(rate)) as u64))
    }

    /// The rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Sets the rate for packets taken from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        // The last end is rounded up, because its fraction is in units of the old rate.
        if self.fraction > 0 {
            (self.floor, self.fraction) = (self.floor + 1, 0);
        }
        self.rate = rate;
    }
}

/// The bytes that a packet takes on a medium; `None`: those that the engine charged for it.
#[inline]
pub(crate) fn bytes_on(medium: Option<Overhead>, packet: &Packet) -> u32 {
    medium.map_or(packet.wire, |medium| medium.charge_segments(packet.len, packet.segments))
}

impl Transmitter for Wire {
    type Error = BeyondTime;

    #[inline]
    fn has_room(&self, _: Nanos) -> bool {
        Wire::has_room(self)
    }

    #[inline]
    fn take(&mut self, now: Nanos, departure: &Departure) -> Result<Taken, BeyondTime> {
        let bytes = self.bytes(&departure.packet);
        Ok(Taken { end: Some(self.send(now, bytes)?), bytes })
    }

    #[inline]
    fn rest(&mut self, _: Nanos) {
        Wire::rest(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_the_fraction() {
        // At 3 bit/s a byte takes 2.666… s. A busy period from 5 on has its ends at 5 + ceil(k ·
        // 8e9 / 3).
        let mut wire = Wire::new(Rate::bit_s(3), 1);
        let mut now = 5;
        for k in 1..=300u64 {
            assert!(wire.has_room());
            let end = wire.send(now, 1).unwrap();
            assert_eq!(end, 5 + (k * 8 * SECOND).div_ceil(3));
            assert_eq!(wire.next_end(), Some(end));
            wire.complete();
            now = end;
        }
        // `rest` begins another busy period even if no time has passed; so does a gap.
        let mut rested = wire.clone();
        rested.rest();
        for k in 1..=3u64 {
            assert_eq!(rested.send(now, 1), Ok(now + (k * 8 * SECOND).div_ceil(3)));
        }
        assert_eq!(wire.send(now + 1, 1), Ok(now + 1 + (8 * SECOND).div_ceil(3)));
    }

    #[test]
    fn a_ring_keeps_the_wire_busy() {
        let mut wire = Wire::new(Rate::mbit_s(8), 3);
        assert_eq!([wire.send(0, 100), wire.send(0, 50), wire.send(10, 1)], [Ok(100_000), Ok(150_000), Ok(151_000)]);
        assert!(!wire.has_room());
        wire.complete();
        assert!(wire.has_room());
        assert_eq!(wire.send(100_000, 9), Ok(160_000));
    }

    #[test]
    fn ten_gigabit_of_small_packets_fill_the_link() {
        // 32 bytes take 25.6 ns, so a million packets take 25.6 ms, to the nanosecond.
        let mut wire = Wire::new(Rate::mbit_s(10_000), 1);
        let mut now = 0;
        for _ in 0..1_000_000 {
            now = wire.send(now, 32).unwrap();
            wire.complete();
        }
        assert_eq!(now, 25_600_000);
    }

    #[test]
    fn beyond_time_is_an_error() {
        let rate = Rate::bit_s(1);
        assert_eq!(Wire::new(rate, 1).send(u64::MAX - 5, 1), Err(BeyondTime { rate }));
    }
}
