//! A host that answers probes: its usual delay, its last answers, and whether its vote counts.

use std::collections::VecDeque;

use altq_engine::units::Nanos;

use crate::constants::{CLOCK_SET, DEAD_AFTER, DEAD_FOR, MOST_RISE, MOST_STRIKES, PAIR, SILENT, STRIKES};
use crate::said::Health;

/// What is known of a reflector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reflector {
    /// The usual delay, against which answers are measured.
    usual: Option<i64>,
    /// The usual time from a probe to its answer. It differs from the usual delay if delays are
    /// measured one way (ICMP timestamps).
    usual_wait: Option<i64>,
    /// The last answer and the one before it: when each came, and how long it took.
    answers: [Option<(Nanos, i64)>; 2],
    /// The times at which the probes were sent that may still be answered.
    waiting: VecDeque<Nanos>,
    /// Lost probes since the last answer.
    lost: u32,
    /// How many more judgements it disagreed in than it agreed in; 0 to [`MOST_STRIKES`].
    strikes: u32,
    /// Whether it is dropped.
    dropped: bool,
    /// The state that `news` returned last.
    health: Health,
}

impl Reflector {
    /// A probe was sent.
    pub fn probed(&mut self, at: Nanos) {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(at);
    }

    /// Takes the answer to the probe that was sent at `sent`. A shorter delay becomes the usual
    /// delay at once: no packet is faster than the empty path allows. If the answer took longer,
    /// the usual delay rises by `1 / rise` of the difference. At most 64 ms of the difference
    /// count.
    pub fn answered(&mut self, at: Nanos, sent: Nanos, delay: i64, rise: i64) {
        let wait = i64::try_from(at.saturating_sub(sent)).unwrap_or(i64::MAX);
        self.usual = Some(moved(self.usual, delay, rise));
        self.usual_wait = Some(moved(self.usual_wait, wait, rise));
        self.answers = [Some((at, delay)), self.answers[0]];
        self.lost = 0;
        self.settled(sent);
    }

    /// The probe that was sent at `sent` is lost.
    pub fn lost(&mut self, sent: Nanos) {
        self.lost = self.lost.saturating_add(1);
        self.settled(sent);
    }

    /// Probes up to this one are answered or lost. (Packets on the same path keep their order.)
    fn settled(&mut self, sent: Nanos) {
        while self.waiting.front().is_some_and(|at| *at <= sent) {
            self.waiting.pop_front();
        }
    }

    /// Its vote: by how much longer than usual its answers take. `late`: whether answers are late
    /// already; then only its last answer counts, because it shows sooner that the delay falls.
    ///
    /// An overdue probe votes before its answer comes: if the line becomes five times slower, an
    /// answer may take seconds, and all that time the queue would grow. Its vote is the time by
    /// which it is overdue. While answers are not late yet, `target` is subtracted, because one
    /// packet may be late by accident.
    pub fn vote(&self, now: Nanos, late: bool, target: Nanos) -> Option<Nanos> {
        if self.is_dead(now) {
            return None;
        }
        let answered = if late { self.last_excess(now) } else { self.excess(now) };
        let overdue = self.overdue(now).saturating_sub(if late { 0 } else { target });
        answered.map(|excess| excess.max(overdue)).or((overdue > 0).then_some(overdue))
    }

    /// By how much the oldest unanswered probe is overdue.
    fn overdue(&self, now: Nanos) -> Nanos {
        let (Some(sent), Some(usual)) = (self.waiting.front(), self.usual_wait) else { return 0 };
        longer(i64::try_from(now.saturating_sub(*sent)).unwrap_or(i64::MAX), usual)
    }

    /// By how much longer than usual its answers take: the smaller of its last two, because one
    /// late answer may be a retransmission of the radio link. `None` if they are too old, or too
    /// far apart.
    fn excess(&self, now: Nanos) -> Option<Nanos> {
        let usual = self.usual?;
        let [Some((last_at, last)), Some((before_at, before))] = self.answers else { return None };
        if last_at.saturating_add(SILENT) < now || before_at.saturating_add(PAIR) < last_at {
            return None;
        }
        Some(longer(last.min(before), usual))
    }

    /// By how much longer than usual its last answer took. `None` if it is too old.
    fn last_excess(&self, now: Nanos) -> Option<Nanos> {
        let (at, delay) = self.answers[0]?;
        (at.saturating_add(SILENT) >= now).then_some(longer(delay, self.usual?))
    }

