//! What the classes of a link did: seconds for five minutes and quarters of a minute for six hours,
//! in bounded memory ([`altq_monitor::history`]). What altq has kept comes first ([`Earlier`]).

use std::collections::HashMap;
use std::sync::Arc;

use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, SECOND};
use altq_monitor::frame::rate;
use altq_monitor::history::{History, Point, QUARTER, Slice, SliceRef};
use serde::Serialize;

use crate::earlier::{Earlier, Stretch, worst_of_below};
use crate::frame::Classes;
use crate::parts::Parts;
use crate::watch::Step;

/// The most classes below the one that is asked for that get a line of their own. The others are
/// only in its sums.
pub const PARTS: usize = 9;
/// The most classes that are gone whose names and points are kept.
const GONE: usize = 1000;

/// The history of a link.
#[derive(Debug)]
pub struct Past {
    history: History,
    limit: usize,
    /// The number of each class in the history, by name. Numbers stay when classes come and go, so
    /// that the history need not be rewritten. The link itself is 0 and has no name here.
    numbers: HashMap<String, ClassId>,
    /// The names by number; the first is empty.
    names: Vec<String>,
    /// The latest classes, and their numbers in the history.
    latest: Option<(Arc<Classes>, Vec<ClassId>)>,
    /// By class: the percentiles of the worst of the seconds that are in no quarter yet.
    worst: HashMap<ClassId, (Nanos, Nanos)>,
    /// When these seconds begin and end.
    pending: Option<(Nanos, Nanos)>,
    /// The wall clock minus the loop's clock, in ns.
    ahead: i128,
}

/// What classes did over time: the answer to `/history.json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    schema: &'static str,
    link: String,
    class: String,
    /// The end of each step, in ms since 1970.
    unix_ms: Vec<u64>,
    /// How long each step is.
    step_ms: Vec<u64>,
    /// First the class itself, with all classes below it; then those directly below it that have
    /// sent most.
    series: Vec<Line>,
}

/// What a class did in each step, with all classes below it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Line {
    class: String,
    got_bit_s: Vec<u64>,
    p50_ns: Vec<Nanos>,
    p99_ns: Vec<Nanos>,
    drops: Vec<u64>,
    marks: Vec<u64>,
    backlog_bytes: Vec<u64>,
}

impl Past {
    /// An empty history. It takes at most `limit` bytes, but always keeps the last second.
    pub fn new(limit: usize) -> Past {
        Past {
            history: History::new(vec![String::new()], limit),
            limit,
            numbers: HashMap::new(),
            names: vec![String::new()],
            latest: None,
            worst: HashMap::new(),
            pending: None,
            ahead: 0,
        }
    }

    /// A history that begins with what altq has kept, up to a moment by the loop's clock and by the
    /// wall clock. The rest is as for [`new`](Past::new).
    pub fn begun(limit: usize, classes: &Arc<Classes>, earlier: &Earlier, (until, unix_ns): (Nanos, u64)) -> Past {
        let mut past = Past::new(limit);
        past.ahead = i128::from(unix_ns) - i128::from(until);
        let numbers = past.number(classes);
        let mut quarters = earlier.stretches(&past.numbers, past.ahead, until);
        quarters.iter_mut().for_each(|slice| worst_of_below(&mut slice.points, classes, &numbers));
        // A quarter may have a second only, if altq was started anew then.
        let coarse = quarters.iter().rposition(|slice| slice.seconds > 1).map_or(0, |last| last + 1);
        let seconds = quarters.split_off(coarse);
        let names: Arc<[String]> = past.names.as_slice().into();
        let quarter = |of: Stretch| (Slice::new(of.from, of.to, of.seconds, of.points), names.clone());
        let quarters = quarters.into_iter().map(quarter).collect();
        past.history = History::restored(past.names.clone(), limit, Vec::new(), quarters);
        for second in seconds {
            past.turn(second.from);
            past.add(second.from, second.to, second.points);
        }
        past.latest = Some((classes.clone(), numbers));
        past
    }

    /// From now on it takes at most `limit` bytes.
    pub fn bound(&mut self, limit: usize) {
        if limit != self.limit {
            self.limit = limit;
            self.history.renumber(self.names.clone(), limit);
        }
    }

    /// Bytes that points take.
    pub fn memory(&self) -> usize {
        self.history.memory()
    }

