//! BBR under a policer, as in Linux (net/ipv4/tcp_bbr.c, "long-term bandwidth"): two spans in a row
//! with a fifth of the packets lost and the same rate are a token bucket. Its rate is kept to for
//! 48 round trips, without probing.

use altq_engine::units::{Nanos, SECOND};

/// Round trips of a span, and how many it may take to be one.
const ROUNDS: u32 = 4;
const LONGEST: u32 = 4 * ROUNDS;
/// Of 256 delivered so many are lost.
const LOSS: u64 = 50;
/// Two rates are the same within an eighth, or 4 kbit/s.
const RATIO: f64 = 0.125;
const DIFFERENCE: f64 = 4000.0;
/// Round trips for which the rate is kept to.
const KEPT: u32 = 48;

/// What has been seen. Rates in segments a second.
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

/// Where a connection stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// The time.
    pub now: Nanos,
    /// Segments delivered and lost so far.
    pub delivered: u64,
    /// See `delivered`.
    pub lost: u64,
    /// A round trip begins.
    pub round_start: bool,
    /// Something was lost just now.
    pub losing: bool,
    /// The application holds it back.
    pub limited: bool,
    /// It probes for more.
    pub probing: bool,
    /// Bytes of a full segment's packet.
    pub bytes: u32,
}

impl Policer {
    /// The policer's rate, while it is kept to.
    pub fn rate(&self) -> Option<f64> {
        self.kept.then_some(self.rate)
    }

    fn begin(&mut self, at: &Standing) {
        (self.begin, self.delivered, self.lost, self.rounds) = (at.now, at.delivered, at.lost, 0);
    }

    /// An acknowledgement with news. True: the rate has been kept to for long enough, and probing
    /// begins anew.
    pub fn look(&mut self, at: &Standing) -> bool {
        if self.kept {
            self.rounds += u32::from(at.probing && at.round_start);
            if self.rounds >= KEPT {
                *self = Policer::default();
                return true;
            }
            return false;
        }
        if !self.sampling {
            // A span begins with a loss: before it the bucket was not empty.
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
        // And it ends with one.
        if !at.losing || delivered == 0 || lost * 256 < LOSS * delivered || span < SECOND / 1000 {
            return false;
        }
        let rate = delivered as f64 * SECOND as f64 / span as f64;
        let apart = (rate - self.rate).abs();
        if self.rate > 0.0 && (apart <= RATIO * self.rate || apart * f64::from(at.bytes) * 8.0 <= DIFFERENCE) {
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
        // 25 of 100 lost each round trip of 100 ms, 75 delivered: 64 of 192 are more than 50
        // of 256. Spans of four round trips, 750 segments a second.
        let run = |rates: [u64; 2]| {
            let mut policer = Policer::default();
            let mut at = Standing {
                now: 0,
                delivered: 0,
                lost: 0,
                round_start: true,
                losing: true,
                limited: false,
                probing: true,
                bytes: 1500,
            };
            policer.look(&at);
            let mut kept = Vec::new();
            for n in 1..70 {
                at.now += 100_000_000;
                at.delivered += rates[usize::from(n > 4)];
                at.lost += 25;
                let over = policer.look(&at);
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
        // Not the same: the second span is a quarter slower, so it takes a third one.
        let other = run([100, 75]);
        assert!(other.iter().position(|(rate, _)| rate.is_some()).unwrap() > first + 2, "{other:?}");
    }
}
