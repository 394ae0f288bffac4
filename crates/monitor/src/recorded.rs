//! `altq.past/1`: what the history of a link has, slice by slice, for reports.
//!
//! A history may have millions of points. So a document has some of the slices, and says where the
//! next one goes on.

use altq_engine::spec::ROOT;
use altq_engine::units::{Nanos, Rate};
use serde::Serialize;

use crate::history::History;
use crate::slice::{Point, SliceRef};
use crate::tree::Tree;

/// The name of the form.
pub const SCHEMA: &str = "altq.past/1";

/// About as many points are in a document, some 3 MB: it ends with the slice that reaches that.
pub const POINTS: usize = 50_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The slices that end after this moment: the first document.
    Moment(Nanos),
    /// Those behind the one that ended then: what an earlier document has as `next_ns`.
    Next(Nanos),
}

/// Some of what is kept of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recorded {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The link.
    pub link: String,
    /// What executes it.
    pub path: String,
    /// Whether its rate follows the line. Then guarantees are not judged.
    pub adapts: bool,
    /// When the document was made, in ns since 1970.
    pub now_unix_ns: u64,
    /// When the oldest slice began; null if there is none.
    pub begins_unix_ns: Option<u64>,
    /// The classes as they are now, by number; the first is the link itself. A name that is empty
    /// is that of a number that no class has.
    pub classes: Vec<Class>,
    /// The slices, the oldest first.
    pub slices: Vec<Piece>,
    /// Where the next document goes on; null if there is nothing more.
    pub next_ns: Option<Nanos>,
}

/// A class, and what it is promised now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The class above; null for the link itself.
    pub parent: Option<String>,
    /// The rate that it is guaranteed; null where nothing is.
    pub guaranteed_bit_s: Option<u64>,
    /// The highest rate that it may reach, if that is known.
    pub ceiling_bit_s: Option<u64>,
    /// The longest that its packets may wait.
    pub delay_bound_ns: Bound,
}

/// The longest that packets may wait, in ns; null where nothing is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// A packet of a source that keeps to the class's guarantee.
    pub conforming: Option<Nanos>,
    /// The last packet of a full queue.
    pub queue_full: Option<Nanos>,
}

/// A stretch of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Piece {
    /// When it began, in ns since 1970.
    pub from_unix_ns: u64,
    /// When it ended.
    pub to_unix_ns: u64,
    /// The seconds that it has: how often waiting packets were counted.
    pub seconds: u32,
    /// The lowest rate that the link had in it; null if it is not known, as where the rate follows
    /// the line.
    pub rate_bit_s: Option<u64>,
    /// What the own packets of classes did: the number of the class, packets sent, their bytes,
    /// what the link charged for them, packets dropped, packets marked, bytes borrowed, bytes lent,
    /// bytes that waited at the end of each second (added up), the median wait in ns, its 99th
    /// percentile, bytes that the class could claim, and what of these it missed.
    pub points: Vec<[u64; 13]>,
}

fn numbers(class: u32, point: &Point) -> [u64; 13] {
    [
        u64::from(class),
        point.sent_packets,
        point.sent_bytes,
        point.wire_bytes,
        point.dropped_packets,
        point.marked_packets,
        point.borrowed_bytes,
        point.lent_bytes,
        point.waiting_bytes,
        point.p50,
        point.p99,
        point.promised_bytes,
        point.missed_bytes,
    ]
}

/// The slices of a history from some moment on, with about `most` points, and where to go on.
/// `unix` makes a moment of the loop's clock one of the clock of the day.
pub fn pieces(history: &History, from: Begin, most: usize, unix: impl Fn(Nanos) -> u64) -> (Vec<Piece>, Option<Nanos>) {
    let slices: Vec<SliceRef<'_>> = match from {
        Begin::Moment(moment) => history.slices(moment, Nanos::MAX).collect(),
        Begin::Next(next) => {
            // Seconds that have become part of a quarter since are taken as they are.
            let fine = history.seconds().next().is_some_and(|first| first.from <= next);
            let behind = |slice: &SliceRef<'_>| slice.from >= next;
            match fine {
                true => history.seconds().filter(behind).collect(),
                false => history.slices(next, Nanos::MAX).filter(behind).collect(),
            }
        }
    };
    let (mut pieces, mut count) = (Vec::new(), 0);
    for (at, slice) in slices.iter().enumerate() {
        let points: Vec<[u64; 13]> = slice.points().map(|(class, point)| numbers(class, &point)).collect();
        count += points.len();
        let (from_unix_ns, to_unix_ns) = (unix(slice.from), unix(slice.to));
        let rate_bit_s = Some(slice.rate_bit_s).filter(|rate| *rate > 0);
        pieces.push(Piece { from_unix_ns, to_unix_ns, seconds: slice.seconds, rate_bit_s, points });
        if count >= most && at + 1 < slices.len() {
            return (pieces, Some(slice.to));
        }
    }
    (pieces, None)
}