    /// Adds a step, which ended at `unix_ns` by the wall clock.
    pub fn push(&mut self, classes: &Arc<Classes>, step: &Step, unix_ns: u64) {
        self.ahead = i128::from(unix_ns) - i128::from(step.to);
        self.turn(step.from);
        let numbers = self.number(classes);
        let mut points: Vec<(ClassId, Point)> = numbers.iter().copied().zip(step.points.iter().copied()).collect();
        points.sort_unstable_by_key(|(number, _)| *number);
        self.add(step.from, step.to, points);
        self.latest = Some((classes.clone(), numbers));
    }

    /// Ends the quarter if it is full, or if there is a gap before a second that begins then.
    fn turn(&mut self, from: Nanos) {
        let quarter = u64::from(QUARTER) * SECOND;
        if self.pending.is_some_and(|(begin, end)| end != from || end.saturating_sub(begin) >= quarter) {
            self.end_quarter();
        }
    }

    /// Adds what the classes did in a second, in the order of their numbers.
    fn add(&mut self, from: Nanos, to: Nanos, points: Vec<(ClassId, Point)>) {
        let begin = self.pending.map_or(from, |(begin, _)| begin);
        self.pending = Some((begin, to));
        for (number, point) in points.iter().filter(|(_, point)| point.p99 > 0) {
            let worst = self.worst.entry(*number).or_default();
            if point.p99 >= worst.1 {
                *worst = (point.p50, point.p99);
            }
        }
        self.history.push_second(&Slice::new(from, to, 1, points));
    }

    /// Makes a quarter of a minute of the seconds that are in no quarter yet. Its percentiles are
    /// those of its worst second, because those of the quarter cannot be computed from those of its
    /// seconds.
    fn end_quarter(&mut self) {
        self.history.push_quarter(&std::mem::take(&mut self.worst));
        self.pending = None;
    }

    /// The numbers of classes in the history. New ones get the next numbers.
    fn number(&mut self, classes: &Arc<Classes>) -> Vec<ClassId> {
        if let Some((latest, numbers)) = self.latest.take()
            && Arc::ptr_eq(&latest, classes)
        {
            return numbers;
        }
        let names = || classes.tree.classes().iter().skip(1).map(|class| class.name.as_str());
        let before = self.names.len();
        for name in names() {
            if !self.numbers.contains_key(name) {
                self.numbers.insert(name.to_owned(), self.names.len() as ClassId);
                self.names.push(name.to_owned());
            }
        }
        if self.names.len() > 2 * classes.tree.len() + GONE {
            // What classes did that are gone counts for the link.
            let there: HashMap<&str, ClassId> = names().zip(1..).collect();
            self.names = std::iter::once(String::new()).chain(names().map(str::to_owned)).collect();
            self.numbers = there.into_iter().map(|(name, number)| (name.to_owned(), number)).collect();
            self.worst.clear();
        }
        if self.names.len() != before || self.history.names().len() != self.names.len() {
            self.history.renumber(self.names.clone(), self.limit);
        }
        let number = |name: &str| self.numbers.get(name).copied().unwrap_or(ROOT);
        std::iter::once(ROOT).chain(names().map(number)).collect()
    }

    /// A time of the wall clock in ms as a time of the loop's clock.
    fn at(&self, unix_ms: u64) -> Nanos {
        let at = i128::from(unix_ms) * 1_000_000 - self.ahead;
        Nanos::try_from(at.max(0)).unwrap_or(Nanos::MAX)
    }

    /// A time of the loop's clock as a time of the wall clock in ms.
    fn unix_ms(&self, at: Nanos) -> u64 {
        u64::try_from((i128::from(at) + self.ahead) / 1_000_000).unwrap_or(0)
    }

