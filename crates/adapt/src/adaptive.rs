//! altq's own controller. docs/adapt.md describes the same rules.
//!
//! - **Late answers.** Each reflector has a usual delay. Its vote is by how much its answers take
//!   longer: the smaller of its last two, but while answers are late its last one (`reflector.rs`).
//!   The median of the votes counts, so a minority that lies changes nothing, and is dropped after
//!   a while. A probe that is overdue votes before its answer comes.
//! - **Down fast.** If the median exceeds the target plus the time of one 1500-byte packet, the
//!   rate is cut by a tenth. It is cut by another tenth for each further target, by half at most;
//!   again every 300 ms while the delay does not fall. A cut is taken from the rate that the link
//!   really sends, because cutting a rate that is not used drains nothing. (It is taken from at
//!   least half the set rate.)
//! - **Up while used and calm.** The rate rises by a 16th every 250 ms (27 % a second), up to near
//!   the *knee*: the rate at which answers became late the last time. Around the knee it rises
//!   slowly (6 % a second), above it fast again. So on a line of constant rate the delay rises only
//!   every few seconds. CUBIC also grows slowly near the window of its last loss (RFC 9438 4.1).
//! - **Back to the base rate** while the link is not used: what was learnt about the line grows old
//!   (as in cake-autorate).
//! - **Silence.** If a link is used and gets no answers for a second, its line is dead or seconds
//!   of packets wait before it, so the rate is cut. After ten seconds it is as likely that probes
//!   are filtered somewhere, so the rate goes back to the base, as if the policy had no `adapt`.

use altq_engine::units::{Nanos, Rate};

use crate::constants::{
    BLIND, CUT_EVERY, JUDGE_EVERY, KNEE_FOR, LEAST_GAP, RECENT, REST_EVERY, RISE, RISE_LOWEST, RISE_QUIET, SILENT,
};
use crate::reflector::Reflector;
use crate::usage::Usage;
use crate::{Answer, Controller, Decision, Load, Notice, Noticed, Reason, Sample, Settings};

/// Follows a line by the delays of probes. The rate is always within the bounds of the settings.
/// Two changes are at least [`LEAST_GAP`] apart. Rates between the bounds are whole kbit/s from 1
/// Mbit/s on.
#[derive(Clone, Debug)]
pub struct Adaptive {
    settings: Settings,
    /// The present rate in bit/s.
    rate: u64,
    reflectors: Vec<Reflector>,
    usage: Usage,
    /// The latest time of any call.
    now: Nanos,
    /// The time of the last call of `decide`.
    asked: Option<Nanos>,
    /// When the rate changed last.
    changed: Option<Nanos>,
    /// When the reflectors were judged last.
    judged: Option<Nanos>,
    /// When a reflector that is not dropped answered last. Before the first answer: the time of the
    /// first call of `decide`.
    heard: Option<Nanos>,
    /// True if a reflector has ever answered.
    ever_heard: bool,
    /// Since when there has been no answer, if it has been reported that no reflector answers.
    silent: Option<Nanos>,
    /// The cuts since answers became late.
    episode: Option<Episode>,
    /// The knee: the rate at which answers became late the last time, and when that was.
    knee: Option<(u64, Nanos)>,
    /// The highest rate at which the delay fell in the last episode: the line carries that much. 0:
    /// none.
    resume: u64,
    /// True if the next change must bring the rate down to the base: a long silence has ended.
    again: bool,
    notices: Vec<Notice>,
}

/// The time from the first late answers until answers are calm again, with the cuts in it.
#[derive(Clone, Copy, Debug)]
struct Episode {
    /// When the delay was compared last. The first time is that of the first cut.
    at: Nanos,
    /// The delay at that time, or a lower one since.
    excess: Nanos,
    /// The highest rate at which the delay fell; 0: none yet.
    fell: u64,
}

/// What is known at a decision: the fields of [`Decision`], and how the link is used.
#[derive(Clone, Copy, Debug)]
struct Seen {
    excess: Nanos,
    sent: u64,
    used: bool,
    backlogged: bool,
    late: usize,
    counted: usize,
}

