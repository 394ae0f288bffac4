//! A wire of the link's rate, kept by the clock.
//!
//! A live device takes frames faster than the link's rate: a virtual one as fast as it is called.
//! Where the policy names no regulator, the loop keeps the rate itself, as `altq replay` does with
//! its wire: one packet after the other, each for as long as its bytes take, fractions carried.

use altq_engine::units::{Nanos, Rate, SECOND};

/// When the wire is free.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: u64,
    free_at: Nanos,
    /// Bit-nanoseconds beyond `free_at`, less than `rate`.
    rest: u64,
    catch_up: Nanos,
    credit: Nanos,
}

impl Pacer {
    /// A wire of this rate. A loop that was kept from running, by the scheduler of a busy machine,
    /// makes good the time lost with packets waiting, at most `catch_up` of it. Of time without
    /// packets at most `credit` is made good: frames are seen a little after they came, and the
    /// wire was free then.
    pub fn new(rate: Rate, catch_up: Nanos, credit: Nanos) -> Pacer {
        Pacer { rate: rate.as_bit_s().max(1), free_at: 0, rest: 0, catch_up, credit }
    }

    /// Whether a packet may begin.
    pub fn ready(&self, now: Nanos) -> bool {
        self.free_at <= now
    }

    /// When the next packet may begin.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// A packet of `bytes` begins as soon as the wire is free.
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

    /// Another rate, for packets that begin from now on. What is left of the last nanosecond is
    /// given away.
    pub fn set_rate(&mut self, rate: Rate) {
        self.free_at = self.free_at.saturating_add(u64::from(self.rest > 0));
        (self.rate, self.rest) = (rate.as_bit_s().max(1), 0);
    }

    /// Nothing was there to send: the time until now is lost, but for the credit.
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
        // 2.5 ms late: packets that would have begun at 1, 2 and 3 ms; the wire is free again at 4.
        assert_eq!(sent_at(&mut pacer, 3_500_000), 3);
        // 96 ms late: 3 ms are made good, and the packet of this instant.
        assert_eq!(sent_at(&mut pacer, 100_000_000), 4);
        // Idle until 500 ms: 2 ms of that, and the packet of this instant.
        pacer.idle(500_000_000);
        assert_eq!(sent_at(&mut pacer, 500_000_000), 3);
    }
}
