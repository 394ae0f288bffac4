//! What the classes did, in bounded memory: second by second for five minutes, and in quarters of a
//! minute for six hours.
//!
//! It is kept by time, not by class: a [`Slice`] for each second and one for each 15 seconds, with
//! the classes that did something. So an idle class takes nothing, and the oldest slice is dropped
//! in one step. 10,000 busy classes take some 200 kB a second. When the memory limit is reached,
//! the oldest are dropped in this order: seconds older than a minute, then quarters, then the other
//! seconds.
//!
//! Classes are numbers there; [`renumber`](History::renumber) changes them to the numbers of
//! another policy. [`records`](crate::records) keeps it beyond the process that watches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Nanos;

pub use crate::slice::{Point, Slice, SliceRef};
use crate::slices::Slices;

/// Seconds that are kept.
pub const SECONDS: usize = 300;
/// Seconds in a coarse slice.
pub const QUARTER: u32 = 15;
/// Coarse slices that are kept: six hours.
pub const QUARTERS: usize = 1440;
/// The latest seconds, which are dropped only after all quarters: a view of a minute needs them.
const MINUTE: usize = 60;

/// The history of a link.
#[derive(Clone, Debug)]
pub struct History {
    /// Names of the classes, by number.
    names: Vec<String>,
    /// Bytes that it may take.
    limit: usize,
    seconds: Slices,
    quarters: Slices,
    /// How many of the latest seconds are in no quarter yet.
    pending: usize,
}

impl History {
    /// An empty history of classes with these names. It takes at most `limit` bytes, and up to an
    /// eighth and 64 kB more that are empty, but always keeps the last second.
    pub fn new(names: Vec<String>, limit: usize) -> History {
        History { names, limit, seconds: Slices::default(), quarters: Slices::default(), pending: 0 }
    }

    /// Names of the classes, by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Adds a second. It must begin where the last one ended, or later.
    pub fn push_second(&mut self, slice: &Slice) {
        self.seconds.push_back(slice.view());
        self.pending += 1;
        self.trim();
    }

    /// Makes a quarter of a minute of the seconds that are in no quarter yet. These are [`QUARTER`]
    /// seconds or, if an earlier process ended in between, some more. `times` has the 50th and 99th
    /// percentiles of classes over this time; they cannot be computed from those of the seconds.
    pub fn push_quarter(&mut self, times: &HashMap<ClassId, (Nanos, Nanos)>) {
        let first = self.seconds.len().saturating_sub(std::mem::take(&mut self.pending));
        let parts = || self.seconds.iter().skip(first);
        let (Some(begin), Some(end)) = (parts().next(), parts().next_back()) else { return };
        let mut sums: BTreeMap<ClassId, Point> = BTreeMap::new();
        for (class, point) in parts().flat_map(SliceRef::points) {
            sums.entry(class).or_default().add(&point);
        }
        for (class, sum) in &mut sums {
            (sum.p50, sum.p99) = times.get(class).copied().unwrap_or_default();
        }
        let seconds = parts().fold(0, |sum: u32, part| sum.saturating_add(part.seconds));
        let lent = parts().fold(0, |sum: u64, part| sum.saturating_add(part.lent_by_idle));
        let mut slice = Slice::new(begin.from, end.to, seconds, sums);
        slice.lent_by_idle = slice.lent_by_idle.saturating_add(lent);
        slice.rate_bit_s = parts().map(|part| part.rate_bit_s).filter(|rate| *rate > 0).min().unwrap_or(0);
        self.quarters.push_back(slice.view());
        self.trim();
    }

    /// Drops what is too old, and what exceeds the memory limit.
    fn trim(&mut self) {
        let over = |history: &History, least: usize| history.seconds.len() > least && history.memory() > history.limit;
        while self.seconds.len() > SECONDS || over(self, MINUTE) {
            self.seconds.pop_front();
        }
        while self.quarters.len() > QUARTERS || self.memory() > self.limit && self.quarters.len() > 0 {
            self.quarters.pop_front();
        }
        while over(self, 1) {
            self.seconds.pop_front();
        }
    }