impl Adaptive {
    /// A controller for a link with this many reflectors, numbered from 0. Until there are answers
    /// the rate is the base rate.
    pub fn new(settings: Settings, reflectors: usize) -> Adaptive {
        Adaptive {
            settings,
            rate: settings.base().as_bit_s(),
            reflectors: vec![Reflector::default(); reflectors],
            usage: Usage::default(),
            now: 0,
            asked: None,
            changed: None,
            judged: None,
            heard: None,
            ever_heard: false,
            silent: None,
            episode: None,
            knee: None,
            resume: 0,
            again: false,
            notices: Vec::new(),
        }
    }

    /// By how much longer than usual an answer may take: the target, plus the time of one 1500-byte
    /// packet, which may be on the wire when the probe comes (cake-autorate adds this time as
    /// well).
    fn allowed(&self) -> Nanos {
        self.settings.target().saturating_add(Rate::bit_s(self.rate).time_for(1500))
    }

    /// True if what is sent delays nobody: at most an eighth of the rate is sent, and no packet
    /// waits.
    fn is_quiet(&self) -> bool {
        !self.usage.backlogged() && self.usage.sent().as_bit_s() <= self.rate / 8
    }

    /// The votes of the reflectors that are not dropped, in ascending order.
    fn votes(&self) -> Vec<Nanos> {
        let (now, late, target) = (self.now, self.episode.is_some(), self.settings.target());
        let vote = |reflector: &Reflector| reflector.vote(now, late, target);
        let counted = self.reflectors.iter().filter(|reflector| !reflector.is_dropped());
        let mut votes: Vec<Nanos> = counted.filter_map(vote).collect();
        votes.sort_unstable();
        votes
    }

    /// Judges the reflectors. One disagrees if it differs from the median by more than the target
    /// and by more than half the median (while the delay changes fast, votes of different age
    /// differ). A reflector is dropped only while three or more vote: of two, nobody knows which
    /// one is right.
    fn judge(&mut self) {
        let (now, late, target) = (self.now, self.episode.is_some(), self.settings.target());
        if self.judged.is_some_and(|at| now < at.saturating_add(JUDGE_EVERY)) {
            return;
        }
        self.judged = Some(now);
        let votes = self.votes();
        let (mut counted, Some(median)) = (votes.len(), middle(&votes)) else { return };
        for reflector in &mut self.reflectors {
            let Some(excess) = reflector.vote(now, late, target) else { continue };
            let (before, agrees) = (reflector.is_dropped(), excess.abs_diff(median) <= target.max(median / 2));
            if before || counted >= 3 {
                reflector.judge(agrees, counted >= 3);
            }
            counted -= usize::from(!before && reflector.is_dropped());
        }
    }

    /// Adds a notice for each reflector whose state has changed.
    fn tell(&mut self) {
        let now = self.now;
        for (at, reflector) in self.reflectors.iter_mut().enumerate() {
            if let Some(health) = reflector.news(now) {
                self.notices.push(Notice { at: now, what: Noticed::Reflector(at, health) });
            }
        }
    }

    /// Forgets what a long time without answers or calls has made uncertain.
    fn begin_again(&mut self) {
        self.usage.clear();
        (self.episode, self.knee, self.resume, self.again) = (None, None, 0, true);
    }

    /// Since when there has been no answer, and how long ago that is.
    fn silence(&mut self) -> (Nanos, Nanos) {
        let since = *self.heard.get_or_insert(self.now);
        (since, self.now.saturating_sub(since))
    }

    /// Decides without any votes.
    fn without_votes(&mut self, seen: Seen) -> Option<Decision> {
        let (since, silence) = self.silence();
        if silence < SILENT {
            return None;
        }
        if self.silent.is_none() {
            self.silent = Some(since);
            self.notices.push(Notice { at: self.now, what: Noticed::Silence });
        }
        if !self.may_change() {
            return None;
        }
        let seen = Seen { excess: silence, ..seen };
        if silence >= BLIND {
            return self.back_to_base(Reason::Blind, seen, true);
        }
        if self.ever_heard && seen.used {
            return self.cut(Reason::Silent, seen);
        }
        None
    }

