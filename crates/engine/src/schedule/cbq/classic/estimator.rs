//! The estimator: how long a class was idle beyond what its rate allows, as a moving average, for
//! the class that sent and every class above it (docs/reference/altq.md 2.7). It runs when a packet
//! is taken, with the estimated time at which the link will be done with it.

use super::parameters::FILTER_GAIN;
use super::timer::{LONG, delta, micros};
use super::{Classic, NO_CUTOFF, NONE, Sharing};
use crate::schedule::Slot;
use crate::units::Nanos;

/// Nanoseconds to microseconds as ALTQ converts them, by shifts: 0.06 % too low, and up to 3 us by
/// rounding.
fn usec(ns: i64) -> i64 {
    (ns >> 10) + (ns >> 16) + (ns >> 17)
}

impl Classic {
    /// Accounts for a packet of `len` bytes that `slot` has sent. `lender` lent for it; [`NONE`] if
    /// nobody did.
    pub(super) fn update(&mut self, now: Nanos, slot: Slot, len: u32, lender: Slot) {
        let now = micros(now);
        let len = i64::from(len);
        let on_link = usec(len * self.ns_per_byte);
        if now < self.ifnow {
            // The device still holds packets. How far their end may lie ahead of the clock is
            // bounded.
            let ahead = delta(self.ifnow, now);
            self.ifnow = if ahead + on_link < self.maxiftime { self.ifnow + on_link } else { now + self.maxiftime };
        } else {
            self.ifnow = now + on_link;
        }

        let mut borrows = lender;
        let mut at = slot;
        while at != NONE {
            let class = &mut self.classes[at as usize];
            let mut idle = delta(self.ifnow, class.last);
            if idle >= LONG {
                class.avgidle = class.numbers.maxidle;
            }
            let worth = usec(len * class.numbers.ns_per_byte);
            idle -= worth;
            class.avgidle += idle - (class.avgidle >> FILTER_GAIN);
            if class.avgidle <= 0 {
                class.avgidle = class.avgidle.max(class.numbers.minidle);
                // The time at which the average would be back at 0.
                class.undertime = now + worth + ((-31 * class.avgidle) >> FILTER_GAIN);
                class.stats.over += 1;
            } else {
                class.avgidle = class.avgidle.min(class.numbers.maxidle);
                class.undertime = 0;
                class.wake();
            }
            // Every class below the lender has borrowed.
            if borrows == at {
                borrows = NONE;
            } else if borrows != NONE {
                class.stats.borrows += 1;
            }
            class.last = self.ifnow;
            class.last_pkttime = worth;
            at = class.parent;
        }

        if self.sharing != Sharing::TopLevel || lender == NONE {
            return;
        }
        let lends = &self.classes[lender as usize];
        if self.cutoff >= lends.depth {
            if !self.classes[slot as usize].backlogged || now < lends.undertime {
                self.cutoff = self.first_unsatisfied(now).unwrap_or(NO_CUTOFF);
            } else {
                self.cutoff = lends.depth;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::usec;

    #[test]
    fn microseconds_are_a_little_low() {
        assert_eq!(usec(1_200_000), 1171 + 18 + 9);
        for ns in (0..10_000_000).step_by(997) {
            let us = usec(ns);
            assert!(us <= ns / 1000 && us >= ns / 1000 - ns / 1_000_000 - 3, "{ns} {us}");
        }
    }
}
