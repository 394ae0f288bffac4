//! ALTQ's token bucket regulator (docs/reference/altq.md 1.3). It limits what the device may take,
//! so that packets wait in the scheduler's queues and not in the device.
//!
//! The rules are ALTQ's to the letter. The bucket starts full. A packet may be sent while there is
//! any token, so the bucket may go into debt by one packet. It is refilled only when it is empty or
//! in debt, then for all the time since the last refill. So the rate holds over a busy period, and
//! a burst after idleness is at most what was left, plus a full bucket, plus one packet. If the
//! time since the last refill would fill an empty bucket, the bucket is full, whatever the debt
//! was.

use crate::units::{Nanos, Rate, SECOND};

/// A token bucket. Tokens are counted in bits times [`SECOND`], so nothing is lost by division.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    depth: i128,
    tokens: i128,
    last: Nanos,
}

const PER_BYTE: i128 = 8 * SECOND as i128;

impl TokenBucket {
    /// A full bucket of `depth` bytes (at least 1), filled at `rate` (at least 1 bit/s).
    pub fn new(rate: Rate, depth: u32, now: Nanos) -> TokenBucket {
        let depth = i128::from(depth.max(1)) * PER_BYTE;
        TokenBucket { rate: Rate::bit_s(rate.as_bit_s().max(1)), depth, tokens: depth, last: now }
    }

    /// ALTQ's depth for a rate: 1 MTU up to 1 Mbit/s, 4 up to 10, 8 up to 200, 24 above.
    pub fn auto_depth(rate: Rate, mtu: u32) -> u32 {
        let packets = match rate.as_bit_s() {
            0..=1_000_000 => 1,
            1_000_001..=10_000_000 => 4,
            10_000_001..=200_000_000 => 8,
            _ => 24,
        };
        mtu.saturating_mul(packets)
    }

    /// Whether a packet may be sent now. Refills a bucket that is empty or in debt.
    pub fn ready(&mut self, now: Nanos) -> bool {
        if self.tokens <= 0 {
            self.tokens = self.refilled(now);
            self.last = now;
        }
        self.tokens > 0
    }

    /// Takes the tokens of a packet of `bytes`.
    pub fn spend(&mut self, bytes: u32) {
        self.tokens -= i128::from(bytes) * PER_BYTE;
    }

    /// The earliest time at which a packet may be sent.
    pub fn ready_at(&self) -> Nanos {
        if self.tokens > 0 {
            return self.last;
        }
        // The first whole nanosecond at which there is any token, or at which an empty bucket would
        // be full.
        let debt = (-self.tokens + 1).min(self.depth);
        let wait = debt.unsigned_abs().div_ceil(u128::from(self.rate.as_bit_s()));
        self.last.saturating_add(Nanos::try_from(wait).unwrap_or(Nanos::MAX))
    }

    /// Sets another rate and depth, in bytes. The tokens in the bucket stay, up to the new depth.
    /// If both are as they were, nothing changes.
    pub fn set(&mut self, now: Nanos, rate: Rate, depth: u32) {
        let (rate, depth) = (Rate::bit_s(rate.as_bit_s().max(1)), i128::from(depth.max(1)) * PER_BYTE);
        if (rate, depth) == (self.rate, self.depth) {
            return;
        }
        if self.tokens <= 0 {
            self.tokens = self.refilled(now);
            self.last = now;
        }
        (self.rate, self.depth) = (rate, depth);
        self.tokens = self.tokens.min(self.depth);
    }

    fn refilled(&self, now: Nanos) -> i128 {
        let brought = i128::from(now.saturating_sub(self.last)) * i128::from(self.rate.as_bit_s());
        // After the time that fills an empty bucket the bucket is full, whatever the debt was.
        if brought >= self.depth { self.depth } else { (self.tokens + brought).min(self.depth) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rate_of_a_busy_period() {
        // 10 Mbit/s, 1500-byte packets: the initial bucket and one packet on top of the rate.
        let mut bucket = TokenBucket::new(Rate::mbit_s(10), 6000, 0);
        let (mut now, mut sent) = (0, 0u64);
        while now < SECOND {
            if bucket.ready(now) {
                bucket.spend(1500);
                sent += 1500;
            } else {
                now = bucket.ready_at();
            }
        }
        assert!((1_250_000..=1_250_000 + 6000 + 1500).contains(&sent), "{sent}");
    }

    #[test]
    fn burst_after_idleness_is_altqs() {
        // docs/reference/altq.md 1.3: 14 packets of 1500 bytes back to back from a bucket of 12000
        // bytes: the 6 that were left, and 8.
        let mut bucket = TokenBucket::new(Rate::mbit_s(10), 12000, 0);
        assert!(bucket.ready(0));
        bucket.spend(1500 * 2);
        let mut burst = 0;
        while bucket.ready(10 * SECOND) {
            bucket.spend(1500);
            burst += 1;
        }
        assert_eq!(burst, 14);
    }

    #[test]
    fn idleness_forgives_the_debt() {
        // 12000 bytes take 9.6 ms at 10 Mbit/s. A debt of 3000 bytes after 9 ms leaves 8250; after
        // 10 ms the bucket is full.
        let packets = |idle| {
            let mut bucket = TokenBucket::new(Rate::mbit_s(10), 12000, 0);
            bucket.spend(15000);
            let mut packets = 0;
            while bucket.ready(idle) {
                bucket.spend(750);
                packets += 1;
            }
            packets
        };
        assert_eq!((packets(9_000_000), packets(10_000_000)), (11, 16));
        // A packet larger than the bucket does not hold it back for longer than the bucket takes to
        // fill.
        let mut bucket = TokenBucket::new(Rate::mbit_s(10), 1500, 0);
        bucket.spend(9000);
        assert_eq!(bucket.ready_at(), 1_200_000);
        assert!(!bucket.clone().ready(1_199_999));
        assert!(bucket.ready(1_200_000));
    }

    #[test]
    fn ready_at_is_the_first_nanosecond() {
        let mut bucket = TokenBucket::new(Rate::bit_s(999_999_937), 1500, 0);
        assert!(bucket.ready(0));
        bucket.spend(3001);
        assert!(!bucket.ready(0));
        let at = bucket.ready_at();
        assert!(!bucket.clone().ready(at - 1));
        assert!(bucket.ready(at));
    }
}
