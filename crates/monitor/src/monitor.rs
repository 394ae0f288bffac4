//! What a link's classes do. It is fed once a second with the engine's counters, and with the flows
//! and delays of that second.
//!
//! A class that does nothing takes some 250 bytes: name and place in the tree (some 130), counters
//! of the last second (72), and places in the tables (40). So 100,000 classes take 25 MB. A busy
//! class takes, in addition to the [history](crate::history), at most 16 histograms of delays and
//! 16 summaries of flows. A histogram takes some 300 bytes with a hundred packets a second, and at
//! most 9.5 kB. A flow in a summary takes 72 bytes, so 16 summaries take 74 kB with 64 flows in
//! each second, and 4 kB with three. [`Limits`] bounds how many classes have histograms, and how
//! many have summaries.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use altq_engine::account::Counters;
use altq_engine::sketch::{Packed, Sketch};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Nanos;

use crate::amount::Amount;
use crate::by_class::ByClass;
use crate::departures::COUNTERS;
use crate::flow::FlowKey;
use crate::fold::{By, Folded, fold};
use crate::frame::{Frame, Parts, rate};
use crate::history::{History, Point, QUARTER, Slice, SliceRef};
use crate::ledger::settle;
use crate::promise::{Claim, Promises};
use crate::steps::{STEP, Window};
use crate::summary::{Counted, Summary};
use crate::tree::Tree;

/// The memory that a monitor may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the history.
    pub history: usize,
    /// Classes that have histograms of delays at a time.
    pub delays: usize,
    /// Classes that have summaries of flows at a time.
    pub flows: usize,
}

impl Default for Limits {
    /// 64 MB of history, delays of 16,384 classes, flows of 1,024.
    fn default() -> Limits {
        Limits { history: 64 << 20, delays: 1 << 14, flows: 1 << 10 }
    }
}

/// What happened in a second. All of it is taken at the same moment, between the same two packets.
#[derive(Clone, Debug, Default)]
pub struct Second<'a> {
    /// When it began, on the loop's clock.
    pub from: Nanos,
    /// When it ended. It may be longer or shorter than a second.
    pub to: Nanos,
    /// The counters since the start, by class. A class's counters include those of the classes
    /// below it, as [`Engine::all_counters`](altq_engine::Engine::all_counters) returns them.
    pub counters: &'a [Counters],
    /// Packets dropped since the start because they had no class.
    pub unclassified: u64,
    /// How long the packets of this second waited, for the classes that sent some: each class's own
    /// packets, without those of the classes below it.
    pub delays: Vec<(ClassId, Packed)>,
    /// The flows of these packets.
    pub flows: Vec<(ClassId, Summary<FlowKey>)>,
    /// What limits each class, by number.
    pub limited_by: Vec<Cow<'static, str>>,
    /// For how long packets of classes have waited, as
    /// [`promise::Backlog`](crate::promise::Backlog) counts it. Empty where guarantees are not
    /// judged.
    pub backlogged: Vec<(ClassId, Nanos)>,
    /// By number, how late classes may get what they are guaranteed, where that is promised.
    pub latency: &'a [Option<Nanos>],
    /// The lowest rate that the link had, bit/s; 0 if it is not known.
    pub rate_bit_s: u64,
}

/// Flows of a class, with those of all classes below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// The flows that are known to be large.
    pub summary: Summary<FlowKey>,
    /// The rest of what the class sent. This and what the listed flows have for certain add up to
    /// exactly the class's total.
    pub others: Amount,
}

impl Flows {
    /// The listed flows, those first that have the most bytes for certain.
    pub fn listed(&self) -> &[Counted<FlowKey>] {
        self.summary.listed()
    }

    /// The same with at most `most` listed flows. The flows that are left out become part of the
    /// rest.
    pub fn shortened(self, most: usize) -> Flows {
        let left_out: Amount = self.listed().iter().skip(most).map(|counted| counted.at_least).sum();
        Flows { others: self.others + left_out, summary: self.summary.shortened(most) }
    }

