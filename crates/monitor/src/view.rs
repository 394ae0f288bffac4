//! Which rows of a frame are shown, and in which order: sorted, filtered, folded, without idle
//! classes. What is hidden stays in the figures of the classes above it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use altq_engine::spec::{ClassId, ROOT};

use crate::frame::{Frame, Row};

/// What rows are sorted by. Names are ascending, figures descending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sort {
    /// The policy's order.
    #[default]
    Policy,
    /// By name.
    Name,
    /// By guarantee.
    Asked,
    /// By what they got.
    Got,
    /// By what they borrowed from other classes.
    Borrowed,
    /// By what they lent to other classes.
    Lent,
    /// By the median delay.
    P50,
    /// By the 99th percentile of the delay.
    P99,
    /// By drops.
    Drops,
    /// By waiting bytes.
    Backlog,
}

impl Sort {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Sort; 10] = [
        Sort::Policy,
        Sort::Name,
        Sort::Asked,
        Sort::Got,
        Sort::Borrowed,
        Sort::Lent,
        Sort::P50,
        Sort::P99,
        Sort::Drops,
        Sort::Backlog,
    ];

    /// The next one, for a key that goes through all.
    pub fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL.get(at + 1).copied().unwrap_or_default()
    }
}

/// What the user has chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The order.
    pub sort: Sort,
    /// Reverses the order.
    pub reverse: bool,
    /// Shows no tree: only classes without children, in one order.
    pub flat: bool,
    /// Shows only classes whose name contains this text (upper and lower case are the same), and
    /// the classes above them. Empty: all.
    pub filter: String,
    /// Hides a class if neither it nor a class below it did anything or has packets waiting.
    pub hide_idle: bool,
    /// Classes below which nothing is shown.
    pub folded: BTreeSet<ClassId>,
}

/// A row that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The class.
    pub class: ClassId,
    /// How far it is indented; 0 in a flat view.
    pub depth: u32,
    /// Classes below it, at any depth, that are not shown.
    pub hidden: u32,
}

impl View {
    /// The rows to show, from the top.
    pub fn lines(&self, frame: &Frame) -> Vec<Line> {
        let shown = self.shown(frame);
        let is_shown = |class: ClassId| shown.get(class as usize).copied().unwrap_or(false);
        let mut lines = Vec::new();
        if self.flat {
            let order = frame.tree.order().iter().copied();
            let mut leaves: Vec<ClassId> =
                order.filter(|class| frame.tree.children(*class).is_empty() && is_shown(*class)).collect();
            self.order(frame, &mut leaves);
            return leaves.into_iter().map(|class| Line { class, depth: 0, hidden: 0 }).collect();
        }
        let hidden = self.hidden(frame, &shown);
        let mut open = vec![ROOT];
        while let Some(class) = open.pop() {
            lines.push(Line {
                class,
                depth: frame.tree.depth(class),
                hidden: hidden.get(class as usize).copied().unwrap_or(0),
            });
            if !self.folded.contains(&class) {
                let all = frame.tree.children(class).iter().copied();
                let mut children: Vec<ClassId> = all.filter(|child| is_shown(*child)).collect();
                self.order(frame, &mut children);
                open.extend(children.into_iter().rev());
            }
        }
        lines
    }

    /// By class: whether filter and idleness let it be shown. A class is also shown if one below it
    /// is, and the link is always shown.
    fn shown(&self, frame: &Frame) -> Vec<bool> {
        let filter = self.filter.to_lowercase();
        let mut shown = vec![false; frame.rows.len()];
        for class in frame.tree.order().iter().rev().copied() {
            let (at, row) = (class as usize, frame.row(class));
            let idle = self.hide_idle && row.is_none_or(|row| row.total.is_idle());
            let named = filter.is_empty() || frame.tree.name(class).to_lowercase().contains(&filter);
            shown[at] |= class == ROOT || named && !idle;
            if let Some(above) = frame.tree.parent(class).filter(|_| shown[at]) {
                shown[above as usize] = true;
            }
        }
        shown
    }

    /// By class: how many classes below it are not shown.
    fn hidden(&self, frame: &Frame, shown: &[bool]) -> Vec<u32> {
        let mut all = vec![0u32; shown.len()];
        let mut seen = vec![0u32; shown.len()];
        for class in frame.tree.order().iter().rev().copied() {
            let at = class as usize;
            if self.folded.contains(&class) {
                seen[at] = 0;
            }
            if let Some(above) = frame.tree.parent(class) {
                let above = above as usize;
                all[above] += all[at] + 1;
                // Below a class that is not shown, nothing is shown.
                seen[above] += if shown[at] { seen[at] + 1 } else { 0 };
            }
        }
        all.into_iter().zip(seen).map(|(all, seen)| all - seen).collect()
    }

