//! Slow start and HyStart, which ends slow start before a loss when the delay grows.

use altq_engine::units::Nanos;

use super::{Ack, Window};
use crate::tcp::config::HyStart;

const MILLI: Nanos = 1_000_000;

/// The state of slow start.
#[derive(Debug)]
pub struct SlowStart {
    kind: HyStart,
    /// The round ends when this sequence number is acknowledged.
    round_end: u64,
    /// The shortest round-trip time of the last round; `Nanos::MAX` if none was measured.
    last_min: Nanos,
    /// The shortest round-trip time of this round; `Nanos::MAX` if none was measured.
    min: Nanos,
    /// Round-trip times measured in this round.
    samples: u32,
    /// In conservative slow start: the shortest round-trip time when it began, and how many rounds
    /// ago that was.
    conservative: Option<(Nanos, u32)>,
    /// Classic HyStart: when the round began, and when the last acknowledgement of its train came.
    train: (Nanos, Nanos),
}

impl SlowStart {
    /// The state before the first segment.
    pub fn new(kind: HyStart) -> SlowStart {
        SlowStart {
            kind,
            round_end: 0,
            last_min: Nanos::MAX,
            min: Nanos::MAX,
            samples: 0,
            conservative: None,
            train: (0, 0),
        }
    }

    /// Grows the window for an acknowledgement. Returns the acknowledged segments that are left for
    /// congestion avoidance.
    pub fn grow(&mut self, window: &mut Window, ack: &Ack) -> u32 {
        // RFC 9406 4.3: only the first slow start of a connection, when no loss has set the
        // threshold yet. Linux applies its own HyStart to every slow start.
        match self.kind {
            HyStart::Plus if window.ssthresh == u32::MAX => self.plus(window, ack),
            HyStart::Classic => self.classic(window, ack),
            _ => window.grow(ack.acked),
        }
    }

    /// HyStart++ (RFC 9406 4.2).
    fn plus(&mut self, window: &mut Window, ack: &Ack) -> u32 {
        /// Samples of the round-trip time that a round needs before its minimum counts.
        const N_RTT_SAMPLE: u32 = 8;
        const MIN_RTT_THRESH: Nanos = 4 * MILLI;
        const MAX_RTT_THRESH: Nanos = 16 * MILLI;
        const MIN_RTT_DIVISOR: Nanos = 8;
        const CSS_GROWTH_DIVISOR: u32 = 4;
        const CSS_ROUNDS: u32 = 5;
        /// Without pacing an acknowledgement counts for this many segments at most (RFC 9406 4.3).
        const L: u32 = 8;

        if let Some(rtt) = ack.rtt {
            self.min = self.min.min(rtt);
            self.samples += 1;
        }
        let acked = ack.acked.min(L);
        match &mut self.conservative {
            None => {
                window.grow(acked);
                if self.samples >= N_RTT_SAMPLE && self.min < Nanos::MAX && self.last_min < Nanos::MAX {
                    let threshold = (self.last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                    if self.min >= self.last_min.saturating_add(threshold) {
                        self.conservative = Some((self.min, 0));
                    }
                }
            }
            Some((baseline, _)) => {
                window.count += acked;
                window.cwnd += window.count / CSS_GROWTH_DIVISOR;
                window.count %= CSS_GROWTH_DIVISOR;
                // The delay has gone down again: back to slow start.
                if self.samples >= N_RTT_SAMPLE && self.min < *baseline {
                    self.conservative = None;
                }
            }
        }
        if ack.una >= self.round_end {
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                if *rounds >= CSS_ROUNDS {
                    window.ssthresh = window.cwnd;
                }
            }
            self.round_end = ack.next;
            (self.last_min, self.min, self.samples) = (self.min, Nanos::MAX, 0);
        }
        0
    }

