//! What the classes of a link did between two successive documents.

use std::collections::HashMap;
use std::sync::Arc;

use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, SECOND};
use altq_monitor::frame::rate;
use altq_monitor::history::Point;
use altq_monitor::ledger::settle;
use altq_monitor::monitor::is_of_another;
use altq_monitor::tree::TreeError;

use crate::frame::{Classes, More, Row};
use crate::stat::{self, Class};

/// If two documents are further apart than this, the history gets a gap: an average over so long a
/// time would hide what happened.
const HOLE: Nanos = 60 * SECOND;

/// What a class has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    received_bytes: u64,
    sent_packets: u64,
    sent_bytes: u64,
    wire_bytes: u64,
    drops: u64,
    marks: u64,
}

impl Counts {
    fn of(class: &Class) -> Counts {
        Counts {
            received_bytes: class.received_bytes,
            sent_packets: class.sent_packets,
            sent_bytes: class.sent_bytes,
            wire_bytes: class.wire_bytes(),
            drops: class.drops(),
            marks: class.marked_packets,
        }
    }

    fn zip(self, other: Counts, of: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            received_bytes: of(self.received_bytes, other.received_bytes),
            sent_packets: of(self.sent_packets, other.sent_packets),
            sent_bytes: of(self.sent_bytes, other.sent_bytes),
            wire_bytes: of(self.wire_bytes, other.wire_bytes),
            drops: of(self.drops, other.drops),
            marks: of(self.marks, other.marks),
        }
    }

    /// True if the counters have begun anew since `old`.
    fn is_less(&self, old: &Counts) -> bool {
        self.sent_packets < old.sent_packets || self.drops < old.drops
    }
}

/// A link as it was in its latest document.
#[derive(Debug)]
pub struct Watch {
    classes: Arc<Classes>,
    counts: Vec<Counts>,
    rows: Vec<Row>,
    at: Nanos,
    step: Nanos,
}

/// What the own packets of each class did, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it began, on the loop's clock.
    pub from: Nanos,
    /// When it ended.
    pub to: Nanos,
    /// By class, without the classes below it.
    pub points: Vec<Point>,
}

/// How a document differs from the previous one.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// True if the classes or their promises have changed.
    pub classes: bool,
    /// The classes whose figures have changed.
    pub changed: Vec<ClassId>,
    /// What happened between the two; `None` if that is not known.
    pub step: Option<Step>,
    /// True if the counters have begun anew: altq has started again.
    pub anew: bool,
}

fn described(link: &stat::Link) -> Result<Classes, TreeError> {
    let more =
        |class: &Class| More { scheduler: class.scheduler.clone().unwrap_or_default(), bound: class.delay_bound_ns };
    Ok(Classes { tree: link.tree()?, more: link.classes.iter().map(more).collect() })
}

/// The figures of a class that are not differences of counters.
fn gauges(class: &Class) -> Row {
    Row {
        p50: class.sojourn_ns.p50,
        p99: class.sojourn_ns.p99,
        backlog_packets: class.backlog_packets,
        backlog_bytes: class.backlog_bytes,
        limited_by: class.limited_by.clone(),
        ..Row::default()
    }
}

impl Watch {
    /// Begins with the first document about a link. It has the classes' rates, but not what
    /// happened before.
    ///
    /// # Errors
    /// If its classes are no tree.
    pub fn new(link: &stat::Link) -> Result<Watch, TreeError> {
        let first = |class: &Class| Row { got_bit_s: class.rate_bit_s, ..gauges(class) };
        Ok(Watch {
            classes: Arc::new(described(link)?),
            counts: link.classes.iter().map(Counts::of).collect(),
            rows: link.classes.iter().map(first).collect(),
            at: link.at_ns,
            step: 0,
        })
    }

    /// The classes.
    pub fn classes(&self) -> &Arc<Classes> {
        &self.classes
    }

    /// Their figures.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The length of the step that the figures cover, in ns.
    pub fn step(&self) -> Nanos {
        self.step
    }

