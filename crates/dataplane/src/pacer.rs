//! Limits a loop to the link's rate by the clock.
//!
//! A live device takes frames faster than the link's rate; a virtual one takes them as fast as it
//! is called. If the policy names no regulator, the loop itself keeps the rate, in the way in which
//! `altq replay` does it with its wire: one packet after another, each for as long as its bytes
//! take, with fractions of nanoseconds carried over.

use altq_engine::units::{Nanos, Rate, SECOND};

/// An imaginary wire, and when it becomes free.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: u64,
    free_at: Nanos,
    /// The fraction of a nanosecond beyond `free_at`, in bit-nanoseconds; less than `rate`.
    rest: u64,
    catch_up: Nanos,
    credit: Nanos,
}

impl Pacer {
    /// A wire of this rate. If a busy machine kept the loop from running while packets waited, the
    /// wire makes up for the lost time, for at most `catch_up` of it. For time without packets it
    /// makes up for at most `credit`, because frames are seen a little after they came, when the
    /// wire was free already.
    pub fn new(rate: Rate, catch_up: Nanos, credit: Nanos) -> Pacer {
        Pacer { rate: rate.as_bit_s().max(1), free_at: 0, rest: 0, catch_up, credit }
    }

    /// Whether a packet may begin now.
    pub fn ready(&self, now: Nanos) -> bool {
        self.free_at <= now
    }

    /// When the next packet may begin.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// Begins a packet of `bytes` as soon as the wire is free.
    pub fn sent(&mut self, now: Nanos, bytes: u32) {
        let earliest = now.saturating_sub(self.catch_up);
        if self.free_at < earliest {
            (self.free_at, self.rest) = (earliest, 0);
        }
        // At most 2^32 bytes: 8 · 10^9 · 2^32 + rate needs 66 bits.
        let work = u128::from(bytes) * 8 * u128::from(SECOND) + u128::from(self.rest);
        self.free_at = self.free_at.saturating_add((work / u128::from(self.rate)) as Nanos);
        self.rest = (work % u128::from(self.rate)) as u64;
    }

    /// Sets the rate, for packets that begin from now on. The fraction of a nanosecond left by the
    /// last packet is dropped.
    pub fn set_rate(&mut self, rate: Rate) {
        self.free_at = self.free_at.saturating_add(u64::from(self.rest > 0));
        (self.rate, self.rest) = (rate.as_bit_s().max(1), 0);
    }

    /// Takes note that there was nothing to send until now. That time is lost, except for the
    /// credit.
    pub fn idle(&mut self, now: Nanos) {
        let earliest = now.saturating_sub(self.credit);
        if self.free_at < earliest {
            (self.free_at, self.rest) = (earliest, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rate_to_the_bit() {
        // 3 Mbit/s: 1500 bytes are exactly 4 ms, 100 bytes 266,666 2/3 ns.
        let mut pacer = Pacer::new(Rate::mbit_s(3), 0, 0);
        for bytes in [1500, 100, 100, 100] {
            pacer.sent(pacer.free_at(), bytes);
        }
        assert_eq!(pacer.free_at(), 4_000_000 + 800_000);
    }

    #[test]
    fn another_rate_holds_from_the_next_packet_on() {
        let mut pacer = Pacer::new(Rate::mbit_s(3), 0, 0);
        pacer.sent(0, 100); // 266,666 2/3 ns
        pacer.set_rate(Rate::mbit_s(12));
        pacer.sent(pacer.free_at(), 1500); // 1 ms
        assert_eq!(pacer.free_at(), 266_667 + 1_000_000);
    }

    #[test]
    fn late_service_is_made_good_up_to_its_bound_and_idleness_to_its_own() {
        let mut pacer = Pacer::new(Rate::mbit_s(12), 3_000_000, 2_000_000); // 1500 bytes are 1 ms
        let sent_at = |pacer: &mut Pacer, now| {
            let mut sent = 0;
            while pacer.ready(now) {
                pacer.sent(now, 1500);
                sent += 1;
            }
            sent
        };
        assert_eq!(sent_at(&mut pacer, 0), 1);
        // 2.5 ms late: the packets that would have begun at 1, 2 and 3 ms go; then the wire is free
        // at 4 ms.
        assert_eq!(sent_at(&mut pacer, 3_500_000), 3);
        // 96 ms late: three packets for the 3 ms of catch_up, and the one of this time.
        assert_eq!(sent_at(&mut pacer, 100_000_000), 4);
        // Idle until 500 ms: two packets for the 2 ms of credit, and the one of this time.
        pacer.idle(500_000_000);
        assert_eq!(sent_at(&mut pacer, 500_000_000), 3);
    }
}