    /// The slices of seconds, the oldest first.
    pub fn seconds(&self) -> impl DoubleEndedIterator<Item = SliceRef<'_>> + ExactSizeIterator {
        self.seconds.iter()
    }

    /// The slices of quarters of a minute, the oldest first.
    pub fn quarters(&self) -> impl DoubleEndedIterator<Item = SliceRef<'_>> + ExactSizeIterator {
        self.quarters.iter()
    }

    /// The last `seconds` seconds, or as many as there are, the oldest first.
    pub fn last(&self, seconds: usize) -> impl Iterator<Item = SliceRef<'_>> {
        self.seconds.iter().skip(self.seconds.len().saturating_sub(seconds))
    }

    /// The slices that overlap a time, the oldest first. Quarters are used up to the one that has
    /// the oldest second, which may begin before it; then seconds. So no time is missing, and none
    /// is there twice.
    pub fn slices(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = SliceRef<'_>> {
        let fine = self.seconds.front().map_or(Nanos::MAX, |slice| slice.from);
        let coarse = self.quarters.iter().filter(move |slice| slice.from < fine);
        let until = self.quarters.iter().rev().find(|slice| slice.from < fine).map_or(0, |slice| slice.to);
        let seconds = self.seconds.iter().filter(move |slice| slice.from >= until);
        coarse.chain(seconds).filter(move |slice| slice.to > from && slice.from < to)
    }

    /// What one class's own packets did in each of these [`slices`](History::slices): beginning,
    /// end, seconds, and its point.
    pub fn of_class(&self, class: ClassId, from: Nanos, to: Nanos) -> impl Iterator<Item = (Nanos, Nanos, u32, Point)> {
        let point = move |slice: SliceRef<'_>| slice.point(class).unwrap_or_default();
        self.slices(from, to).map(move |slice| (slice.from, slice.to, slice.seconds, point(slice)))
    }

    /// Bytes of memory that the slices take.
    pub fn memory(&self) -> usize {
        self.seconds.memory() + self.quarters.memory()
    }

    /// A history of slices that an earlier process has kept, each with the names of the classes as
    /// they were then, the oldest first. They get the numbers of `names`. Seconds that were in no
    /// quarter yet become one, with the times of the worst of them: nobody knows how long nothing
    /// was seen after them.
    pub fn restored(
        names: Vec<String>,
        limit: usize,
        seconds: Vec<(Slice, Arc<[String]>)>,
        quarters: Vec<(Slice, Arc<[String]>)>,
    ) -> History {
        let mut history = History::new(names, limit);
        let numbered = |slices: Vec<(Slice, Arc<[String]>)>| {
            let mut known: Option<(Arc<[String]>, Vec<ClassId>)> = None;
            let mut all = Slices::default();
            for (slice, old) in slices {
                let (_, new) = match known.take().filter(|(of, _)| Arc::ptr_eq(of, &old)) {
                    Some(same) => known.insert(same),
                    None => known.insert((old.clone(), new_numbers(&old, &history.names))),
                };
                match is_same(new) {
                    true => all.push_back(slice.view()),
                    false => all.push_back(slice.view().renumbered(new).view()),
                }
            }
            all
        };
        (history.seconds, history.quarters) = (numbered(seconds), numbered(quarters));
        let until = history.quarters.back().map_or(0, |quarter| quarter.to);
        history.pending = history.seconds.iter().filter(|second| second.from >= until).count();
        let mut worst: HashMap<ClassId, (Nanos, Nanos)> = HashMap::new();
        for (class, point) in history.last(history.pending).flat_map(SliceRef::points) {
            let times = worst.entry(class).or_default();
            if point.p99 >= times.1 {
                *times = (point.p50, point.p99);
            }
        }
        history.push_quarter(&worst);
        history.trim();
        history
    }

    /// Gives the points the numbers of other classes, by name, and sets the memory limit. What a
    /// class did that no longer exists is added to the link itself, as in the engine's counters.
    pub fn renumber(&mut self, names: Vec<String>, limit: usize) {
        let new = new_numbers(&self.names, &names);
        if !is_same(&new) {
            self.seconds.renumber(&new);
            self.quarters.renumber(&new);
        }
        (self.names, self.limit) = (names, limit);
        self.trim();
    }
}

