//! The published rules of cake-autorate, to compare with: its decisions for one direction of a
//! link, with the defaults of its version 3.2 and of what followed it (defaults.sh,
//! cake-autorate.sh; github.com/lynxthecat/cake-autorate). As there, times are in microseconds,
//! rates in kbit/s, and numbers whole; the delay of one direction is half the round trip.
//!
//! Not here, because a case has no use for it: choosing other reflectors from a long list, sleeping
//! while the line is idle, and the log.

use std::collections::VecDeque;

use altq_adapt::{Answer, Controller, Decision, Load, Notice, Reason, Sample, Settings};
use altq_engine::units::{Nanos, Rate};

/// `dl_owd_delta_delay_thr_ms`, in microseconds: an answer later than this is late.
const LATE: i64 = 30_000;
/// `avg_owd_delta_max_adjust_up_thr_ms`: up to this mean the rate rises fastest.
const UP_FASTEST: i64 = 10_000;
/// `avg_owd_delta_max_adjust_down_thr_ms`: from this mean on the rate falls fastest.
const DOWN_FASTEST: i64 = 60_000;
/// `bufferbloat_detection_window`, `bufferbloat_detection_thr`: three late answers of the last six.
const WINDOW: usize = 6;
const MOST_LATE: usize = 3;
/// `alpha_baseline_increase`, `alpha_baseline_decrease`, in millionths.
const RISE: i64 = 1_000;
const FALL: i64 = 900_000;
/// The baselines at the start.
const FIRST_BASELINE: i64 = 100_000;
/// `shaper_rate_min_adjust_down_bufferbloat`, `shaper_rate_max_adjust_down_bufferbloat`, in
/// millionths of the rate.
const DOWN_LEAST: i64 = 990_000;
const DOWN_MOST: i64 = 750_000;
/// `shaper_rate_min_adjust_up_load_high`, `shaper_rate_max_adjust_up_load_high`.
const UP_LEAST: i64 = 1_000_000;
const UP_MOST: i64 = 1_040_000;
/// `shaper_rate_adjust_down_load_low`, `shaper_rate_adjust_up_load_low`.
const REST_DOWN: i64 = 990_000;
const REST_UP: i64 = 1_010_000;
/// `high_load_thr`, in per cent.
const HIGH_LOAD: i64 = 75;
/// `bufferbloat_refractory_period_ms`, `decay_refractory_period_ms`.
const AFTER_LATE: i64 = 300_000;
const AFTER_REST: i64 = 1_000_000;
/// `monitor_achieved_rates_interval_ms`.
const MEASURE: i64 = 200_000;
const MILLION: i64 = 1_000_000;

/// The rules, for one direction.
pub struct CakeAutorate {
    /// Base, lowest and highest rate in kbit/s.
    base: i64,
    from: i64,
    to: i64,
    rate: i64,
    baselines: Vec<i64>,
    /// The last answers: by how much each was later than its baseline, and whether that was late.
    window: VecDeque<(i64, bool)>,
    /// What is sent, in kbit/s, and whether that is newer than the last rise.
    achieved: i64,
    fresh: bool,
    measured: Option<(i64, u64)>,
    last_late: i64,
    last_rest: i64,
    /// The rate that the link has.
    told: i64,
    reason: Reason,
    mean: i64,
}

impl CakeAutorate {
    /// The rules for a link with this many reflectors. The target of the settings is not used: the
    /// defaults have their own.
    pub fn new(settings: Settings, reflectors: usize) -> CakeAutorate {
        let kbit = |rate: Rate| i64::try_from(rate.as_bit_s() / 1000).unwrap_or(i64::MAX / MILLION).max(1);
        let base = kbit(settings.base());
        CakeAutorate {
            base,
            from: kbit(settings.from()),
            to: kbit(settings.to()),
            rate: base,
            baselines: vec![FIRST_BASELINE; reflectors],
            window: VecDeque::from(vec![(0, false); WINDOW]),
            achieved: 0,
            fresh: false,
            measured: None,
            last_late: i64::MIN / 2,
            last_rest: i64::MIN / 2,
            told: base,
            reason: Reason::Used,
            mean: 0,
        }
    }

    /// An answer has come: judges it, and changes the rate.
    fn answered(&mut self, now: i64, reflector: usize, round_trip: i64) {
        let Some(baseline) = self.baselines.get_mut(reflector) else { return };
        let delay = round_trip / 2;
        let alpha = if delay >= *baseline { RISE } else { FALL };
        *baseline = (alpha * delay + (MILLION - alpha) * *baseline) / MILLION;
        let delta = delay - *baseline;
        // The thresholds are raised by the time that a full packet takes.
        let packet = 12_000_000 / self.rate.max(1);
        let (late, fastest_up, fastest_down) = (LATE + packet, UP_FASTEST + packet, DOWN_FASTEST + packet);
        self.window.pop_front();
        self.window.push_back((delta, delta > late));
        self.mean = self.window.iter().map(|(delta, _)| delta).sum::<i64>() / WINDOW as i64;
        let bloated = self.window.iter().filter(|(_, late)| *late).count() >= MOST_LATE;
        let high = self.achieved.saturating_mul(100) / self.rate.max(1) > HIGH_LOAD;
        if bloated {
            if now > self.last_late + AFTER_LATE {
                let part = (1000 * (self.mean - late) / (fastest_down - late)).clamp(0, 1000);
                let factor = DOWN_LEAST - part * (DOWN_LEAST - DOWN_MOST) / 1000;
                (self.rate, self.reason) = (self.rate * factor / MILLION, Reason::Late);
                (self.last_late, self.last_rest) = (now, now);
            }
        } else if high {
            if self.fresh && now > self.last_late + AFTER_LATE {
                let part = (1000 * (self.mean - fastest_up) / (late - fastest_up)).clamp(0, 1000);
                let factor = UP_MOST - part * (UP_MOST - UP_LEAST) / 1000;
                (self.rate, self.reason) = (self.rate * factor / MILLION, Reason::Used);
                (self.fresh, self.last_rest) = (false, now);
            }
        } else if now > self.last_rest + AFTER_REST {
            if self.rate > self.base {
                self.rate = (self.rate * REST_DOWN / MILLION).max(self.base);
            } else {
                self.rate = (self.rate * REST_UP / MILLION).min(self.base);
            }
            (self.reason, self.last_rest) = (Reason::Unused, now);
        }
        self.rate = self.rate.clamp(self.from, self.to);
    }
}