    /// The same as groups of what they have in common, at most `most`. The groups that are left out
    /// become part of the rest.
    pub fn folded(&self, by: By, most: usize) -> Folded {
        let mut groups = fold(&self.summary, by).groups;
        let left_out: Amount = groups.iter().skip(most).map(|group| group.at_least).sum();
        groups.truncate(most);
        Folded { groups, others: self.others + left_out }
    }
}

/// The monitor of a link.
#[derive(Debug)]
pub struct Monitor {
    pub(crate) tree: Arc<Tree>,
    limits: Limits,
    pub(crate) history: History,
    delays: ByClass<Packed>,
    flows: ByClass<Summary<FlowKey>>,
    /// Counters of the last second, with those of the classes below.
    before: Vec<Counters>,
    unclassified: u64,
    limited_by: Vec<Cow<'static, str>>,
    promises: Promises,
    /// Classes with another guarantee than in the last second, by number.
    unsettled: Vec<ClassId>,
    /// The number of the last second; `None` before the first.
    now: Option<u64>,
    /// The first second that has pieces of delays and flows.
    since: u64,
}

/// The seconds of a window.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// How many of the last seconds belong to it.
    seconds: u64,
    /// The first second whose pieces of delays and flows belong to it.
    pieces: u64,
}

fn names(tree: &Tree) -> Vec<String> {
    tree.classes().iter().map(|class| class.name.clone()).collect()
}

impl Monitor {
    /// A monitor of these classes. `history` is that of an earlier process, if there is one.
    pub fn new(tree: Tree, limits: Limits, history: Option<History>) -> Monitor {
        let history = match history {
            Some(mut history) => {
                history.renumber(names(&tree), limits.history);
                history
            }
            None => History::new(names(&tree), limits.history),
        };
        Monitor {
            history,
            delays: ByClass::new(tree.len(), limits.delays),
            flows: ByClass::new(tree.len(), limits.flows),
            before: vec![Counters::default(); tree.len()],
            unclassified: 0,
            limited_by: Vec::new(),
            promises: Promises::default(),
            unsettled: Vec::new(),
            now: None,
            since: 0,
            tree: Arc::new(tree),
            limits,
        }
    }

    /// Sets other classes, or other guarantees. Windows and history go on, by name. What a class
    /// did that is gone counts for the link from now on, without its flows and delays. An empty
    /// name means that no class has this number.
    pub fn set_tree(&mut self, tree: Tree) {
        let (old, new) = (names(&self.tree), names(&tree));
        let parents = |tree: &Tree| tree.classes().iter().map(|class| class.parent).collect::<Vec<_>>();
        if old == new {
            if parents(&self.tree) != parents(&tree) {
                let same: Vec<_> = (ROOT..).take(old.len()).map(Some).collect();
                self.before = self.moved(&tree, &same);
            }
        } else {
            let numbers: HashMap<&str, ClassId> = new.iter().zip(0..).map(|(name, at)| (name.as_str(), at)).collect();
            let number = |name: &String| numbers.get(name.as_str()).copied().filter(|_| !name.is_empty());
            let moved: Vec<Option<ClassId>> = old.iter().map(number).collect();
            self.before = self.moved(&tree, &moved);
            self.delays.renumber(&moved, tree.len());
            self.flows.renumber(&moved, tree.len());
            self.promises.renumber(&moved);
            self.limited_by.clear();
            self.history.renumber(new, self.limits.history);
        }
        // The second that is under way had both guarantees.
        let asked: HashMap<&str, _> =
            self.tree.classes().iter().map(|class| (class.name.as_str(), class.asked)).collect();
        let classes = (ROOT..).zip(tree.classes());
        let others = classes.filter(|(_, class)| asked.get(class.name.as_str()) != Some(&class.asked));
        self.unsettled = others.map(|(at, _)| at).collect();
        self.tree = Arc::new(tree);
    }