/// By old number: the class's number among the new names, or that of the link if it is gone. A
/// number with an empty name belonged to no class, so it stays.
fn new_numbers(old: &[String], new: &[String]) -> Vec<ClassId> {
    let numbers: HashMap<&str, ClassId> = new.iter().zip(0..).map(|(name, at)| (name.as_str(), at)).collect();
    let number = |(name, at): (&String, ClassId)| match name.is_empty() {
        true => at,
        false => numbers.get(name.as_str()).copied().unwrap_or(ROOT),
    };
    old.iter().zip(0..).map(number).collect()
}

/// Whether classes keep their numbers.
fn is_same(new: &[ClassId]) -> bool {
    new.iter().zip(0..).all(|(new, old): (&ClassId, ClassId)| *new == old)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn point(bytes: u64) -> Point {
        Point { sent_packets: 1, sent_bytes: bytes, wire_bytes: bytes + 38, p50: 100, p99: 200, ..Point::default() }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    /// Class 1 sends n bytes in second n. Class 2 sends one byte in every tenth second.
    fn filled(seconds: u64, limit: usize) -> History {
        let mut history = History::new(names(&["link", "a", "b"]), limit);
        for n in 0..seconds {
            let other = (n % 10 == 0).then(|| (2, point(1)));
            history.push_second(&Slice::new(n * S, (n + 1) * S, 1, [(1, point(n))].into_iter().chain(other)));
            if n % 15 == 14 {
                history.push_quarter(&HashMap::from([(1, (7, 9))]));
            }
        }
        history
    }

    #[test]
    fn sums_are_exact_at_both_grains() {
        let history = filled(7 * 3600, usize::MAX);
        assert_eq!((history.seconds().len(), history.quarters().len()), (300, 1440));
        // Six hours end with second 25,199 and begin with 3,600.
        let of_one: u64 = history.quarters().filter_map(|slice| slice.point(1)).map(|point| point.sent_bytes).sum();
        assert_eq!(of_one, (3600..25_200).sum::<u64>());
        let of_two: u64 = history.quarters().filter_map(|slice| slice.point(2)).map(|point| point.sent_packets).sum();
        assert_eq!(of_two, 2160);
        let last = history.quarters().next_back().unwrap();
        assert_eq!((last.from, last.to, last.seconds), (25_185 * S, 25_200 * S, 15));
        assert_eq!(last.point(1).map(|point| (point.p50, point.p99)), Some((7, 9)));
        // Six hours of one class: quarters before the last five minutes, then seconds.
        let of_class: Vec<_> = history.of_class(1, 0, Nanos::MAX).collect();
        assert_eq!(of_class.len(), 1440 - 20 + 300);
        assert_eq!(of_class.iter().map(|(_, _, _, point)| point.sent_bytes).sum::<u64>(), of_one);
        assert!(of_class.windows(2).all(|pair| pair[0].1 == pair[1].0));
        assert_eq!(history.of_class(1, 25_199 * S, 25_200 * S).map(|(_, _, _, p)| p.sent_bytes).sum::<u64>(), 25_199);
        // Seven seconds later the oldest second, 24,907, lies in the quarter that begins at 24,900.
        let later = filled(7 * 3600 + 7, usize::MAX);
        let of_class: Vec<_> = later.of_class(1, 0, Nanos::MAX).collect();
        assert!(of_class.windows(2).all(|pair| pair[0].1 == pair[1].0));
        let sum: u64 = of_class.iter().map(|(_, _, _, point)| point.sent_bytes).sum();
        assert_eq!(sum, (3600..25_207).sum::<u64>());
    }

    #[test]
    fn a_quarter_has_the_lowest_rate_of_its_seconds() {
        let mut history = History::new(names(&["link"]), usize::MAX);
        for rates in [[0, 100, 0], [100, 10, 100], [0, 0, 0]] {
            for rate_bit_s in rates {
                let mut slice = Slice::new(0, S, 1, []);
                slice.rate_bit_s = rate_bit_s;
                history.push_second(&slice);
            }
            history.push_quarter(&HashMap::new());
        }
        assert_eq!(history.quarters().map(|slice| slice.rate_bit_s).collect::<Vec<_>>(), [100, 10, 0]);
    }

    #[test]
    fn the_oldest_detail_goes_first() {
        let all = filled(3000, usize::MAX).memory();
        for limit in [all - 1, all / 2, all / 8, 3000, 0] {
            let history = filled(3000, limit);
            let (seconds, quarters) = (history.seconds().len(), history.quarters().len());
            assert!(history.memory() <= limit || seconds == 1, "{} of {limit}", history.memory());
            // A dropped slice may have left room for a few more.
            assert!(quarters == 200 || seconds < 64, "{limit}: {quarters} quarters and {seconds} seconds");
            assert!(seconds >= 60 || quarters <= 1, "{limit}: {quarters} quarters and {seconds} seconds");
            assert_eq!(history.seconds().next_back().unwrap().to, 3000 * S);
        }
    }

    #[test]
    fn kept_slices_make_a_history_again() {
        let history = filled(40, 1 << 20);
        let old: Arc<[String]> = history.names().to_vec().into();
        let with = |slices: Vec<Slice>| slices.into_iter().map(|slice| (slice, old.clone())).collect::<Vec<_>>();
        let back = |slice: SliceRef<'_>| Slice::decoded(&slice.encoded()).unwrap();
        let (seconds, quarters) = (history.seconds().map(back).collect(), history.quarters().map(back).collect());
        // a and b have changed places, and between them is a number that no class has.
        let new = names(&["link", "b", "", "a"]);
        let mut kept = History::restored(new, 1 << 20, with(seconds), with(quarters));
        let sums = |history: &History, class: ClassId| -> u64 {
            history.of_class(class, 0, Nanos::MAX).map(|(_, _, _, point)| point.sent_bytes).sum()
        };
        assert_eq!([0, 1, 2, 3].map(|class| sums(&kept, class)), [0, 4, 0, (0..40).sum()]);
        // Ten seconds were in no quarter yet; those of the next process begin another one.
        assert_eq!(kept.quarters().map(|slice| slice.seconds).collect::<Vec<_>>(), [15, 15, 10]);
        kept.push_second(&Slice::new(50 * S, 51 * S, 1, [(1, point(5))]));
        kept.push_quarter(&HashMap::new());
        let quarters: Vec<_> = kept.quarters().map(|slice| (slice.from / S, slice.to / S, slice.seconds)).collect();
        assert_eq!(quarters, [(0, 15, 15), (15, 30, 15), (30, 40, 10), (50, 51, 1)]);
        assert_eq!(kept.quarters().nth(2).and_then(|slice| slice.point(3)).map(|point| point.p99), Some(200));
    }

    #[test]
    fn it_outlives_its_policy() {
        let history = filled(40, 1 << 20);
        let mut back = history.clone();
        // b is now class 1, and a is gone.
        back.renumber(names(&["link", "b"]), 1 << 20);
        let sums = |history: &History, class: ClassId| -> u64 {
            history.of_class(class, 0, Nanos::MAX).map(|(_, _, _, point)| point.sent_bytes).sum()
        };
        assert_eq!((sums(&back, 1), sums(&back, ROOT)), (sums(&history, 2), sums(&history, 1)));
        assert_eq!((sums(&history, 2), sums(&history, 1)), (4, (0..40).sum()));
        assert_eq!(back.memory(), history.memory(), "a class took the place of each");
    }
}
