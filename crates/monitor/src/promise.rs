//! Whether classes get the rates that they are guaranteed.
//!
//! A class can claim its guarantee only while packets of it wait. So the loop follows for how long
//! they do, without a break ([`Backlog`]); and outside of the loop, what a class got in a second is
//! compared with what it could claim in it ([`Promises`]).
//!
//! A guarantee is a rate after a latency (a latency-rate server; docs/promises.md). So the first
//! tenth of a second of each time without a break claims nothing, and a class may lag behind by
//! what its rate brings in its latency. What it lags behind further, it has missed.

use std::collections::HashMap;

use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, Rate};

/// From when on packets that wait claim the rate of their class.
pub const LAG: Nanos = 100_000_000;

/// Follows for how long packets of a class wait without a break: in the loop, in a few operations
/// for each packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// From when on the present time without a break claims the rate: [`LAG`] after it began.
    claims: Nanos,
    /// Up to when it is known.
    until: Nanos,
    /// When packets were last seen waiting by [`take`](Backlog::take); 0: there were none.
    seen: Nanos,
    /// What was counted since the last [`take`](Backlog::take).
    time: Nanos,
}

impl Default for Backlog {
    /// Nothing has waited since time 0.
    fn default() -> Backlog {
        Backlog { claims: LAG, until: 0, seen: 0, time: 0 }
    }
}

impl Backlog {
    /// A packet leaves that has waited so long. Times do not decrease.
    #[inline]
    pub fn leaves(&mut self, now: Nanos, waited: Nanos) {
        if waited < now.saturating_sub(self.until) {
            // It came after the last one had left: nothing waited in between.
            self.begin(now.saturating_sub(waited));
        }
        self.wait(now);
    }

    /// A time without a break begins.
    #[inline]
    fn begin(&mut self, at: Nanos) {
        (self.claims, self.until) = (at.saturating_add(LAG), at);
    }

    /// Something has waited until now.
    #[inline]
    fn wait(&mut self, now: Nanos) {
        self.time += now.saturating_sub(self.claims.max(self.until));
        self.until = self.until.max(now);
    }

    /// For how long packets have waited since this was asked last, beyond the first [`LAG`] of each
    /// time without a break. `waits`: whether any wait now. So a class of which no packet leaves at
    /// all is seen as well.
    pub fn take(&mut self, now: Nanos, waits: bool) -> Nanos {
        if waits && self.seen > 0 && self.seen >= self.until {
            // None has left since they were seen, so these have waited all the time.
            if self.seen > self.until {
                self.begin(self.seen);
            }
            self.wait(now);
        }
        self.seen = if waits { now } else { 0 };
        std::mem::take(&mut self.time)
    }
}

/// What a class could claim in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// For how long its packets waited, as [`Backlog`] counts it.
    pub backlogged: Nanos,
    /// The rate that it is guaranteed.
    pub rate: Rate,
    /// How late it may get it; `None` if that is not promised.
    pub latency: Option<Nanos>,
}

/// How much of a claim was kept, in charged bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What the class could claim.
    pub promised: u64,
    /// What of it it did not get.
    pub missed: u64,
}

/// Compares what classes got with what they could claim, second by second.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// By how much classes lag behind, within what they may.
    behind: HashMap<ClassId, u64>,
}

impl Promises {
    /// What came of a claim in a second of this length, in which the class got so many bytes.
    pub fn second(&mut self, class: ClassId, length: Nanos, claim: Claim, got: u64) -> Kept {
        let Claim { backlogged, rate, latency } = claim;
        let promised = rate.bytes_in(backlogged);
        // Where packets did not wait for the whole second, another time without a break began,
        // which claims nothing of an earlier one.
        let whole = u128::from(backlogged) * 100 >= u128::from(length) * 99;
        let before = self.behind.remove(&class).filter(|_| whole).unwrap_or(0);
        let behind = before.saturating_add(promised).saturating_sub(got);
        let allowed = rate.bytes_in(latency.unwrap_or(0).max(LAG));
        let missed = behind.saturating_sub(allowed);
        if behind > missed {
            self.behind.insert(class, behind - missed);
        }
        Kept { promised, missed }
    }

    /// The class has another guarantee from now on.
    pub fn forget(&mut self, class: ClassId) {
        self.behind.remove(&class);
    }