    /// Takes the next document.
    ///
    /// # Errors
    /// If its classes are no tree. Then nothing is taken from it.
    pub fn next(&mut self, link: &stat::Link) -> Result<News, TreeError> {
        if link.at_ns == self.at {
            // altq has not read its counters since the previous document.
            return Ok(News::default());
        }
        let classes = described(link)?;
        let counts: Vec<Counts> = link.classes.iter().map(Counts::of).collect();
        let same = classes == *self.classes;
        let before = if same { std::mem::take(&mut self.counts) } else { self.before(&classes) };
        let is_anew = |at: usize| counts[at].is_less(&before[at]);
        let anew = is_anew(ROOT as usize);
        let mut more: Vec<Counts> = (0..counts.len())
            // Counters of a class that was removed and made again have begun anew.
            .map(|at| if anew || is_anew(at) { counts[at] } else { counts[at].zip(before[at], u64::saturating_sub) })
            .collect();
        // A class that is new here may still be told with the counters of another one.
        let mut others = vec![false; counts.len()];
        for at in classes.tree.order().iter().map(|class| *class as usize).filter(|_| !anew) {
            let Some(above) = classes.tree.parent(at as ClassId).map(|above| above as usize) else { continue };
            if before[at] == Counts::default()
                && (others[above] || is_of_another(more[at].wire_bytes, more[above].wire_bytes))
            {
                (more[at], others[at]) = (Counts::default(), true);
            }
        }
        let time = link.at_ns.saturating_sub(self.at);
        let (points, rows) = figures(&classes, link, &more, time);
        let changed = (0..).zip(rows.iter()).filter(|(at, row)| self.rows.get(*at as usize) != Some(*row));
        let changed = changed.map(|(at, _)| at).collect();
        // With a long `--interval` two answers lie far apart.
        let longest = HOLE.max(link.interval_ns.saturating_mul(2));
        let step = (0 < time && time <= longest).then_some(Step { from: self.at, to: link.at_ns, points });
        if !same {
            self.classes = Arc::new(classes);
        }
        (self.counts, self.rows, self.at, self.step) = (counts, rows, link.at_ns, time);
        Ok(News { classes: !same, changed, step, anew })
    }

    /// The previous counters, matched to the new classes by name, as they would have been in the
    /// new tree: a class may have come below another one, with all that it has ever sent. A new
    /// class starts at 0. What a class did that is gone counts for the class above it.
    fn before(&self, classes: &Classes) -> Vec<Counts> {
        let (old, new) = (&self.classes.tree, &classes.tree);
        let mut own = self.counts.clone();
        for (class, counts) in (ROOT..).zip(&self.counts) {
            if let Some(above) = old.parent(class).and_then(|parent| own.get_mut(parent as usize)) {
                *above = above.zip(*counts, u64::saturating_sub);
            }
        }
        let others = (ROOT..).zip(new.classes()).skip(1);
        let by_name: HashMap<&str, ClassId> = others.map(|(at, class)| (class.name.as_str(), at)).collect();
        let mut before = vec![Counts::default(); new.len()];
        for class in old.order().iter().rev().copied().filter(|class| *class != ROOT) {
            let Some(counts) = own.get(class as usize).copied() else { continue };
            let to = by_name.get(old.name(class)).copied();
            if let Some(place) = to.and_then(|to| before.get_mut(to as usize)) {
                *place = counts;
            } else if let Some(above) = old.parent(class).and_then(|parent| own.get_mut(parent as usize)) {
                *above = above.zip(counts, u64::saturating_add);
            }
        }
        for class in new.order().iter().rev().copied() {
            let counts = before.get(class as usize).copied().unwrap_or_default();
            if let Some(above) = new.parent(class).and_then(|parent| before.get_mut(parent as usize)) {
                *above = above.zip(counts, u64::saturating_add);
            }
        }
        // All that the link did stays the link's.
        if let (Some(link), Some(all)) = (before.first_mut(), self.counts.first()) {
            *link = *all;
        }
        before
    }
}