    /// Counts one judgement, and drops the reflector or takes it back. `agrees`: whether it agreed
    /// with the others. `may_drop`: whether enough others remain.
    pub fn judge(&mut self, agrees: bool, may_drop: bool) {
        self.strikes = if agrees { self.strikes.saturating_sub(1) } else { (self.strikes + 1).min(MOST_STRIKES) };
        if self.strikes >= STRIKES && may_drop {
            self.dropped = true;
        } else if self.strikes == 0 {
            self.dropped = false;
        }
    }

    /// Whether it is dropped: it disagreed with the others for long.
    pub fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// Forgets its answers and probes, but not its usual delay.
    pub fn forget_answers(&mut self) {
        self.answers = [None; 2];
        self.waiting.clear();
    }

    /// Several probes are lost, and the last answer is long ago. (Behind a queue of several
    /// seconds, probes count as lost although their answers still come.)
    fn is_dead(&self, now: Nanos) -> bool {
        self.lost >= DEAD_AFTER && self.answers[0].is_none_or(|(at, _)| at.saturating_add(DEAD_FOR) <= now)
    }

    /// Its state, if that has changed since the last call.
    pub fn news(&mut self, now: Nanos) -> Option<Health> {
        let health = if self.is_dead(now) {
            Health::Dead
        } else if self.dropped {
            Health::Dropped
        } else if self.usual.is_some() {
            Health::Good
        } else {
            Health::Unknown
        };
        (std::mem::replace(&mut self.health, health) != health).then_some(health)
    }
}

/// The largest number of unanswered probes that is remembered: 16 s of them.
const MOST_WAITING: usize = 64;

/// The new usual delay, after an answer with this delay.
fn moved(usual: Option<i64>, delay: i64, rise: i64) -> i64 {
    match usual {
        Some(usual) if delay >= usual => {
            let longer = delay.saturating_sub(usual);
            if longer > CLOCK_SET { delay } else { usual.saturating_add(longer.min(MOST_RISE) / rise.max(1)) }
        }
        _ => delay,
    }
}