    /// Cuts the rate, unless the last cut is less than [`CUT_EVERY`] ago, or already drains the
    /// queue.
    fn cut(&mut self, reason: Reason, seen: Seen) -> Option<Decision> {
        let now = self.now;
        let fresh = match &mut self.episode {
            None => true,
            Some(episode) => {
                if now < episode.at.saturating_add(CUT_EVERY) {
                    return None;
                }
                if seen.excess <= episode.excess - episode.excess / 16 {
                    episode.fell = episode.fell.max(self.rate);
                }
                let drains = seen.excess <= episode.excess - episode.excess / 8;
                (episode.at, episode.excess) = (now, seen.excess);
                if drains {
                    return None;
                }
                false
            }
        };
        // The cut is taken from what the link sends, but from at least half its rate: what it sends
        // is measured over half a second, in which it may have paused.
        let begin = seen.sent.clamp(self.rate / 2, self.rate);
        if fresh {
            self.episode = Some(Episode { at: now, excess: seen.excess, fell: 0 });
            self.knee = Some((begin, now));
        }
        let over = u128::from(seen.excess.saturating_sub(self.allowed()));
        let thousandths = (100 + 100 * over / u128::from(self.settings.target())).min(500);
        let after = begin - part(begin, thousandths, 1000);
        self.change(after, reason, seen)
    }

    /// Raises the rate.
    fn raise(&mut self, seen: Seen) -> Option<Decision> {
        let (rate, target) = (self.rate, self.settings.target());
        let step = if seen.excess <= target / 4 { rate / 16 } else { rate / 64 };
        // The queue became shorter at the rate `resume`, so the line carries that rate.
        let mut after = rate.saturating_add(step.max(1)).max(std::mem::take(&mut self.resume));
        if self.knee.is_some_and(|(_, at)| self.now >= at.saturating_add(KNEE_FOR)) {
            self.knee = None;
        }
        if let Some((knee, _)) = self.knee {
            // `below` is rounded as rates are, so that a rate which stopped there counts as having
            // reached it.
            let (below, above) = (whole(knee - knee / 16), knee.saturating_add(knee / 16));
            if rate >= above {
                self.knee = None;
            } else if rate >= below {
                after = rate.saturating_add((rate / 64).max(1));
            } else {
                after = after.min(below);
            }
        }
        self.change(after, Reason::Used, seen)
    }

    /// Moves the rate towards the base by a 64th, at most once a second. `may_rise`: whether it may
    /// also rise.
    fn back_to_base(&mut self, reason: Reason, seen: Seen, may_rise: bool) -> Option<Decision> {
        if self.changed.is_some_and(|at| self.now < at.saturating_add(REST_EVERY)) {
            return None;
        }
        let (rate, base) = (self.rate, self.settings.base().as_bit_s());
        let step = (rate / 64).max(1);
        if rate > base {
            self.change((rate - step).max(base), reason, seen)
        } else if may_rise {
            self.change(rate.saturating_add(step).min(base), reason, seen)
        } else {
            None
        }
    }

    fn may_change(&self) -> bool {
        self.changed.is_none_or(|at| self.now >= at.saturating_add(LEAST_GAP))
    }

    /// Sets the rate, within the bounds. `None` if the rate stays the same.
    fn change(&mut self, after: u64, reason: Reason, seen: Seen) -> Option<Decision> {
        let (from, to) = (self.settings.from().as_bit_s(), self.settings.to().as_bit_s());
        let (before, after) = (self.rate, whole(after).clamp(from, to));
        if after == before {
            return None;
        }
        (self.rate, self.changed) = (after, Some(self.now));
        Some(Decision {
            at: self.now,
            before: Rate::bit_s(before),
            after: Rate::bit_s(after),
            reason,
            excess: seen.excess,
            sent: Rate::bit_s(seen.sent),
            late: seen.late,
            counted: seen.counted,
        })
    }
}

impl Controller for Adaptive {
    fn probed(&mut self, at: Nanos, reflector: usize) {
        self.now = self.now.max(at);
        if let Some(reflector) = self.reflectors.get_mut(reflector) {
            reflector.probed(self.now);
        }
    }