    /// What a class of the latest classes, or the link itself, and the classes directly below it
    /// did between two moments, in ms since 1970. `None` if there is no such class.
    pub fn series(&self, link: &str, class: Option<&str>, (from, to): (u64, u64)) -> Option<Series> {
        let (classes, numbers) = self.latest.as_ref()?;
        let class = match class {
            None => ROOT,
            Some(name) => (0..).zip(classes.tree.classes()).find(|(_, class)| class.name == name)?.0,
        };
        let (from, to) = (self.at(from), self.at(to));
        let parts = Parts::of(classes, numbers, class, self.names.len());
        let mut bytes = vec![0_u64; classes.tree.len()];
        for (number, point) in self.history.slices(from, to).flat_map(SliceRef::points) {
            if let Some(sum) = parts.of_number(number).and_then(|part| bytes.get_mut(part as usize)) {
                *sum = sum.saturating_add(point.wire_bytes);
            }
        }
        let mut chosen: Vec<ClassId> = classes.tree.children(class).to_vec();
        chosen.retain(|child| bytes.get(*child as usize).is_some_and(|bytes| *bytes > 0));
        chosen.sort_by_key(|child| std::cmp::Reverse(bytes[*child as usize]));
        chosen.truncate(PARTS);
        chosen.insert(0, class);
        let name = |class: &ClassId| Line { class: classes.tree.name(*class).to_owned(), ..Line::default() };
        let mut series = Series {
            schema: "altq.web-history/1",
            link: link.to_owned(),
            class: classes.tree.name(class).to_owned(),
            unix_ms: Vec::new(),
            step_ms: Vec::new(),
            series: chosen.iter().map(name).collect(),
        };
        for slice in self.history.slices(from, to) {
            let mut sums = vec![Point::default(); chosen.len()];
            for (number, point) in slice.points() {
                let Some(part) = parts.of_number(number) else { continue };
                sums[0].add(&point);
                if let Some(at) = chosen.iter().skip(1).position(|child| *child == part) {
                    sums[at + 1].add(&point);
                }
                if let Some(at) = chosen.iter().position(|class| numbers.get(*class as usize) == Some(&number)) {
                    (sums[at].p50, sums[at].p99) = (point.p50, point.p99);
                }
            }
            series.add(slice, &sums, self.unix_ms(slice.to));
        }
        Some(series)
    }
}