    /// Sorts classes. Equal ones stay in the policy's order.
    fn order(&self, frame: &Frame, classes: &mut [ClassId]) {
        let figure = |class: &ClassId| frame.row(*class).map_or(0, |row| self.figure(frame, *class, row));
        match self.sort {
            Sort::Policy => {}
            Sort::Name => classes.sort_by(|a, b| frame.tree.name(*a).cmp(frame.tree.name(*b))),
            _ => classes.sort_by_cached_key(|class| Reverse(figure(class))),
        }
        if self.reverse {
            classes.reverse();
        }
    }

    fn figure(&self, frame: &Frame, class: ClassId, row: &Row) -> u64 {
        match self.sort {
            Sort::Policy | Sort::Name => 0,
            Sort::Asked => {
                let class = frame.tree.classes().get(class as usize);
                class.and_then(|class| class.asked).map_or(0, |rate| rate.as_bit_s())
            }
            Sort::Got => row.rates.got,
            Sort::Borrowed => row.rates.borrowed,
            Sort::Lent => row.rates.lent,
            Sort::P50 => row.delay.p50,
            Sort::P99 => row.delay.p99,
            Sort::Drops => row.total.dropped_packets,
            Sort::Backlog => row.total.backlog_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use altq_engine::units::{Rate, SECOND};

    use super::*;
    use crate::frame::Parts;
    use crate::slice::Point;
    use crate::steps::Window;
    use crate::tree::{Class, Tree};

    /// link(a(a1, a2), b, c(c1)) with the packets that each got; c1 is idle.
    fn frame() -> Frame {
        let classes = [("link", 0), ("a", 0), ("Web", 1), ("a2", 1), ("b", 0), ("c", 0), ("web2", 5)];
        let class = |(at, (name, parent)): (usize, &(&str, ClassId))| Class {
            name: (*name).into(),
            parent: *parent,
            asked: (at > 0).then(|| Rate::bit_s(at as u64)),
            ceiling: None,
        };
        let tree = Arc::new(Tree::new(classes.iter().enumerate().map(class).collect()).unwrap());
        let own = [0, 0, 10, 70, 30, 0, 0].map(|n| Point { sent_packets: n, wire_bytes: n * 100, ..Point::default() });
        let parts = Parts {
            tree: &tree,
            window: Window::Second,
            from: 0,
            to: SECOND,
            time: SECOND,
            own: own.to_vec(),
            waiting: Vec::new(),
            limited_by: &[],
        };
        Frame::new(parts, |_, _| {})
    }

    fn lines(view: &View) -> Vec<(ClassId, u32, u32)> {
        view.lines(&frame()).iter().map(|line| (line.class, line.depth, line.hidden)).collect()
    }

    #[test]
    fn everything_in_the_order_of_the_policy() {
        let view = View::default();
        assert_eq!(lines(&view), [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 2, 0), (4, 1, 0), (5, 1, 0), (6, 2, 0)]);
    }

    #[test]
    fn siblings_are_sorted_and_stay_below_their_class() {
        // a got 80, b 30, c 0; of a's children a2 got 70.
        let by_got = View { sort: Sort::Got, ..View::default() };
        let order = |view: &View| lines(view).iter().map(|line| line.0).collect::<Vec<_>>();
        assert_eq!(order(&by_got), [0, 1, 3, 2, 4, 5, 6]);
        assert_eq!(order(&View { reverse: true, ..by_got.clone() }), [0, 5, 6, 4, 1, 2, 3]);
        assert_eq!(order(&View { flat: true, ..by_got }), [3, 4, 2, 6]);
        assert_eq!(order(&View { sort: Sort::Asked, flat: true, ..View::default() }), [6, 4, 3, 2]);
        assert_eq!(order(&View { sort: Sort::Name, flat: true, ..View::default() }), [2, 3, 4, 6]);
    }

    #[test]
    fn hidden_classes_are_counted() {
        let filtered = View { filter: "WEB".into(), ..View::default() };
        assert_eq!(lines(&filtered), [(0, 0, 2), (1, 1, 1), (2, 2, 0), (5, 1, 0), (6, 2, 0)]);
        let busy = View { hide_idle: true, ..View::default() };
        assert_eq!(lines(&busy), [(0, 0, 2), (1, 1, 0), (2, 2, 0), (3, 2, 0), (4, 1, 0)]);
        let folded = View { folded: BTreeSet::from([1]), ..View::default() };
        assert_eq!(lines(&folded), [(0, 0, 2), (1, 1, 2), (4, 1, 0), (5, 1, 0), (6, 2, 0)]);
        let both = View { filter: "web".into(), hide_idle: true, ..View::default() };
        assert_eq!(lines(&both), [(0, 0, 4), (1, 1, 1), (2, 2, 0)]);
        assert_eq!(lines(&View { filter: "nothing".into(), ..View::default() }), [(0, 0, 6)]);
    }

    #[test]
    fn a_key_goes_through_all_orders() {
        let mut sort = Sort::default();
        for expected in Sort::ALL.into_iter().skip(1).chain([Sort::Policy]) {
            sort = sort.next();
            assert_eq!(sort, expected);
        }
    }
}