/// Microseconds.
fn micros(time: Nanos) -> i64 {
    i64::try_from(time / 1000).unwrap_or(i64::MAX)
}

impl Controller for CakeAutorate {
    fn probed(&mut self, _: Nanos, _: usize) {}

    fn heard(&mut self, sample: Sample) {
        // Answers that are lost change nothing: without answers the rate stays.
        if let Answer::After(delay) = sample.answer {
            self.answered(micros(sample.at), sample.reflector, delay / 1000);
        }
    }

    fn decide(&mut self, load: Load) -> Option<Decision> {
        let now = micros(load.at);
        match self.measured {
            Some((at, _)) if now < at + MEASURE => {}
            Some((at, bytes)) => {
                // Bytes in microseconds, as kbit/s.
                let sent = load.sent_bytes.saturating_sub(bytes).saturating_mul(8000);
                self.achieved = i64::try_from(sent).unwrap_or(i64::MAX) / (now - at).max(1);
                self.fresh = true;
                self.measured = Some((now, load.sent_bytes));
            }
            None => self.measured = Some((now, load.sent_bytes)),
        }
        if self.rate == self.told {
            return None;
        }
        let kbit = |rate: i64| Rate::kbit_s(u64::try_from(rate).unwrap_or(1));
        let before = std::mem::replace(&mut self.told, self.rate);
        Some(Decision {
            at: load.at,
            before: kbit(before),
            after: kbit(self.rate),
            reason: self.reason,
            excess: u64::try_from(self.mean).unwrap_or(0) * 1000,
            sent: kbit(self.achieved),
            late: self.window.iter().filter(|(_, late)| *late).count(),
            counted: WINDOW,
        })
    }

    fn notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    fn rate(&self) -> Rate {
        Rate::kbit_s(u64::try_from(self.rate).unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn settings() -> Settings {
        Settings::new(Rate::mbit_s(20), Rate::mbit_s(5), Rate::mbit_s(60), 30 * MS)
    }

    /// Tells it every 50 ms an answer of one reflector, and what is sent, in Mbit/s.
    fn run(rules: &mut CakeAutorate, (from, to): (u64, u64), round_trip_ms: i64, sent: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for at in (from..to).step_by(50) {
            let load = Load { at: at * MS, sent_bytes: sent * 125 * at, backlogged: true };
            found.extend(rules.decide(load).map(|one| (at, one.after.as_bit_s() / 1000)));
            let answer = Answer::After(round_trip_ms * 1_000_000);
            rules.heard(Sample { at: at * MS, reflector: 0, sent: at * MS, answer });
        }
        found
    }

    #[test]
    fn up_by_four_percent_for_each_measurement_of_the_load() {
        let mut rules = CakeAutorate::new(settings(), 1);
        // The baseline comes down from 100 ms to 20 by nine tenths at each answer; up to then an
        // answer is earlier than it. The load is measured every 200 ms; the answer after that
        // raises the rate, which is told at the next call. 20,000 · 1.04 = 20,800; · 1.04 = 21,632;
        // then 22,497.28.
        assert_eq!(run(&mut rules, (0, 700), 40, 20), [(250, 20_800), (450, 21_632), (650, 22_497)]);
    }

    #[test]
    fn three_late_answers_of_six_lower_the_rate_by_their_mean() {
        let mut rules = CakeAutorate::new(settings(), 1);
        // 10 of 20 Mbit/s are no high load, and the rate is the base.
        assert!(run(&mut rules, (0, 2_000), 40, 10).is_empty());
        // 180 ms round trip: 90 one way, 70 later than the baseline, which rises by a thousandth of
        // that each time. At the third of them, at 2,100 ms, three are late; the mean of the six is
        // 34.9 ms. A full packet takes 0.6 ms, so that is 4.3 of the 30 ms from 30.6 to 60.6: the
        // rate falls by 1 % + 24 % · 4.3 / 30 = 4.5 %, to 19.1 Mbit/s. It is told at the next call.
        let found = run(&mut rules, (2_000, 2_200), 180, 10);
        assert_eq!(found.len(), 1);
        let (at, rate) = found[0];
        assert!(at == 2_150 && (19_080..=19_140).contains(&rate), "{at} {rate}");
    }
}