    /// The counters of the last second, as they would have been in another tree: a class may have
    /// come below another one, with all that it has ever sent. `moved`: by old number, the new one.
    /// What a class did that is gone counts for the class above it.
    fn moved(&self, tree: &Tree, moved: &[Option<ClassId>]) -> Vec<Counters> {
        let mut own = self.before.clone();
        for (class, all) in (ROOT..).zip(&self.before) {
            // What a number did that no class has any more is counted above it already.
            let above = self.tree.parent(class).filter(|_| !self.tree.name(class).is_empty());
            if let Some(above) = above.and_then(|above| own.get_mut(above as usize)) {
                *above = less(above, all);
            }
        }
        let mut before = vec![Counters::default(); tree.len()];
        for class in self.tree.order().iter().rev().copied() {
            let Some(counters) = own.get(class as usize).copied() else { continue };
            let to = moved.get(class as usize).copied().flatten();
            if let Some(place) = to.and_then(|to| before.get_mut(to as usize)) {
                *place = counters;
            } else if let Some(above) = self.tree.parent(class).filter(|_| !self.tree.name(class).is_empty())
                && let Some(above) = own.get_mut(above as usize)
            {
                *above += counters;
            }
        }
        for class in tree.order().iter().rev().copied() {
            let Some(counters) = before.get(class as usize).copied() else { continue };
            let above = tree.parent(class).filter(|_| !tree.name(class).is_empty());
            if let Some(above) = above.and_then(|above| before.get_mut(above as usize)) {
                *above += counters;
            }
        }
        // All that the link did stays the link's.
        if let (Some(link), Some(all)) = (before.first_mut(), self.before.first()) {
            *link = *all;
        }
        before
    }

    /// The classes.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The history.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The engine's counters of the last second.
    pub fn counters(&self) -> &[Counters] {
        &self.before
    }

    /// Packets that were dropped since the start because they had no class.
    pub fn unclassified(&self) -> u64 {
        self.unclassified
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let names = self.history.names();
        self.tree.memory()
            + self.history.memory()
            + names.iter().map(|name| size_of::<String>() + name.capacity()).sum::<usize>()
            + self.delays.memory(Packed::memory)
            + self.flows.memory(Summary::memory)
            + self.before.capacity() * size_of::<Counters>()
            + self.limited_by.capacity() * size_of::<Cow<'static, str>>()
    }

    /// Takes in what happened in a second.
    pub fn second(&mut self, second: Second<'_>) {
        let now = self.now.map_or(0, |now| now + 1);
        self.now = Some(now);
        let mut points = self.own_points(&second);
        let time = second.to.saturating_sub(second.from);
        let entries = settle(&self.tree, |class| points[class as usize].wire_bytes, time);
        for (point, entry) in points.iter_mut().zip(entries) {
            (point.borrowed_bytes, point.lent_bytes) = (entry.borrowed, entry.lent);
        }
        for (class, backlogged) in second.backlogged {
            // Inner classes get what those below them claim.
            let judged = class != ROOT && self.tree.children(class).is_empty();
            let asked = self.tree.classes().get(class as usize).and_then(|class| class.asked).filter(|_| judged);
            let (Some(rate), Some(point)) = (asked, points.get_mut(class as usize)) else { continue };
            if self.unsettled.binary_search(&class).is_ok() {
                self.promises.forget(class);
                continue;
            }
            let latency = second.latency.get(class as usize).copied().flatten();
            let kept = self.promises.second(class, time, Claim { backlogged, rate, latency }, point.wire_bytes);
            (point.promised_bytes, point.missed_bytes) = (kept.promised, kept.missed);
        }
        self.unsettled.clear();
        self.limited_by = second.limited_by;
        let mut scratch = Sketch::default();
        for (class, packed) in second.delays {
            if let Some(point) = points.get_mut(class as usize) {
                scratch.clear();
                scratch.merge_packed(&packed);
                (point.p50, point.p99) = (scratch.percentile(50.0), scratch.percentile(99.0));
            }
            self.delays.push(class, now, packed, |pieces| {
                scratch.clear();
                pieces.iter().for_each(|(_, piece)| scratch.merge_packed(piece));
                scratch.packed()
            });
        }
        for (class, summary) in second.flows {
            self.flows
                .push(class, now, summary, |pieces| Summary::merged(pieces.iter().map(|(_, piece)| piece), COUNTERS));
        }
        let mut slice = Slice::new(second.from, second.to, 1, (0..).zip(points));
        slice.rate_bit_s = second.rate_bit_s;
        self.history.push_second(&slice);
        let quarter = u64::from(QUARTER);
        if now % quarter == quarter - 1 {
            let mut times = HashMap::new();
            for (class, steps) in self.delays.present() {
                scratch.clear();
                steps.since(now + 1 - quarter).for_each(|piece| scratch.merge_packed(piece));
                if scratch.count() > 0 {
                    times.insert(class, (scratch.percentile(50.0), scratch.percentile(99.0)));
                }
            }
            self.history.push_quarter(&times);
            self.delays.sweep(now);
            self.flows.sweep(now);
        }
    }

