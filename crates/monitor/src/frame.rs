//! What all classes did in a window: one frame of `altq top`.
//!
//! In every frame three identities hold, whatever the traffic, in bytes, packets and rates:
//!
//! - a class's figures are the sum of its own and those of the classes directly below it;
//! - what the link's classes have borrowed in all is what they have lent in all
//!   ([`ledger`](crate::ledger));
//! - rates add up as bytes do: the link's rate is rounded down, and divided among its classes in
//!   proportion to their bytes.

use std::borrow::Cow;
use std::sync::Arc;

use altq_engine::sketch::Sketch;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::ledger::{divide, settle};
use crate::slice::Point;
use crate::steps::Window;
use crate::tree::Tree;

/// Counts of a window that add up over classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figures {
    /// Packets sent.
    pub sent_packets: u64,
    /// Their own bytes.
    pub sent_bytes: u64,
    /// The bytes that the link charged for them.
    pub wire_bytes: u64,
    /// Packets dropped.
    pub dropped_packets: u64,
    /// Packets marked.
    pub marked_packets: u64,
    /// Charged bytes beyond guarantees.
    pub borrowed_bytes: u64,
    /// Charged bytes of guarantees that others used.
    pub lent_bytes: u64,
    /// Packets that wait at the window's end.
    pub backlog_packets: u64,
    /// Their own bytes.
    pub backlog_bytes: u64,
}

impl Figures {
    /// Adds another class's figures. Sums end at 2^64 - 1.
    pub fn add(&mut self, other: &Figures) {
        let mut other = *other;
        for (sum, more) in self.all_mut().into_iter().zip(other.all_mut()) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Subtracts another class's figures. Differences end at 0.
    pub fn subtract(&mut self, other: &Figures) {
        let mut other = *other;
        for (rest, less) in self.all_mut().into_iter().zip(other.all_mut()) {
            *rest = rest.saturating_sub(*less);
        }
    }

    fn all_mut(&mut self) -> [&mut u64; 9] {
        [
            &mut self.sent_packets,
            &mut self.sent_bytes,
            &mut self.wire_bytes,
            &mut self.dropped_packets,
            &mut self.marked_packets,
            &mut self.borrowed_bytes,
            &mut self.lent_bytes,
            &mut self.backlog_packets,
            &mut self.backlog_bytes,
        ]
    }

    /// True if nothing happened and nothing waits. A class that only lends is idle.
    pub fn is_idle(&self) -> bool {
        Figures { lent_bytes: 0, ..*self } == Figures::default()
    }
}

/// Rates of a window in bit/s, which add up over classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// What it sent, in own bytes (layer 3).
    pub sent: u64,
    /// What it got of the link, in charged bytes, the unit of guarantees.
    pub got: u64,
    /// The part of `got` that was beyond guarantees.
    pub borrowed: u64,
    /// The part of guarantees that others used.
    pub lent: u64,
}

impl Rates {
    /// Adds another class's rates. Sums end at 2^64 - 1.
    pub fn add(&mut self, other: &Rates) {
        let mut other = *other;
        for (sum, more) in self.all_mut().into_iter().zip(other.all_mut()) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Subtracts another class's rates. Differences end at 0.
    pub fn subtract(&mut self, other: &Rates) {
        let mut other = *other;
        for (rest, less) in self.all_mut().into_iter().zip(other.all_mut()) {
            *rest = rest.saturating_sub(*less);
        }
    }

    fn all_mut(&mut self) -> [&mut u64; 4] {
        [&mut self.sent, &mut self.got, &mut self.borrowed, &mut self.lent]
    }
}

/// How long packets of a class and of the classes below it waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Number of packets; the other figures are 0 without any.
    pub count: u64,
    /// The median in ns; percentiles are within 1/32.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl Delay {
    /// The figures of a histogram.
    pub fn of(times: &Sketch) -> Delay {
        match times.count() {
            0 => Delay::default(),
            count => Delay { count, p50: times.percentile(50.0), p99: times.percentile(99.0), max: times.max() },
        }
    }
}

/// A class in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What its own packets did.
    pub own: Figures,
    /// The same with all classes below it.
    pub total: Figures,
    /// Rates of its own packets.
    pub own_rates: Rates,
    /// The same with all classes below it.
    pub rates: Rates,
    /// How long its packets and those of all classes below it waited.
    pub delay: Delay,
    /// What keeps it from sending more (`limited_by` of `altq.stat/1`), in the last second.
    pub limited_by: Cow<'static, str>,
}