    /// Classes have other numbers from now on: `new` has them by old number.
    pub fn renumber(&mut self, new: &[Option<ClassId>]) {
        let moved = |(class, behind): (ClassId, u64)| Some((new.get(class as usize).copied().flatten()?, behind));
        self.behind = std::mem::take(&mut self.behind).into_iter().filter_map(moved).collect();
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::units::SECOND;

    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn time_without_a_break_counts_from_its_second_tenth_on() {
        let mut backlog = Backlog::default();
        // Packets that come each 10 ms and wait for 5 ms: never for long.
        for packet in 1..100 {
            backlog.leaves(packet * 10 * MS + 5 * MS, 5 * MS);
        }
        assert_eq!(backlog.take(SECOND, false), 0);
        // From 2 s on one always waits, for 30 ms, until 2.5 s: 0.4 s beyond the first tenth. The
        // first comes at 2 s and leaves at 2.03 s.
        for packet in 0..48 {
            backlog.leaves(2 * SECOND + 30 * MS + packet * 10 * MS, 30 * MS);
        }
        assert_eq!(backlog.take(3 * SECOND, false), 400 * MS);
        // Half of the time is counted in one second, and half in the next.
        backlog.leaves(4 * SECOND, 0);
        backlog.leaves(4 * SECOND + 400 * MS, 400 * MS);
        assert_eq!(backlog.take(4 * SECOND + 450 * MS, true), 300 * MS);
        backlog.leaves(4 * SECOND + 600 * MS, 300 * MS);
        assert_eq!(backlog.take(5 * SECOND, false), 200 * MS);
    }

    #[test]
    fn who_never_gets_anything_is_seen_as_well() {
        let mut backlog = Backlog::default();
        backlog.leaves(SECOND, 0);
        // Something came between 1 s and 2 s, and waits from then on.
        assert_eq!(backlog.take(2 * SECOND, true), 0);
        assert_eq!(backlog.take(3 * SECOND, true), 900 * MS);
        assert_eq!(backlog.take(4 * SECOND, true), SECOND);
        // When it leaves at last, nothing is counted twice.
        backlog.leaves(4 * SECOND + 500 * MS, 3 * SECOND);
        assert_eq!(backlog.take(5 * SECOND, false), 500 * MS);
    }

    /// A class of 8 Mbit/s, 1,000,000 bytes a second, that waits all the time.
    #[test]
    fn lags_are_allowed_and_losses_are_not() {
        let claim = |backlogged| Claim { backlogged, rate: Rate::mbit_s(8), latency: Some(10 * MS) };
        let mut promises = Promises::default();
        let mut seconds = |got: &[u64], claim: Claim| -> (u64, u64) {
            promises.forget(1);
            let kept = got.iter().map(|got| promises.second(1, SECOND, claim, *got));
            kept.fold((0, 0), |(promised, missed), kept| (promised + kept.promised, missed + kept.missed))
        };
        assert_eq!(seconds(&[1_000_000, 999_000, 1_001_000], claim(SECOND)), (3_000_000, 0));
        // A tenth of a second's bytes, 100,000, may be late once, but not again and again.
        assert_eq!(seconds(&[900_000, 1_000_000, 1_000_000], claim(SECOND)), (3_000_000, 0));
        assert_eq!(seconds(&[900_000, 900_000, 900_000], claim(SECOND)), (3_000_000, 200_000));
        // What it got beyond its guarantee in one second does not stand for another one.
        assert_eq!(seconds(&[5_000_000, 500_000], claim(SECOND)), (2_000_000, 400_000));
        // It waited for half of each second: what it lagged behind in one is no part of the next.
        assert_eq!(seconds(&[420_000, 420_000], claim(SECOND / 2)), (1_000_000, 0));
        // It got nothing at all.
        assert_eq!(seconds(&[0, 0], claim(SECOND)), (2_000_000, 1_900_000));
        // It never waited.
        assert_eq!(seconds(&[0, 10], claim(0)), (0, 0));
        // A latency of 400 ms allows as much.
        let slow = Claim { latency: Some(400 * MS), ..claim(SECOND) };
        assert_eq!(seconds(&[600_000, 1_000_000], slow), (2_000_000, 0));
        // It lags behind by a tenth of a second, and has another number then.
        promises.forget(1);
        assert_eq!(promises.second(1, SECOND, claim(SECOND), 900_000).missed, 0);
        promises.renumber(&[None, Some(7)]);
        assert_eq!(promises.second(1, SECOND, claim(SECOND), 900_000).missed, 0);
        assert_eq!(promises.second(7, SECOND, claim(SECOND), 900_000).missed, 100_000);
    }
}