    /// What each class's own packets did since the last second. The new counters are stored.
    fn own_points(&mut self, second: &Second<'_>) -> Vec<Point> {
        let of = |class: usize| second.counters.get(class).copied().unwrap_or_default();
        let is_less = |new: &Counters, old: &Counters| {
            new.sent_packets < old.sent_packets || new.dropped_packets < old.dropped_packets
        };
        // If the link's counters have become smaller, the engine has begun anew. Then all classes
        // count from 0, even one that has sent more by now than before. If only a class's counters
        // have become smaller, that class was removed and made again.
        let is_anew = self.before.first().is_some_and(|old| is_less(&of(ROOT as usize), old));
        let mut points = vec![Point::default(); self.tree.len()];
        // Classes that are told with the counters of others, from the top of the tree on: below one
        // of them everything new is another's as well.
        let mut others = vec![false; points.len()];
        let begins = |class: usize| {
            let old = &self.before[class];
            *old == Counters::default() || is_less(&of(class), old)
        };
        for class in self.tree.order().iter().map(|class| *class as usize) {
            let above = self.tree.parent(class as ClassId).map(|above| above as usize);
            if let Some(above) = above.filter(|_| !is_anew && begins(class)) {
                let more = of(above).sent_wire_bytes.saturating_sub(self.before[above].sent_wire_bytes);
                others[class] = others[above] || is_of_another(of(class).sent_wire_bytes, more);
            }
        }
        // Each class's counters are added to it and subtracted from the class above, so what is
        // left is the class's own. Sums may wrap in between; the result is still right.
        for class in 0..points.len() {
            if class != ROOT as usize && self.tree.name(class as ClassId).is_empty() {
                // A number that no class has any more; what that class did is counted above it. The
                // counters may still be those from just before its end.
                self.before[class] = of(class);
                continue;
            }
            let (new, old) = (of(class), self.before[class]);
            let old = if is_anew || is_less(&new, &old) { Counters::default() } else { old };
            if others[class] {
                self.before[class] = new;
                continue;
            }
            let more = [
                new.sent_packets.wrapping_sub(old.sent_packets),
                new.sent_bytes.wrapping_sub(old.sent_bytes),
                new.sent_wire_bytes.wrapping_sub(old.sent_wire_bytes),
                new.dropped_packets.wrapping_sub(old.dropped_packets),
                new.marked_packets.wrapping_sub(old.marked_packets),
                new.queued_bytes,
            ];
            for (sum, more) in counted(&mut points[class]).into_iter().zip(more) {
                *sum = sum.wrapping_add(more);
            }
            if let Some(parent) = self.tree.parent(class as ClassId) {
                for (sum, more) in counted(&mut points[parent as usize]).into_iter().zip(more) {
                    *sum = sum.wrapping_sub(more);
                }
            }
            self.before[class] = new;
        }
        for point in &mut points {
            for sum in counted(point) {
                // The sum is negative: the counters contradict each other.
                if *sum > u64::MAX / 2 {
                    *sum = 0;
                }
            }
        }
        let unclassified = second.unclassified.checked_sub(self.unclassified).unwrap_or(second.unclassified);
        self.unclassified = second.unclassified;
        if let Some(link) = points.get_mut(ROOT as usize) {
            link.dropped_packets = link.dropped_packets.saturating_add(unclassified);
        }
        points
    }

