//! The retransmission timeout (RFC 6298), and when timers fire.

use altq_engine::units::Nanos;

use super::config::{Config, RtoFloor};

/// How far round-trip times spread, as Linux estimates it (tcp_rtt_estimator of
/// net/ipv4/tcp_input.c). All spans are four times a mean deviation, which is what the timeout adds
/// to the smoothed round-trip time.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    /// Of the last samples.
    now: Nanos,
    /// The widest of this round, and at least the lower bound of the timeout.
    widest: Nanos,
    /// What the timeout adds: it follows `widest` up at once, and down by a quarter of the
    /// difference a round.
    kept: Nanos,
    /// The round ends when more than this sequence number is acknowledged.
    round: u64,
}

impl Spread {
    /// Takes note of a round-trip time that is `error` above the smoothed one, or below it. `una`
    /// is the first sequence number that is not acknowledged, `next` the next to be sent.
    fn sample(&mut self, config: &Config, (above, error): (bool, Nanos), una: u64, next: u64) {
        let mean = self.now / 4;
        self.now = if error <= mean {
            self.now - (mean - error)
        } else if above {
            self.now + (error - mean)
        } else {
            // When round trips become shorter, the timeout must not become longer for that.
            self.now + (error - mean) / 8
        };
        self.widest = self.widest.max(self.now);
        self.kept = self.kept.max(self.widest);
        if una > self.round {
            self.kept -= (self.kept - self.widest) / 4;
            (self.round, self.widest) = (next, config.rto_min);
        }
    }
}

/// The round-trip time, its variance, and the timeout that follows from them.
#[derive(Debug)]
pub struct Rto {
    /// Smoothed round-trip time; 0 before the first sample.
    srtt: Nanos,
    rttvar: Nanos,
    spread: Spread,
    /// The shortest round-trip time seen; `Nanos::MAX` before the first.
    min: Nanos,
    rto: Nanos,
    /// How often the timeout has been doubled.
    doublings: u8,
}

impl Rto {
    /// The state before the first sample (RFC 6298 2.1).
    pub fn new(config: &Config) -> Rto {
        Rto { srtt: 0, rttvar: 0, spread: Spread::default(), min: Nanos::MAX, rto: config.rto_initial, doublings: 0 }
    }

    /// Takes note of a round-trip time that may be the shortest so far.
    pub fn note_min(&mut self, rtt: Nanos) {
        self.min = self.min.min(rtt);
    }

    /// Takes note of a measured round-trip time. `una` is the first sequence number that is not
    /// acknowledged, `next` the next to be sent.
    pub fn sample(&mut self, config: &Config, rtt: Nanos, una: u64, next: u64) {
        let rtt = match config.rto_tick {
            0 => rtt.max(1),
            // A clock of ticks measures whole ticks, and at least one.
            tick => rtt.div_ceil(tick).max(1).saturating_mul(tick),
        };
        if self.srtt == 0 {
            // RFC 6298 2.2
            (self.srtt, self.rttvar) = (rtt, rtt / 2);
            let spread = (2 * rtt).max(config.rto_min);
            self.spread = Spread { now: 2 * rtt, widest: spread, kept: spread, round: next };
        } else {
            self.spread.sample(config, (rtt >= self.srtt, self.srtt.abs_diff(rtt)), una, next);
            // RFC 6298 2.3: beta = 1/4, then alpha = 1/8.
            self.rttvar = self.rttvar - self.rttvar / 4 + self.srtt.abs_diff(rtt) / 4;
            self.srtt = self.srtt - self.srtt / 8 + rtt / 8;
        }
        // RFC 6298 5, the note after 5.7: a new sample ends the doubling.
        self.doublings = 0;
        self.set(config);
    }

    fn set(&mut self, config: &Config) {
        let variance = self.rttvar.saturating_mul(4).max(config.rto_tick);
        let rto = match config.rto_floor {
            RtoFloor::Total => self.srtt.saturating_add(variance).max(config.rto_min),
            RtoFloor::Variance => self.srtt.saturating_add(self.spread.kept.max(config.rto_tick)),
        };
        self.rto = rto.min(config.rto_max);
    }

    /// The timer has expired, so the timeout doubles (RFC 6298 5.5).
    pub fn back_off(&mut self, config: &Config) {
        self.doublings = self.doublings.saturating_add(1);
        self.rto = self.rto.saturating_mul(2).min(config.rto_max);
    }

    /// The timeout, after any doublings.
    pub fn timeout(&self) -> Nanos {
        self.rto
    }

    /// The smoothed round-trip time, `None` before the first sample.
    pub fn srtt(&self) -> Option<Nanos> {
        (self.srtt > 0).then_some(self.srtt)
    }

    /// The shortest round-trip time, `None` before the first sample.
    pub fn min(&self) -> Option<Nanos> {
        (self.min < Nanos::MAX).then_some(self.min)
    }

    /// When a timer that is set now for `span` fires: on a tick, if the clock has ticks.
    pub fn deadline(config: &Config, now: Nanos, span: Nanos) -> Nanos {
        let at = now.saturating_add(span);
        match config.rto_tick {
            0 => at,
            tick => at.div_ceil(tick).saturating_mul(tick),
        }
    }
}

/// By how much RACK's timer and the loss probe wait longer than RFC 8985 6.2 and 7.2 say. It is 2
/// ms if timers count jiffies, as in Linux (TCP_TIMEOUT_MIN_US of include/net/tcp.h), else 0.
pub fn slack(config: &Config) -> Nanos {
    if config.jiffy > 0 { 2_000_000 } else { 0 }
}

/// When a timer that is set now for `at` fires on Linux' timer wheel (kernel/time/timer.c). It
/// never fires early. Less than 63 jiffies ahead it fires on any jiffy, less than 504 ahead on a
/// multiple of 8, less than 4032 ahead on a multiple of 64, and so on. With 250 jiffies a second a
/// usual timeout comes 4 to 32 ms late.
pub fn wheel(config: &Config, now: Nanos, at: Nanos) -> Nanos {
    let jiffy = config.jiffy;
    if jiffy == 0 {
        return at;
    }
    let clock = now / jiffy;
    let to_go = at.saturating_sub(now).div_ceil(jiffy);
    let (mut shift, mut limit) = (0, 63);
    while to_go >= limit && shift < 24 {
        (shift, limit) = (shift + 3, limit << 3);
    }
    ((((clock + to_go) >> shift) + 1) << shift).saturating_mul(jiffy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_on_the_wheel() {
        let config = Config { jiffy: 4_000_000, ..Config::linux() };
        let ms = |now: u64, span: u64| wheel(&config, now * 1_000_000, (now + span) * 1_000_000) / 1_000_000;
        // Level 0 of the wheel: the jiffy after. Level 1 (252 ms and more): a multiple of 32 ms.
        // Level 2 (2016 ms and more): a multiple of 256 ms.
        assert_eq!((ms(0, 40), ms(3, 40), ms(4, 40), ms(0, 248)), (44, 44, 48, 252));
        assert_eq!(
            (ms(0, 252), ms(0, 255), ms(0, 256), ms(1, 288), ms(0, 1000), ms(0, 2000)),
            (256, 288, 288, 320, 1024, 2016)
        );
        assert_eq!((ms(0, 2016), ms(0, 2048), ms(0, 4000)), (2048, 2304, 4096));
        // Never early.
        for span in 0..5000 {
            assert!(ms(span * 7, span) >= span * 8);
        }
        assert_eq!(wheel(&Config::rfc(), 5, 12), 12);
    }
}