    /// The first HyStart (Ha and Rhee 2011) with Linux' bounds: it acts from a window of 16
    /// segments on, needs 8 samples, allows a delay of 4 to 16 ms, and lets the acknowledgements of
    /// a train be up to 2 ms apart (net/ipv4/tcp_cubic.c: hystart_low_window, HYSTART_MIN_SAMPLES,
    /// HYSTART_DELAY_MIN and _MAX, hystart_ack_delta_us).
    fn classic(&mut self, window: &mut Window, ack: &Ack) -> u32 {
        const LOW_WINDOW: u32 = 16;
        const MIN_SAMPLES: u32 = 8;
        const GAP: Nanos = 2 * MILLI;

        if ack.una >= self.round_end {
            self.round_end = ack.next;
            self.train = (ack.now, ack.now);
            (self.min, self.samples) = (Nanos::MAX, 0);
        }
        if let (Some(rtt), Some(shortest)) = (ack.rtt, ack.min_rtt)
            && window.cwnd >= LOW_WINDOW
        {
            if ack.now.saturating_sub(self.train.1) <= GAP {
                self.train.1 = ack.now;
                if ack.now.saturating_sub(self.train.0) > shortest / 2 {
                    window.ssthresh = window.cwnd;
                }
            }
            if self.samples < MIN_SAMPLES {
                self.min = self.min.min(rtt);
                self.samples += 1;
            } else if self.min > shortest.saturating_add((shortest / 8).clamp(4 * MILLI, 16 * MILLI)) {
                window.ssthresh = window.cwnd;
            }
        }
        window.grow(ack.acked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives slow start in rounds of a hundred segments.
    struct Rounds {
        slow: SlowStart,
        window: Window,
        una: u64,
    }

    impl Rounds {
        fn new(cwnd: u32) -> Rounds {
            let window = Window { cwnd, ssthresh: u32::MAX, count: 0 };
            Rounds { slow: SlowStart::new(HyStart::Plus), window, una: 0 }
        }

        /// An acknowledgement for `acked` segments, `rtt` ms after they were sent. The segment
        /// acknowledged last in a round ends it.
        fn ack(&mut self, acked: u32, rtt: u64) {
            self.una += 1;
            let ack = Ack {
                now: 0,
                acked,
                una: self.una,
                next: self.una.next_multiple_of(100) + if self.una.is_multiple_of(100) { 100 } else { 0 },
                rtt: Some(rtt * MILLI),
                srtt: None,
                min_rtt: None,
            };
            self.slow.grow(&mut self.window, &ack);
        }

        /// A round with this round-trip time.
        fn round(&mut self, rtt: u64) {
            loop {
                self.ack(1, rtt);
                if self.una.is_multiple_of(100) {
                    break;
                }
            }
        }

        fn conservative(&self) -> bool {
            self.slow.conservative.is_some()
        }
    }

    #[test]
    fn the_delay_that_ends_slow_start() {
        // RFC 9406 4.2: slow start ends when the round-trip time has grown by an eighth of the last
        // round's shortest one, clamped to 4 to 16 ms: at 10 + 4, 40 + 5 and 200 + 16 ms.
        for (last, now, ends) in
            [(10, 13, false), (10, 14, true), (40, 44, false), (40, 45, true), (200, 215, false), (200, 216, true)]
        {
            let mut r = Rounds::new(10);
            r.round(last);
            r.round(last);
            // Eight samples at least.
            for n in 1..=8 {
                r.ack(1, now);
                assert_eq!(r.conservative(), ends && n == 8, "{last} {now} {n}");
            }
        }
    }

    #[test]
    fn growth_and_exit() {
        let mut r = Rounds::new(10);
        r.round(40);
        // RFC 9406 4.3: without pacing an acknowledgement counts for L = 8 segments at most.
        let before = r.window.cwnd;
        r.ack(20, 40);
        assert_eq!(r.window.cwnd - before, 8);
        (0..99).for_each(|_| r.ack(1, 40));
        (0..8).for_each(|_| r.ack(1, 60));
        assert!(r.conservative());
        // Conservative slow start grows a quarter as fast, for five rounds. The first of them is
        // the round in which it began.
        let before = r.window.cwnd;
        (0..92).for_each(|_| r.ack(1, 60));
        assert_eq!(r.window.cwnd - before, 23);
        for _ in 0..3 {
            r.round(60);
            assert_eq!(r.window.ssthresh, u32::MAX);
        }
        r.round(60);
        assert_eq!((r.window.ssthresh, r.window.cwnd), (r.window.cwnd, before + 23 + 100));
    }

    #[test]
    fn slow_start_goes_on_when_the_delay_goes() {
        // RFC 9406 4.2: eight samples below the baseline of conservative slow start end it.
        let mut r = Rounds::new(10);
        r.round(40);
        r.round(40);
        r.round(60);
        assert!(r.conservative());
        (0..7).for_each(|_| r.ack(1, 59));
        assert!(r.conservative());
        r.ack(1, 59);
        assert!(!r.conservative());
        let before = r.window.cwnd;
        r.ack(1, 59);
        assert_eq!(r.window.cwnd - before, 1);
    }
}