impl Row {
    /// What the class and all below it have borrowed from others, and lent to others. What they
    /// have borrowed from one another does not count. One of the two is 0.
    pub fn outside(&self) -> (u64, u64) {
        let Rates { borrowed, lent, .. } = self.rates;
        (borrowed.saturating_sub(lent), lent.saturating_sub(borrowed))
    }
}

/// All classes in a window.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The classes.
    pub tree: Arc<Tree>,
    /// The window that was asked for.
    pub window: Window,
    /// When it began.
    pub from: Nanos,
    /// When it ended.
    pub to: Nanos,
    /// The time that was watched in it. If nothing was watched for a while, it is less than `to -
    /// from`.
    pub time: Nanos,
    /// The classes, by number.
    pub rows: Vec<Row>,
}

/// What a frame is made of.
pub(crate) struct Parts<'a> {
    pub tree: &'a Arc<Tree>,
    pub window: Window,
    pub from: Nanos,
    pub to: Nanos,
    pub time: Nanos,
    /// By class: what its own packets did, and how many of them wait (packets, bytes).
    pub own: Vec<Point>,
    pub waiting: Vec<(u64, u64)>,
    pub limited_by: &'a [Cow<'static, str>],
}

impl Frame {
    /// Makes a frame of its parts. `times` adds the waiting times of a class's own packets to a
    /// histogram.
    pub(crate) fn new(parts: Parts<'_>, times: impl FnMut(ClassId, &mut Sketch)) -> Frame {
        let Parts { tree, window, from, to, time, own, waiting, limited_by } = parts;
        let of = |class: ClassId| own.get(class as usize).copied().unwrap_or_default();
        let entries = settle(tree, |class| of(class).wire_bytes, time);
        let mut rows: Vec<Row> = (0..)
            .zip(&entries)
            .map(|(class, entry)| {
                let point = of(class);
                let (backlog_packets, backlog_bytes) = waiting.get(class as usize).copied().unwrap_or_default();
                let own = Figures {
                    sent_packets: point.sent_packets,
                    sent_bytes: point.sent_bytes,
                    wire_bytes: point.wire_bytes,
                    dropped_packets: point.dropped_packets,
                    marked_packets: point.marked_packets,
                    borrowed_bytes: entry.borrowed,
                    lent_bytes: entry.lent,
                    backlog_packets,
                    backlog_bytes,
                };
                Row {
                    own,
                    total: own,
                    own_rates: Rates::default(),
                    rates: Rates::default(),
                    delay: Delay::default(),
                    limited_by: limited_by.get(class as usize).cloned().unwrap_or_default(),
                }
            })
            .collect();
        for class in tree.order().iter().rev().copied() {
            let below = rows[class as usize].total;
            if let Some(parent) = tree.parent(class) {
                rows[parent as usize].total.add(&below);
            }
        }
        spread(tree, &mut rows, time);
        delays(tree, &mut rows, times);
        Frame { tree: Arc::clone(tree), window, from, to, time, rows }
    }

    /// A class's row.
    pub fn row(&self, class: ClassId) -> Option<&Row> {
        self.rows.get(class as usize)
    }

    /// Checks the identities.
    ///
    /// # Errors
    /// The class whose figures do not add up, with the figures.
    pub fn check(&self) -> Result<(), String> {
        for (class, row) in (0..).zip(&self.rows) {
            let (mut figures, mut rates) = (row.own, row.own_rates);
            for child in self.tree.children(class).iter().filter_map(|child| self.row(*child)) {
                figures.add(&child.total);
                rates.add(&child.rates);
            }
            if (figures, rates) != (row.total, row.rates) {
                return Err(format!("`{}` has {row:?}, and its parts {figures:?}, {rates:?}", self.tree.name(class)));
            }
        }
        match self.row(ROOT) {
            Some(Row { total, rates, .. })
                if total.borrowed_bytes != total.lent_bytes || rates.borrowed != rates.lent =>
            {
                Err(format!("borrowed is not lent: {total:?}, {rates:?}"))
            }
            Some(_) => Ok(()),
            None => Err("a frame without the link".to_owned()),
        }
    }
}

