//! BBR's detection of a policer, as in Linux (net/ipv4/tcp_bbr.c, "long-term bandwidth"). Two spans
//! in a row that lose a fifth of the packets and have the same delivery rate mean that a token
//! bucket drops the rest. BBR then sends at that rate for 48 round trips, without probing.

use altq_engine::units::{Nanos, SECOND};

/// The least number of round trips of a span.
const ROUNDS: u32 = 4;
/// A span that has not ended after this many round trips is given up.
const LONGEST: u32 = 4 * ROUNDS;
/// The least losses of a span, for each 256 segments delivered.
const LOSS: u64 = 50;
/// Two rates count as the same if they differ by no more than this part of the first...
const RATIO: f64 = 0.125;
/// ...or by no more than this many bits a second.
const DIFFERENCE: f64 = 4000.0;
/// Round trips for which the policer's rate is used.
const KEPT: u32 = 48;

/// The state of the detection. Rates are in segments a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policer {
    rate: f64,
    kept: bool,
    sampling: bool,
    begin: Nanos,
    delivered: u64,
    lost: u64,
    rounds: u32,
}

/// The connection's state at an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The time.
    pub now: Nanos,
    /// Segments delivered since the connection began.
    pub delivered: u64,
    /// Segments lost since the connection began.
    pub lost: u64,
    /// A round trip begins.
    pub round_start: bool,
    /// The acknowledgement shows a new loss.
    pub losing: bool,
    /// The application limits the sending rate.
    pub limited: bool,
    /// BBR is in [`super::bbr::Mode::ProbeBw`].
    pub probing: bool,
    /// Length of a full segment's packet in bytes.
    pub bytes: u32,
}

impl Policer {
    /// The policer's rate while it is used, in segments a second.
    pub fn rate(&self) -> Option<f64> {
        self.kept.then_some(self.rate)
    }

    fn begin(&mut self, at: &Observation) {
        (self.begin, self.delivered, self.lost, self.rounds) = (at.now, at.delivered, at.lost, 0);
    }

    /// Takes note of an acknowledgement that gave a rate sample. True if the policer's rate has
    /// been used for long enough, so that probing begins anew.
    pub fn acked(&mut self, at: &Observation) -> bool {
        if self.kept {
            self.rounds += u32::from(at.probing && at.round_start);
            if self.rounds >= KEPT {
                *self = Policer::default();
                return true;
            }
            return false;
        }
        if !self.sampling {
            // A span begins with a loss, because only then the bucket is known to be empty.
            if !at.losing {
                return false;
            }
            self.begin(at);
            self.sampling = true;
        }
        if at.limited {
            *self = Policer::default();
            return false;
        }
        self.rounds += u32::from(at.round_start);
        if self.rounds < ROUNDS {
            return false;
        }
        if self.rounds > LONGEST {
            *self = Policer::default();
            return false;
        }
        let (lost, delivered, span) = (at.lost - self.lost, at.delivered - self.delivered, at.now - self.begin);
        // It ends with a loss, too.
        if !at.losing || delivered == 0 || lost * 256 < LOSS * delivered || span < SECOND / 1000 {
            return false;
        }
        let rate = delivered as f64 * SECOND as f64 / span as f64;
        let difference = (rate - self.rate).abs();
        if self.rate > 0.0 && (difference <= RATIO * self.rate || difference * f64::from(at.bytes) * 8.0 <= DIFFERENCE)
        {
            (self.rate, self.kept, self.rounds) = ((rate + self.rate) / 2.0, true, 0);
        } else {
            self.rate = rate;
            self.begin(at);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spans_alike() {
        // Each round trip of 100 ms loses 25 segments of 100 and delivers 75: a third of those
        // delivered, more than 50 of 256. So a span of four round trips has 750 segments a second.
        let run = |rates: [u64; 2]| {
            let mut policer = Policer::default();
            let mut at = Observation {
                now: 0,
                delivered: 0,
                lost: 0,
                round_start: true,
                losing: true,
                limited: false,
                probing: true,
                bytes: 1500,
            };
            policer.acked(&at);
            let mut kept = Vec::new();
            for n in 1..70 {
                at.now += 100_000_000;
                at.delivered += rates[usize::from(n > 4)];
                at.lost += 25;
                let over = policer.acked(&at);
                kept.push((policer.rate().map(|rate| rate as u64), over));
            }
            kept
        };
        let kept = run([75, 75]);
        assert!(kept[..6].iter().all(|(rate, _)| rate.is_none()), "{kept:?}");
        let first = kept.iter().position(|(rate, _)| rate.is_some()).unwrap();
        assert!(first <= 8 && kept[first].0 == Some(750), "{kept:?}");
        // 48 round trips later it probes again.
        assert_eq!(kept.iter().position(|(_, over)| *over), Some(first + 48));
        // The second span is a quarter slower than the first, so a third one is needed.
        let other = run([100, 75]);
        assert!(other.iter().position(|(rate, _)| rate.is_some()).unwrap() > first + 2, "{other:?}");
    }
}