    /// The seconds that a window has now; `None` before the first second.
    fn span(&self, window: Window) -> Option<Span> {
        let now = self.now.filter(|now| *now >= self.since)?;
        let first = window.first(now).max(self.since);
        // Seconds before this one are no longer in the history.
        let known = (now + 1).saturating_sub(self.history.seconds().len() as u64);
        if first >= known {
            // All pieces of the step in which `since` lies are from `since` on.
            let pieces = if first == self.since { first / STEP * STEP } else { first };
            return Some(Span { seconds: now - first + 1, pieces });
        }
        // The window begins with a whole step, unless it lies in the current one.
        let first = if known / STEP == now / STEP { known } else { known.next_multiple_of(STEP) };
        Some(Span { seconds: now - first + 1, pieces: first })
    }

    /// All classes in a window; `None` before the first second.
    pub fn frame(&self, window: Window) -> Option<Frame> {
        let span = self.span(window)?;
        let slices = || self.history.last(span.seconds as usize);
        let mut own = vec![Point::default(); self.tree.len()];
        for (class, point) in slices().flat_map(SliceRef::points) {
            if let Some(sum) = own.get_mut(class as usize) {
                sum.add(&point);
            }
        }
        let queued = self.before.iter().map(|all| (all.queued_packets, all.queued_bytes));
        let mut waiting: Vec<(u64, u64)> = queued.collect();
        for (class, all) in (0..).zip(&self.before) {
            if let Some(parent) = self.tree.parent(class).and_then(|parent| waiting.get_mut(parent as usize)) {
                parent.0 = parent.0.saturating_sub(all.queued_packets);
                parent.1 = parent.1.saturating_sub(all.queued_bytes);
            }
        }
        let parts = Parts {
            tree: &self.tree,
            window,
            from: slices().next()?.from,
            to: slices().last()?.to,
            time: slices().fold(0, |sum: Nanos, slice| sum.saturating_add(slice.to.saturating_sub(slice.from))),
            own,
            waiting,
            limited_by: &self.limited_by,
        };
        Some(Frame::new(parts, |class, sketch| {
            if let Some(steps) = self.delays.get(class) {
                steps.since(span.pieces).for_each(|piece| sketch.merge_packed(piece));
            }
        }))
    }

    /// The flows of a class and of all classes below it, in the window of `frame`. The frame must
    /// have been made after the last call of [`second`](Monitor::second).
    pub fn flows(&self, frame: &Frame, class: ClassId) -> Flows {
        let mut pieces = Vec::new();
        let mut open = vec![class];
        let first = self.span(frame.window).map_or(u64::MAX, |span| span.pieces);
        while let Some(class) = open.pop() {
            open.extend(self.tree.children(class));
            pieces.extend(self.flows.get(class).into_iter().flat_map(|steps| steps.since(first)));
        }
        let summary = Summary::merged(pieces, COUNTERS);
        let listed: Amount = summary.listed().iter().map(|counted| counted.at_least).sum();
        let total = frame.row(class).map_or(listed, |row| Amount::new(row.total.sent_bytes, row.total.sent_packets));
        // Packets that were not counted by flow may belong to any of them.
        let missing = total.less(summary.total());
        Flows { others: total.less(listed), summary: summary.unsure(missing) }
    }