/// What each class's own packets did, and the figures of each class with those below it.
fn figures(classes: &Classes, link: &stat::Link, more: &[Counts], time: Nanos) -> (Vec<Point>, Vec<Row>) {
    let tree = &classes.tree;
    let mut own = more.to_vec();
    let mut waiting: Vec<u64> = link.classes.iter().map(|class| class.backlog_bytes).collect();
    for (class, (counts, described)) in (0..).zip(more.iter().zip(&link.classes)) {
        if let Some(parent) = tree.parent(class).map(|parent| parent as usize) {
            own[parent] = own[parent].zip(*counts, u64::saturating_sub);
            waiting[parent] = waiting[parent].saturating_sub(described.backlog_bytes);
        }
    }
    let account = settle(tree, |class| own.get(class as usize).map_or(0, |own| own.wire_bytes), time);
    let points = own.iter().zip(&waiting).zip(account.iter().zip(&link.classes));
    let points = points
        .map(|((own, waiting), (entry, class))| Point {
            sent_packets: own.sent_packets,
            sent_bytes: own.sent_bytes,
            wire_bytes: own.wire_bytes,
            dropped_packets: own.drops,
            marked_packets: own.marks,
            borrowed_bytes: entry.borrowed,
            lent_bytes: entry.lent,
            waiting_bytes: *waiting,
            p50: class.sojourn_ns.p50,
            p99: class.sojourn_ns.p99,
            ..Point::default()
        })
        .collect();
    let mut exchanged: Vec<(u64, u64)> = account.iter().map(|entry| (entry.borrowed, entry.lent)).collect();
    for class in tree.order().iter().rev().copied() {
        if let Some(parent) = tree.parent(class).map(|parent| parent as usize) {
            let below = exchanged[class as usize];
            exchanged[parent].0 = exchanged[parent].0.saturating_add(below.0);
            exchanged[parent].1 = exchanged[parent].1.saturating_add(below.1);
        }
    }
    let rows = link.classes.iter().zip(more).zip(exchanged);
    let rows = rows
        .map(|((class, more), (borrowed, lent))| Row {
            received_bit_s: rate(more.received_bytes, time),
            got_bit_s: rate(more.wire_bytes, time),
            // What classes below it borrowed from one another does not count.
            borrowed_bit_s: rate(borrowed.saturating_sub(lent), time),
            lent_bit_s: rate(lent.saturating_sub(borrowed), time),
            drops: more.drops,
            marks: more.marks,
            ..gauges(class)
        })
        .collect();
    (points, rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::stat::{Link, Sojourn};

    /// A class with a guarantee in bit/s, and bytes that it has sent, one packet each thousand.
    fn class(name: &str, parent: Option<&str>, guaranteed: u64, bytes: u64) -> Class {
        Class {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            received_packets: bytes / 1000,
            received_bytes: bytes,
            sent_packets: bytes / 1000,
            sent_bytes: bytes,
            guaranteed_bit_s: Some(guaranteed),
            limited_by: "offered".to_owned(),
            ..Class::default()
        }
    }

    /// The published tree: link 100, voice 5, agency 50 with web 30 and bulk 20, rest 45, in
    /// kbit/s. `sent` has the bytes of voice, web, bulk and rest.
    fn link(at: Nanos, sent: [u64; 4]) -> Link {
        let [voice, web, bulk, rest] = sent;
        let classes = vec![
            class("wan", None, 100_000, sent.iter().sum()),
            class("voice", Some("wan"), 5_000, voice),
            class("agency", Some("wan"), 50_000, web + bulk),
            class("web", Some("agency"), 30_000, web),
            class("bulk", Some("agency"), 20_000, bulk),
            class("rest", Some("wan"), 45_000, rest),
        ];
        Link { name: "wan".to_owned(), at_ns: at, classes, ..Link::default() }
    }

    #[test]
    fn who_borrowed_and_who_lent() {
        let mut watch = Watch::new(&link(SECOND, [0; 4])).unwrap();
        // Voice 2.1, web 34, bulk 20, rest 43.9 kbit/s over two seconds, as in the picture of
        // docs/reference: web borrowed 4.0, of which voice lent 2.9 and rest 1.1.
        let news = watch.next(&link(3 * SECOND, [525, 8500, 5000, 10_975])).unwrap();
        assert_eq!((news.classes, news.anew, news.changed), (false, false, vec![0, 1, 2, 3, 4, 5]));
        let got: Vec<u64> = watch.rows().iter().map(|row| row.got_bit_s).collect();
        assert_eq!(got, [100_000, 2_100, 54_000, 34_000, 20_000, 43_900]);
        let exchanged: Vec<_> = watch.rows().iter().map(|row| (row.borrowed_bit_s, row.lent_bit_s)).collect();
        assert_eq!(exchanged, [(0, 0), (0, 2_900), (4_000, 0), (4_000, 0), (0, 0), (0, 1_100)]);
        let step = news.step.unwrap();
        assert_eq!(
            (step.from, step.to, step.points[2].sent_bytes, step.points[3].sent_bytes),
            (SECOND, 3 * SECOND, 0, 8500)
        );
        // The same document again changes nothing; a later one in which nothing was sent changes
        // the figures.
        assert!(watch.next(&link(3 * SECOND, [0; 4])).unwrap().changed.is_empty());
        let idle = watch.next(&link(4 * SECOND, [525, 8500, 5000, 10_975])).unwrap();
        assert_eq!((idle.changed.len(), watch.rows()[3].got_bit_s), (6, 0));
        assert!(watch.next(&link(5 * SECOND, [525, 8500, 5000, 10_975])).unwrap().changed.is_empty());
    }

    #[test]
    fn counters_that_begin_anew_and_classes_that_come_and_go() {
        let mut watch = Watch::new(&link(SECOND, [9000, 9000, 9000, 9000])).unwrap();
        let news = watch.next(&link(2 * SECOND, [1000, 0, 0, 2000])).unwrap();
        assert!(news.anew);
        let sent = |step: &Step| step.points.iter().map(|point| point.sent_bytes).collect::<Vec<_>>();
        assert_eq!(sent(&news.step.unwrap()), [0, 1000, 0, 0, 0, 2000]);
        // `bulk` is removed after it has sent 500 bytes more, and a new class is added.
        let mut other = link(3 * SECOND, [1000, 0, 500, 2000]);
        other.classes[4] = class("new", Some("wan"), 0, 700);
        other.classes[0].sent_bytes += 700;
        let news = watch.next(&other).unwrap();
        assert!(news.classes && !news.anew);
        // What a removed class did stays in the class above it.
        assert_eq!(sent(&news.step.unwrap()), [0, 0, 500, 0, 700, 0]);
        // After a long silence the figures are right, but nothing goes into the history.
        let news = watch.next(&link(3 * SECOND + HOLE + 1, [1000, 0, 500, 2000])).unwrap();
        assert_eq!((news.step, watch.step()), (None, HOLE + 1));
        // A document that is no tree changes nothing.
        let mut wrong = link(SECOND * 100, [0; 4]);
        wrong.classes[1].parent = Some("gone".to_owned());
        assert!(watch.next(&wrong).is_err());
        assert_eq!(watch.rows().len(), 6);
    }

    #[test]
    fn a_class_that_moves_takes_along_what_it_has_sent() {
        let mut watch = Watch::new(&link(SECOND, [1000, 2000, 90_000, 3000])).unwrap();
        // `bulk` comes below `voice`; it sends 4000 bytes more, and web 1000.
        let mut moved = link(2 * SECOND, [1000, 3000, 94_000, 3000]);
        moved.classes[1] = class("voice", Some("wan"), 5_000, 95_000);
        moved.classes[2] = class("agency", Some("wan"), 50_000, 3000);
        moved.classes[4] = class("bulk", Some("voice"), 20_000, 94_000);
        let news = watch.next(&moved).unwrap();
        assert!(news.classes && !news.anew);
        let sent: Vec<u64> = news.step.unwrap().points.iter().map(|point| point.sent_bytes).collect();
        assert_eq!(sent, [0, 0, 0, 1000, 4000, 0]);
        // All in one second: bits.
        let got: Vec<u64> = watch.rows().iter().map(|row| row.got_bit_s).collect();
        assert_eq!(got, [40_000, 32_000, 8_000, 8_000, 32_000, 0]);
    }

    proptest! {
        /// Whatever is sent, the link's figures are those of its classes, and what is lent is what
        /// is borrowed. Documents that contradict themselves do no harm.
        #[test]
        fn figures_add_up(
            steps in prop::collection::vec((1..5_000_000_000_u64, prop::array::uniform4(0..1_000_000_u64)), 1..20),
            odd in prop::collection::vec((0..6_usize, any::<u64>(), any::<u64>()), 0..3),
        ) {
            let (mut at, mut sent) = (0, [0; 4]);
            let mut watch = Watch::new(&link(at, sent)).unwrap();
            for (time, more) in steps {
                at += time;
                sent.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
                let news = watch.next(&link(at, sent)).unwrap();
                let step = news.step.unwrap();
                let sum = |of: fn(&Point) -> u64| step.points.iter().map(of).sum::<u64>();
                prop_assert_eq!(sum(|point| point.wire_bytes), more.iter().sum::<u64>());
                prop_assert_eq!(sum(|point| point.borrowed_bytes), sum(|point| point.lent_bytes));
                let rows = watch.rows();
                prop_assert!(rows[2].got_bit_s.abs_diff(rows[3].got_bit_s + rows[4].got_bit_s) <= 2);
            }
            for (class, number, other) in odd {
                let mut link = link(at, sent);
                link.classes[class].sent_packets = number;
                link.classes[class].sent_bytes = other;
                link.classes[class].backlog_bytes = number;
                link.classes[class].dropped = BTreeMap::from([("a".to_owned(), other), ("b".to_owned(), number)]);
                link.classes[class].sojourn_ns = Sojourn { p50: other, p99: number, max: 0 };
                at = at.saturating_add(other);
                link.at_ns = at;
                let _ = watch.next(&link);
            }
        }
    }
}