/// When the oldest slice began.
pub fn begins(history: &History) -> Option<Nanos> {
    let (quarter, second) = (history.quarters().next(), history.seconds().next());
    quarter.into_iter().chain(second).map(|slice| slice.from).min()
}

/// The classes of a tree, with their bounds by number.
pub fn classes(tree: &Tree, bound: impl Fn(u32) -> Bound) -> Vec<Class> {
    let all = (ROOT..).zip(tree.classes());
    all.map(|(at, class)| Class {
        name: class.name.clone(),
        parent: tree.parent(at).map(|parent| tree.name(parent).to_owned()),
        guaranteed_bit_s: class.asked.map(Rate::as_bit_s),
        ceiling_bit_s: class.ceiling.map(Rate::as_bit_s),
        delay_bound_ns: bound(at),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use altq_engine::units::SECOND;

    use super::*;
    use crate::slice::Slice;

    /// Two classes, which send n packets in second n, for so many seconds.
    fn history(seconds: u64) -> History {
        let mut history = History::new(vec!["link".into(), "a".into(), "b".into()], 1 << 24);
        for n in 0..seconds {
            let point = Point { sent_packets: n + 1, sent_bytes: 100, missed_bytes: 7, ..Point::default() };
            let mut slice = Slice::new(n * SECOND, (n + 1) * SECOND, 1, [(1, point), (2, point)]);
            slice.rate_bit_s = n * 1000;
            history.push_second(&slice);
            if n % 15 == 14 {
                history.push_quarter(&HashMap::new());
            }
        }
        history
    }

    fn unix(at: Nanos) -> u64 {
        at + 1000 * SECOND
    }

    /// All that comes after a moment, in documents of so many points: beginnings and ends in
    /// seconds.
    fn all(history: &History, moment: Nanos, most: usize) -> Vec<(u64, u64)> {
        let (mut found, mut from) = (Vec::new(), Begin::Moment(moment));
        loop {
            let (pieces, next) = pieces(history, from, most, unix);
            let times = pieces.iter().map(|piece| (piece.from_unix_ns / SECOND, piece.to_unix_ns / SECOND));
            found.extend(times);
            match next {
                Some(next) => from = Begin::Next(next),
                None => return found,
            }
        }
    }

    #[test]
    fn documents_have_every_time_once() {
        let history = history(1000);
        // Seconds from 700 on; the quarters before it end with 705.
        let whole = all(&history, 0, usize::MAX);
        assert_eq!((whole.len(), whole[0], whole[46], whole[47]), (47 + 295, (1000, 1015), (1690, 1705), (1705, 1706)));
        assert!(whole.windows(2).all(|pair| pair[0].1 == pair[1].0));
        for most in [1, 2, 7, 100] {
            assert_eq!(all(&history, 0, most), whole, "{most}");
        }
        // From within a quarter, and from within a second on.
        assert_eq!(all(&history, 20 * SECOND, 50)[0], (1015, 1030));
        assert_eq!(all(&history, 998 * SECOND + 1, 50), [(1998, 1999), (1999, 2000)]);
        assert_eq!(begins(&history), Some(0));
        assert_eq!(begins(&History::new(Vec::new(), 0)), None);
    }

    #[test]
    fn a_point_has_its_numbers() {
        let (pieces, next) = pieces(&history(3), Begin::Moment(2 * SECOND), 50, unix);
        let point = |class| [class, 3, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        let expected = Piece {
            from_unix_ns: 1002 * SECOND,
            to_unix_ns: 1003 * SECOND,
            seconds: 1,
            rate_bit_s: Some(2000),
            points: vec![point(1), point(2)],
        };
        assert_eq!((pieces, next), (vec![expected], None));
    }
}
