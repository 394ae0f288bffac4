//! Pacing: segments are sent in small bursts at a given rate, instead of when acknowledgements
//! come.

use altq_engine::units::{Nanos, SECOND};

/// The rate at which segments may leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Full segments a second; above 0.
    pub rate: f64,
    /// Segments sent back to back.
    pub quantum: u32,
}

impl Pace {
    /// A pace of `rate` full segments a second, each a packet of `bytes`. The burst is that of
    /// draft-cardwell-iccrg-bbr-congestion-control-00 4.2.2: one segment below 1.2 Mbit/s, two
    /// below 24 Mbit/s, above that what the rate sends in a millisecond, up to 64 KB. (Linux: what
    /// it sends in a millisecond, at least two.)
    pub fn new(rate: f64, bytes: u32) -> Pace {
        // At least a segment an hour, so that nothing divides by 0.
        let rate = rate.max(1.0 / 3600.0);
        let bits = rate * f64::from(bytes) * 8.0;
        let quantum = if bits < 1.2e6 {
            1
        } else if bits < 24e6 {
            2
        } else {
            ((rate / 1000.0) as u32).clamp(2, (65_536 / bytes.max(1)).max(2))
        };
        Pace { rate, quantum }
    }
}

/// When the next burst may be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    release: Nanos,
    /// The present burst: when it began, and how many segments of it are left.
    burst: (Nanos, u32),
    /// How many more segments are sent without a wait after them.
    unpaced: u32,
    /// A segment waits for `release`.
    pub has_waiting: bool,
}

impl Pacer {
    /// A pacer that lets the first `burst` segments leave at once.
    pub fn new(burst: u32) -> Pacer {
        Pacer { unpaced: burst.saturating_sub(1), ..Pacer::default() }
    }

    /// Whether a segment may be sent now.
    pub fn may_send(&mut self, now: Nanos, pace: &Pace) -> bool {
        if self.burst.0 == now && self.burst.1 > 0 {
            return true;
        }
        if now < self.release {
            return false;
        }
        (self.burst, self.release) = ((now, pace.quantum), now);
        true
    }

    /// A segment was sent whose length is `part` of a full one's.
    pub fn sent(&mut self, pace: &Pace, part: f64) {
        self.burst.1 = self.burst.1.saturating_sub(1);
        if self.unpaced > 0 {
            self.unpaced -= 1;
            return;
        }
        self.release = self.release.saturating_add((part / pace.rate * SECOND as f64) as Nanos);
    }

    /// When the next burst may be sent.
    pub fn release(&self) -> Nanos {
        self.release
    }

    /// When the next burst may be sent, if a segment waits for it.
    pub fn deadline(&self) -> Option<Nanos> {
        self.has_waiting.then_some(self.release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_and_spaces() {
        // draft-cardwell-iccrg-bbr-congestion-control-00 4.2.2: rates beside its bounds, with
        // packets of 1500 bytes.
        let quantum = |bits: f64| Pace::new(bits / 12_000.0, 1500).quantum;
        assert_eq!((quantum(1.19e6), quantum(1.21e6), quantum(23.9e6), quantum(48e6), quantum(10e9)), (1, 2, 2, 4, 43));
        // 1000 segments a second, two at a time: every 2 ms.
        let pace = Pace { rate: 1000.0, quantum: 2 };
        let (mut pacer, mut sent_at) = (Pacer::default(), Vec::new());
        for now in (0..10_000_000).step_by(500_000) {
            while pacer.may_send(now, &pace) {
                pacer.sent(&pace, 1.0);
                sent_at.push(now / 1_000_000);
            }
        }
        assert_eq!(sent_at, [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]);
        // Time in which nothing was sent is not made up for.
        assert!(pacer.may_send(1_000_000_000, &pace));
        (0..2).for_each(|_| pacer.sent(&pace, 1.0));
        assert!(!pacer.may_send(1_001_000_000, &pace) && pacer.may_send(1_002_000_000, &pace));
        // The first ten are not paced, as in Linux (`Config::first_burst`); the wait after the
        // tenth is.
        let (mut pacer, mut sent) = (Pacer::new(10), 0);
        let slow = Pace { rate: 1000.0, quantum: 1 };
        while sent < 50 && pacer.may_send(5_000_000, &slow) {
            pacer.sent(&slow, 1.0);
            sent += 1;
        }
        assert_eq!((sent, pacer.release()), (10, 6_000_000));
    }
}