/// By how much a delay is longer than the usual one. 0 if it is shorter: the usual delay may have
/// risen since.
fn longer(delay: i64, usual: i64) -> Nanos {
    u64::try_from(delay.saturating_sub(usual)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{RISE, RISE_QUIET};

    const MS: i64 = 1_000_000;

    fn at(ms: u64) -> Nanos {
        ms * 1_000_000
    }

    #[test]
    fn the_usual_delay_falls_at_once_and_rises_slowly() {
        let mut reflector = Reflector::default();
        assert_eq!(reflector.excess(0), None);
        reflector.answered(at(0), at(0), 40 * MS, RISE);
        assert_eq!((reflector.usual, reflector.excess(at(0))), (Some(40 * MS), None));
        // The answer took 64 ms longer, so the usual delay rises by 64 / 256 = 0.25 ms. The smaller
        // of the two answers is 40 ms.
        reflector.answered(at(250), at(250), 104 * MS, RISE);
        assert_eq!((reflector.usual, reflector.excess(at(250))), (Some(40_250_000), Some(0)));
        // 104 - 40.25 = 63.75 ms; a 256th of that is 249,023 ns.
        reflector.answered(at(500), at(500), 104 * MS, RISE);
        assert_eq!((reflector.usual, reflector.excess(at(500))), (Some(40_499_023), Some(63_500_977)));
        // Quiet: an eighth of 63,500,977.
        reflector.answered(at(750), at(750), 104 * MS, RISE_QUIET);
        assert_eq!(reflector.usual, Some(40_499_023 + 7_937_622));
        reflector.answered(at(1000), at(1000), 30 * MS, RISE);
        assert_eq!((reflector.usual, reflector.excess(at(1000))), (Some(30 * MS), Some(0)));
    }

    #[test]
    fn a_clock_that_was_set_is_a_new_beginning() {
        let mut reflector = Reflector::default();
        // Clocks that differ make delays in one direction negative.
        reflector.answered(at(0), at(0), -500 * MS, RISE);
        reflector.answered(at(250), at(250), -450 * MS, RISE);
        assert_eq!(reflector.usual, Some(-500 * MS + 50 * MS / 256));
        reflector.answered(at(500), at(500), 86_400_000 * MS, RISE);
        assert_eq!(reflector.usual, Some(86_400_000 * MS));
        reflector.answered(at(750), at(750), i64::MIN, RISE);
        reflector.answered(at(1000), at(1000), i64::MAX, RISE);
        assert_eq!(reflector.usual, Some(i64::MAX));
    }

    #[test]
    fn answers_grow_old() {
        let mut reflector = Reflector::default();
        reflector.answered(at(0), at(0), 40 * MS, RISE);
        reflector.answered(at(2_999), at(2_999), 40 * MS, RISE);
        assert_eq!(reflector.excess(at(3_999)), Some(0));
        assert_eq!(reflector.excess(at(4_000)), None, "the last answer is older than a second");
        assert_eq!([3_999, 4_000].map(|ms| reflector.last_excess(at(ms))), [Some(0), None]);
        reflector.answered(at(6_000), at(6_000), 40 * MS, RISE);
        assert_eq!(reflector.excess(at(6_000)), None, "the two answers are more than three seconds apart");
        assert_eq!(reflector.last_excess(at(6_000)), Some(0));
        reflector.answered(at(6_250), at(6_250), 40 * MS, RISE);
        assert_eq!(reflector.excess(at(6_250)), Some(0));
        reflector.forget_answers();
        assert_eq!((reflector.excess(at(6_250)), reflector.usual), (None, Some(40 * MS)));
    }

    #[test]
    fn dropped_after_twenty_and_back_when_all_are_used_up() {
        let mut reflector = Reflector::default();
        reflector.answered(at(0), at(0), MS, RISE);
        assert_eq!(reflector.news(0), Some(Health::Good));
        for n in 1..=20 {
            assert!(!reflector.is_dropped(), "{n}");
            reflector.judge(false, true);
        }
        assert_eq!((reflector.is_dropped(), reflector.news(0)), (true, Some(Health::Dropped)));
        for n in 1..=20 {
            assert!(reflector.is_dropped(), "{n}");
            reflector.judge(true, true);
        }
        assert_eq!((reflector.is_dropped(), reflector.news(0), reflector.news(0)), (false, Some(Health::Good), None));
        // Too few others remain: it is not dropped. It is dropped at the next judgement with enough
        // others.
        (0..1_000).for_each(|_| reflector.judge(false, false));
        assert!(!reflector.is_dropped());
        reflector.judge(false, true);
        assert!(reflector.is_dropped());
        // The count went up to 240 only, so it is used up by 240 agreements.
        (0..239).for_each(|_| reflector.judge(true, true));
        assert!(reflector.is_dropped());
        reflector.judge(true, true);
        assert!(!reflector.is_dropped());
    }

    #[test]
    fn three_lost_probes_in_a_row_are_a_death() {
        let mut reflector = Reflector::default();
        assert_eq!(reflector.news(0), None);
        [(); 2].iter().for_each(|_| reflector.lost(0));
        assert_eq!(reflector.news(0), None);
        reflector.lost(0);
        assert_eq!((reflector.news(0), reflector.news(0)), (Some(Health::Dead), None));
        reflector.answered(at(0), at(0), MS, RISE);
        assert_eq!(reflector.news(0), Some(Health::Good));
    }

    #[test]
    fn a_probe_that_is_overdue_votes() {
        let (mut reflector, target) = (Reflector::default(), 30_000_000);
        let ms = |vote: Option<Nanos>| vote.map(|vote| vote / 1_000_000);
        reflector.probed(at(0));
        assert_eq!(reflector.vote(at(900), false, target), None, "how long an answer takes is not known");
        reflector.answered(at(40), at(0), 40 * MS, RISE);
        reflector.probed(at(250));
        reflector.answered(at(290), at(250), 40 * MS, RISE);
        reflector.probed(at(500));
        reflector.probed(at(750));
        // The probe of 500 ms is due at 540 ms. The target of 30 ms is subtracted, so its vote
        // stays 0 until 570 ms.
        assert_eq!([540, 570, 600].map(|now| ms(reflector.vote(at(now), false, target))), [0, 0, 30].map(Some));
        assert_eq!([540, 600].map(|now| ms(reflector.vote(at(now), true, target))), [0, 60].map(Some));
        // The probe of 500 ms is lost. That of 750 ms has been overdue since 790 ms.
        reflector.lost(at(500));
        assert_eq!(ms(reflector.vote(at(1_290), true, target)), Some(500));
        // It is answered after 600 ms, so nothing is overdue any more. The answer took 560 ms
        // longer than usual. The usual delay has risen by 64 / 256 ms, which is subtracted.
        reflector.answered(at(1_350), at(750), 600 * MS, RISE);
        assert_eq!(reflector.vote(at(1_400), true, target), Some(559_750_000));
        // Three probes are lost. Three seconds after its last answer it is dead, and does not vote.
        (0..3).for_each(|_| reflector.lost(at(1_500)));
        reflector.probed(at(4_200));
        assert_eq!([4_349, 4_350].map(|now| ms(reflector.vote(at(now), true, target))), [Some(108), None]);
    }
}