    /// What each of these classes got, with all classes below it, in each of the last `seconds`
    /// seconds: bit/s of charged bytes, the oldest first.
    pub fn series(&self, classes: &[ClassId], seconds: usize) -> Vec<Vec<u64>> {
        let mut series = vec![Vec::with_capacity(seconds.min(crate::history::SECONDS)); classes.len()];
        for slice in self.history.last(seconds) {
            let mut bytes = vec![0u64; self.tree.len()];
            for (class, point) in slice.points() {
                if let Some(sum) = bytes.get_mut(class as usize) {
                    *sum = point.wire_bytes;
                }
            }
            for class in self.tree.order().iter().rev().copied() {
                if let Some(parent) = self.tree.parent(class) {
                    bytes[parent as usize] = bytes[parent as usize].saturating_add(bytes[class as usize]);
                }
            }
            let time = slice.to.saturating_sub(slice.from);
            for (line, class) in series.iter_mut().zip(classes) {
                line.push(rate(bytes.get(*class as usize).copied().unwrap_or(0), time));
            }
        }
        series
    }
}

/// Bytes that classes may have sent between the moments at which they were counted.
const APART: u64 = 100_000;

/// True if a class that has just begun is told with the counters of another one, which had its
/// number before it: in its first second it cannot have sent more than the class above it. Both in
/// charged bytes.
pub fn is_of_another(sent: u64, above: u64) -> bool {
    sent > above.saturating_add(above / 8).saturating_add(APART)
}

/// What is left of the counters of a class without those of a class below it.
fn less(all: &Counters, below: &Counters) -> Counters {
    Counters {
        sent_packets: all.sent_packets.saturating_sub(below.sent_packets),
        sent_bytes: all.sent_bytes.saturating_sub(below.sent_bytes),
        sent_wire_bytes: all.sent_wire_bytes.saturating_sub(below.sent_wire_bytes),
        dropped_packets: all.dropped_packets.saturating_sub(below.dropped_packets),
        dropped_bytes: all.dropped_bytes.saturating_sub(below.dropped_bytes),
        borrowed_bytes: all.borrowed_bytes.saturating_sub(below.borrowed_bytes),
        marked_packets: all.marked_packets.saturating_sub(below.marked_packets),
        queued_packets: all.queued_packets.saturating_sub(below.queued_packets),
        queued_bytes: all.queued_bytes.saturating_sub(below.queued_bytes),
    }
}

/// The sums of a point that come from counters.
fn counted(point: &mut Point) -> [&mut u64; 6] {
    [
        &mut point.sent_packets,
        &mut point.sent_bytes,
        &mut point.wire_bytes,
        &mut point.dropped_packets,
        &mut point.marked_packets,
        &mut point.waiting_bytes,
    ]
}

#[cfg(test)]
mod tests {
    use altq_engine::units::{Rate, SECOND};

    use super::*;
    use crate::tree::Class;

    #[test]
    fn a_class_that_moves_takes_along_what_it_has_sent() {
        let class = |name: &str, parent: ClassId| Class { name: name.into(), parent, asked: None, ceiling: None };
        let of = |packets: u64| Counters {
            sent_packets: packets,
            sent_bytes: packets * 100,
            sent_wire_bytes: packets * 100,
            ..Counters::default()
        };
        // c sends, first below a, then below b. a has sent 5 packets of its own before.
        let tree = |above: ClassId| {
            Tree::new(vec![class("link", ROOT), class("a", ROOT), class("b", ROOT), class("c", above)]).unwrap()
        };
        let mut monitor = Monitor::new(tree(1), Limits::default(), None);
        let second = |monitor: &mut Monitor, at: Nanos, sums: [u64; 4]| {
            let counters = sums.map(of);
            let (from, to) = (at * SECOND, (at + 1) * SECOND);
            monitor.second(Second { from, to, counters: &counters, ..Second::default() });
            let slice = monitor.history().seconds().next_back().unwrap();
            slice.points().map(|(class, point)| (class, point.sent_packets)).collect::<Vec<_>>()
        };
        assert_eq!(second(&mut monitor, 0, [1005, 1005, 0, 1000]), [(1, 5), (3, 1000)]);
        monitor.set_tree(tree(2));
        assert_eq!(second(&mut monitor, 1, [1015, 5, 1010, 1010]), [(3, 10)]);
    }