    fn heard(&mut self, sample: Sample) {
        self.now = self.now.max(sample.at);
        let rise = if self.is_quiet() {
            RISE_QUIET
        } else if self.rate <= self.settings.from().as_bit_s() {
            RISE_LOWEST
        } else {
            RISE
        };
        let Some(reflector) = self.reflectors.get_mut(sample.reflector) else { return };
        match sample.answer {
            Answer::After(delay) => {
                reflector.answered(self.now, sample.sent, delay, rise);
                if !reflector.is_dropped() {
                    (self.heard, self.ever_heard) = (Some(self.now), true);
                }
            }
            Answer::Lost => reflector.lost(sample.sent),
        }
    }

    fn decide(&mut self, load: Load) -> Option<Decision> {
        self.now = self.now.max(load.at);
        let now = self.now;
        if self.asked.replace(now).is_some_and(|last| now - last >= BLIND) {
            // The process was stopped: nothing was measured, and the line may be another one.
            self.reflectors.iter_mut().for_each(Reflector::forget_answers);
            self.heard = Some(now);
            self.begin_again();
        }
        self.usage.read(Load { at: now, ..load });
        self.judge();
        self.tell();
        let votes = self.votes();
        let (sent, backlogged) = (self.usage.sent().as_bit_s(), self.usage.backlogged());
        let (allowed, target) = (self.allowed(), self.settings.target());
        // Three quarters of the rate are a high load (cake-autorate: `high_load_thr`, 0.75).
        let used = backlogged || sent >= self.rate - self.rate / 4;
        let late = votes.iter().filter(|vote| **vote > allowed).count();
        let excess = middle(&votes).unwrap_or(0);
        let seen = Seen { excess, sent, used, backlogged, late, counted: votes.len() };
        // Overdue probes vote only for a second. After that they may as well be filtered.
        if votes.is_empty() || self.silence().1 >= SILENT {
            return self.without_votes(seen);
        }
        if let Some(since) = self.silent.take() {
            let after = now.saturating_sub(since);
            self.notices.push(Notice { at: now, what: Noticed::Answers(after) });
            if after >= BLIND {
                self.begin_again();
            }
        }
        let calm = excess <= target / 2;
        if calm && let Some(episode) = self.episode.take() {
            self.resume = episode.fell;
        }
        if let Some(episode) = self.episode.as_mut().filter(|_| excess <= allowed) {
            // If answers become late once more, their delay is compared with this one, and not with
            // that at the last cut.
            episode.excess = episode.excess.min(excess);
        }
        if !self.may_change() {
            return None;
        }
        if std::mem::take(&mut self.again) && self.rate > self.settings.base().as_bit_s() {
            return self.change(self.settings.base().as_bit_s(), Reason::Again, seen);
        }
        // A link that sends less than the lowest rate, and in which nothing waits, does not cause
        // the delay: no rate within the bounds would make it send less.
        let ours = seen.backlogged || sent >= self.settings.from().as_bit_s();
        if excess > allowed && ours {
            self.cut(Reason::Late, seen)
        } else if !used {
            self.resume = 0;
            self.back_to_base(Reason::Unused, seen, calm)
        } else if calm && self.heard.is_some_and(|at| now <= at.saturating_add(RECENT)) {
            self.raise(seen)
        } else {
            None
        }
    }

    fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn rate(&self) -> Rate {
        Rate::bit_s(self.rate)
    }
}

/// The median of sorted votes. If two are in the middle, it is the lower one, so that a cut needs a
/// majority.
fn middle(votes: &[Nanos]) -> Option<Nanos> {
    votes.get(votes.len().checked_sub(1)? / 2).copied()
}

/// A rate in whole kbit/s, rounded down, which is easier to read in a log. A rate of less than 1
/// Mbit/s stays as it is.
fn whole(rate: u64) -> u64 {
    if rate >= 1_000_000 { rate - rate % 1000 } else { rate }
}

/// `numerator / denominator` of a rate, rounded down.
fn part(rate: u64, numerator: u128, denominator: u128) -> u64 {
    u64::try_from(u128::from(rate) * numerator / denominator).unwrap_or(u64::MAX)
}