/// A rate in bit/s, rounded down; 0 if no time has passed.
pub fn rate(bytes: u64, time: Nanos) -> u64 {
    let bits = u128::from(bytes) * 8 * u128::from(SECOND);
    u64::try_from(bits.checked_div(u128::from(time)).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// A figure in bytes, and its rate.
type Column = (fn(&Figures) -> u64, fn(&mut Rates) -> &mut u64);

const COLUMNS: [Column; 4] = [
    (|figures| figures.sent_bytes, |rates| &mut rates.sent),
    (|figures| figures.wire_bytes, |rates| &mut rates.got),
    (|figures| figures.borrowed_bytes, |rates| &mut rates.borrowed),
    (|figures| figures.lent_bytes, |rates| &mut rates.lent),
];

/// Sets the rates: the link's from its bytes, and each class's as its part of the rate of the class
/// above. For each class above it, a rate is wrong by less than 1 bit/s.
fn spread(tree: &Tree, rows: &mut [Row], time: Nanos) {
    let mut parts: Vec<u64> = Vec::new();
    for (bytes, rate_of) in COLUMNS {
        if let Some(link) = rows.get_mut(ROOT as usize) {
            *rate_of(&mut link.rates) = rate(bytes(&link.total), time);
        }
        for class in tree.order().iter().copied() {
            let children = tree.children(class);
            parts.clear();
            parts.push(bytes(&rows[class as usize].own));
            parts.extend(children.iter().map(|child| bytes(&rows[*child as usize].total)));
            let whole = *rate_of(&mut rows[class as usize].rates);
            divide(whole, &parts, |place, share| match place.checked_sub(1).and_then(|place| children.get(place)) {
                Some(child) => *rate_of(&mut rows[*child as usize].rates) = share,
                None => *rate_of(&mut rows[class as usize].own_rates) = share,
            });
        }
    }
}

/// Sets the delays, from the leaves up. At a time there is at most one histogram for each class
/// above the current one.
fn delays(tree: &Tree, rows: &mut [Row], mut times: impl FnMut(ClassId, &mut Sketch)) {
    let mut sketches = vec![Sketch::default(); rows.len()];
    for class in tree.order().iter().rev().copied() {
        let mut sketch = std::mem::take(&mut sketches[class as usize]);
        times(class, &mut sketch);
        rows[class as usize].delay = Delay::of(&sketch);
        let Some(above) = tree.parent(class).and_then(|parent| sketches.get_mut(parent as usize)) else { continue };
        if above.count() == 0 {
            *above = sketch;
        } else {
            above.merge(&sketch);
        }
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::units::Rate;

    use super::*;
    use crate::tree::Class;

    #[test]
    fn a_frame_by_hand() {
        // The link has 8000 bit/s: 1000 bytes a second. a is guaranteed 600 bytes, b 400. In three
        // seconds a sent 2100 bytes and b 900, so a borrowed 300, which b lent. The link itself has
        // no packets. The overhead of a packet is 10 bytes.
        let class = |name: &str, asked: u64| Class {
            name: name.into(),
            parent: ROOT,
            asked: Some(Rate::bit_s(asked * 8)),
            ceiling: None,
        };
        let tree = Arc::new(Tree::new(vec![class("link", 1000), class("a", 600), class("b", 400)]).unwrap());
        let point = |packets: u64, wire_bytes: u64, dropped_packets: u64| Point {
            sent_packets: packets,
            sent_bytes: wire_bytes - 10 * packets,
            wire_bytes,
            dropped_packets,
            ..Point::default()
        };
        let parts = Parts {
            tree: &tree,
            window: Window::Ten,
            from: 0,
            to: 3 * SECOND,
            time: 3 * SECOND,
            own: vec![Point::default(), point(21, 2100, 4), point(9, 900, 0)],
            waiting: vec![(0, 0), (2, 180), (0, 0)],
            limited_by: &[Cow::Borrowed("link"), Cow::Borrowed("link"), Cow::Borrowed("offered")],
        };
        let frame = Frame::new(parts, |class, sketch| (0..class).for_each(|n| sketch.add(u64::from(n) * 10)));
        frame.check().unwrap();
        let short = |class: ClassId| {
            let row = frame.row(class).unwrap();
            (row.rates, row.total.dropped_packets, row.total.backlog_bytes, row.delay.count, row.outside())
        };
        let rates = |sent, got, borrowed, lent| Rates { sent, got, borrowed, lent };
        assert_eq!(short(0), (rates(7200, 8000, 800, 800), 4, 180, 3, (0, 0)));
        assert_eq!(short(1), (rates(5040, 5600, 800, 0), 4, 180, 1, (800, 0)));
        assert_eq!(short(2), (rates(2160, 2400, 0, 800), 0, 0, 2, (0, 800)));
        assert_eq!((frame.row(2).unwrap().delay.max, frame.row(1).unwrap().limited_by.as_ref()), (10, "link"));
    }
}