    /// Class 2 is removed and another one gets its number. In the first second it is still told
    /// with the counters of the class that is gone.
    #[test]
    fn a_new_class_has_nothing_of_the_one_that_had_its_number() {
        let class = |name: &str| Class { name: name.into(), parent: ROOT, asked: None, ceiling: None };
        let of = |mb: u64| Counters {
            sent_packets: mb * 1000,
            sent_bytes: mb * 1_000_000,
            sent_wire_bytes: mb * 1_000_000,
            ..Counters::default()
        };
        let tree = |name: &str| Tree::new(vec![class("link"), class("a"), class(name)]).unwrap();
        let mut monitor = Monitor::new(tree("gone"), Limits::default(), None);
        let second = |monitor: &mut Monitor, at: Nanos, sums: [u64; 3]| {
            let counters = sums.map(of);
            let (from, to) = (at * SECOND, (at + 1) * SECOND);
            monitor.second(Second { from, to, counters: &counters, ..Second::default() });
            let slice = monitor.history().seconds().next_back().unwrap();
            slice.points().map(|(class, point)| (class, point.sent_packets / 1000)).collect::<Vec<_>>()
        };
        assert_eq!(second(&mut monitor, 0, [3010, 10, 3000]), [(1, 10), (2, 3000)]);
        monitor.set_tree(tree("new"));
        // The link has sent 5 MB of a; then 4 of a and 2 of the new class.
        assert_eq!(second(&mut monitor, 1, [3015, 15, 3000]), [(1, 5)]);
        assert_eq!(second(&mut monitor, 2, [3021, 19, 2]), [(1, 4), (2, 2)]);
        assert_eq!(second(&mut monitor, 3, [3031, 19, 12]), [(2, 10)]);
        // What it really sends in its first second is its own.
        monitor.set_tree(tree("third"));
        assert_eq!(second(&mut monitor, 4, [3041, 19, 10]), [(2, 10)]);
    }

    #[test]
    fn what_leaves_claim_and_miss_is_in_the_history() {
        let class = |name: &str, parent: ClassId, asked: Option<u64>| Class {
            name: name.into(),
            parent,
            asked: asked.map(Rate::mbit_s),
            ceiling: None,
        };
        let link = class("link", ROOT, Some(100));
        let classes = vec![link, class("a", ROOT, Some(8)), class("b", 1, Some(8)), class("c", ROOT, None)];
        let mut monitor = Monitor::new(Tree::new(classes.clone()).unwrap(), Limits::default(), None);
        let mut sent =
            Counters { sent_packets: 600, sent_bytes: 600_000, sent_wire_bytes: 600_000, ..Counters::default() };
        // As much in each second as in all before.
        let mut second = |monitor: &mut Monitor, at: Nanos| {
            monitor.second(Second {
                from: at * SECOND,
                to: (at + 1) * SECOND,
                counters: &[sent, sent, sent, Counters::default()],
                backlogged: (0..4).map(|class| (class, SECOND)).collect(),
                latency: &[None, None, Some(200_000_000)],
                rate_bit_s: 7,
                ..Second::default()
            });
            sent += sent;
            let slice = monitor.history().seconds().next_back().unwrap();
            let figure = |(class, point): (ClassId, Point)| (class, point.promised_bytes, point.missed_bytes);
            slice.points().map(figure).collect::<Vec<_>>()
        };
        // Only b is judged, which has a guarantee and no class below it: of 1,000,000 bytes it got
        // 600,000, and 200,000 may be late.
        assert_eq!(second(&mut monitor, 0), [(2, 1_000_000, 200_000)]);
        // The second in which its guarantee changes is not judged; other classes change nothing.
        let mut other = classes.clone();
        other[2].asked = Some(Rate::mbit_s(4));
        monitor.set_tree(Tree::new(other.clone()).unwrap());
        assert_eq!(second(&mut monitor, 1), [(2, 0, 0)]);
        other[3].asked = Some(Rate::mbit_s(9));
        monitor.set_tree(Tree::new(other).unwrap());
        assert_eq!(second(&mut monitor, 2)[0], (2, 500_000, 0));
        assert!(monitor.history().seconds().all(|slice| slice.rate_bit_s == 7));
    }
}