impl Series {
    /// True if it has no steps.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.unix_ms.is_empty()
    }

    fn add(&mut self, slice: SliceRef<'_>, sums: &[Point], unix_ms: u64) {
        let time = slice.to.saturating_sub(slice.from);
        self.unix_ms.push(unix_ms);
        self.step_ms.push(time / 1_000_000);
        for (line, sum) in self.series.iter_mut().zip(sums) {
            line.got_bit_s.push(rate(sum.wire_bytes, time));
            line.p50_ns.push(sum.p50);
            line.p99_ns.push(sum.p99);
            line.drops.push(sum.dropped_packets);
            line.marks.push(sum.marked_packets);
            line.backlog_bytes.push(sum.waiting_bytes / u64::from(slice.seconds.max(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use altq_monitor::tree::{Class, Tree};

    use super::*;
    use crate::frame::More;

    fn classes(described: &[(&str, ClassId)]) -> Arc<Classes> {
        let class = |(name, parent): &(&str, ClassId)| Class {
            name: (*name).to_owned(),
            parent: *parent,
            asked: None,
            ceiling: None,
        };
        let tree = Tree::new(described.iter().map(class).collect()).unwrap();
        Arc::new(Classes { more: vec![More::default(); tree.len()], tree })
    }

    fn step(from: u64, to: u64, bytes: &[u64]) -> Step {
        let point = |bytes: &u64| Point {
            sent_packets: bytes / 100,
            sent_bytes: *bytes,
            wire_bytes: *bytes,
            dropped_packets: 1,
            waiting_bytes: 10,
            p50: 1000,
            p99: 256 * bytes,
            ..Point::default()
        };
        Step { from: from * SECOND, to: to * SECOND, points: bytes.iter().map(point).collect() }
    }

    /// The wall clock is 1000 s ahead of the loop's.
    const AHEAD: u64 = 1_000_000_000_000;

    fn push(past: &mut Past, classes: &Arc<Classes>, step: Step) {
        past.push(classes, &step, step.to + AHEAD);
    }

    fn all(past: &Past, class: &str) -> Series {
        past.series("wan", Some(class), (0, u64::MAX)).unwrap()
    }

    fn got(series: &Series) -> Vec<(&str, &[u64])> {
        series.series.iter().map(|line| (line.class.as_str(), line.got_bit_s.as_slice())).collect()
    }

    #[test]
    fn a_class_has_what_is_below_it() {
        let tree = classes(&[("wan", 0), ("a", 0), ("b", 0), ("a1", 1), ("a2", 1), ("wan", 0)]);
        let mut past = Past::new(1 << 20);
        push(&mut past, &tree, step(10, 11, &[5, 0, 30, 100, 300, 1]));
        push(&mut past, &tree, step(11, 13, &[0, 0, 0, 100, 0, 0]));
        // The link: 436 bytes in a second, then 100 in two.
        let link = all(&past, "wan");
        assert_eq!(got(&link), [("wan", &[3488, 400][..]), ("a", &[3200, 400]), ("b", &[240, 0]), ("wan", &[8, 0])]);
        assert_eq!(
            (link.unix_ms.as_slice(), link.step_ms.as_slice()),
            (&[1_011_000, 1_013_000][..], &[1000, 2000][..])
        );
        assert_eq!((link.series[0].drops[0], link.series[1].drops[0], link.series[1].backlog_bytes[0]), (6, 3, 30));
        // Percentiles are those that altq reports for the class: 256 ns for each byte here.
        assert_eq!((link.series[0].p99_ns[0], link.series[2].p99_ns[0], link.series[2].p50_ns[0]), (1280, 7680, 1000));
        let a = all(&past, "a");
        assert_eq!(got(&a), [("a", &[3200, 400][..]), ("a2", &[2400, 0]), ("a1", &[800, 400])]);
        let leaf = past.series("wan", Some("a1"), (1_011_000, 1_013_000)).unwrap();
        assert_eq!(got(&leaf), [("a1", &[400][..])]);
        assert_eq!(past.series("wan", Some("gone"), (0, 1)), None);
    }

    #[test]
    fn classes_come_and_go() {
        let mut past = Past::new(1 << 20);
        assert!(past.series("wan", None, (0, u64::MAX)).is_none());
        push(&mut past, &classes(&[("wan", 0), ("a", 0), ("b", 0)]), step(0, 1, &[0, 100, 200]));
        push(&mut past, &classes(&[("wan", 0), ("c", 0), ("b", 0)]), step(1, 2, &[0, 50, 25]));
        // What `a` did counts for the link now.
        let link = all(&past, "wan");
        assert_eq!(got(&link), [("wan", &[2400, 600][..]), ("b", &[1600, 200]), ("c", &[0, 400])]);
        // When `a` comes back, what it did counts for it again.
        push(&mut past, &classes(&[("wan", 0), ("a", 0)]), step(2, 3, &[0, 1]));
        assert_eq!(got(&all(&past, "a")), [("a", &[800, 0, 8][..])]);
        // Many classes that exist for a second each do not make it grow without end.
        for n in 0..5000_u64 {
            let name = format!("s{n}");
            push(&mut past, &classes(&[("wan", 0), (&name, 0)]), step(3 + n, 4 + n, &[0, 8]));
        }
        assert!(past.names.len() <= GONE + 6 && past.numbers.len() <= past.names.len(), "{}", past.names.len());
        let link = all(&past, "wan");
        // 5000 seconds: quarters, and the last five minutes as seconds.
        assert!(got(&link)[0].1.iter().rev().take(280).all(|rate| *rate == 64), "{:?}", got(&link)[0]);
        assert!(got(&link)[0].1.iter().all(|rate| *rate > 0));
    }

    #[test]
    fn quarters_follow_and_holes_stay_holes() {
        let tree = classes(&[("wan", 0), ("a", 0)]);
        let mut past = Past::new(1 << 20);
        for n in 0..400 {
            // The tenth second is the worst of its quarter.
            push(&mut past, &tree, step(n, n + 1, &[0, if n % 15 == 10 { 100 } else { 10 }]));
        }
        // Nothing for a hundred seconds.
        for n in 500..520 {
            push(&mut past, &tree, step(n, n + 1, &[0, 10]));
        }
        let series = all(&past, "a");
        let ends = &series.unix_ms;
        assert!(ends.windows(2).all(|pair| pair[0] < pair[1]), "{ends:?}");
        let first = (series.step_ms[0], series.series[0].got_bit_s[0], series.series[0].p99_ns[0]);
        // 14 seconds of 10 bytes and one of 100: 240 bytes in 15 s are 128 bit/s.
        assert_eq!(first, (15_000, 128, 25_600));
        // Every second is covered once: 400 before the gap, and 20 after it.
        assert_eq!(series.step_ms.iter().sum::<u64>(), 420_000);
        assert_eq!(*ends.last().unwrap(), 1_520_000);
    }

    #[test]
    fn memory_is_bounded() {
        let described: Vec<String> = (0..1000).map(|n| format!("c{n}")).collect();
        let described: Vec<(&str, ClassId)> =
            std::iter::once(("wan", 0)).chain(described.iter().map(|name| (name.as_str(), 0))).collect();
        let tree = classes(&described);
        let mut past = Past::new(200_000);
        for n in 0..100 {
            push(&mut past, &tree, step(n, n + 1, &[1000; 1001]));
            assert!(past.memory() <= 200_000, "{}", past.memory());
        }
        let series = all(&past, "wan");
        assert_eq!((series.series.len(), series.unix_ms.is_empty()), (1 + PARTS, false));
    }
}
