//! Counts of classes and flows by windows of time: everything that a case's expectations and its
//! result need.

use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;

/// The time of a run, cut into segments at the ends of all windows. So each window is a range of
/// segments.
#[derive(Clone, Debug)]
pub struct Segments {
    cuts: Vec<Nanos>,
}

impl Segments {
    /// Segments that begin at these times, and at 0.
    pub fn new(mut cuts: Vec<Nanos>) -> Segments {
        cuts.push(0);
        cuts.sort_unstable();
        cuts.dedup();
        Segments { cuts }
    }

    /// The number of segments.
    pub fn len(&self) -> usize {
        self.cuts.len()
    }

    /// The segment of a time. The search begins at `last`, the segment of an earlier time.
    pub fn find(&self, now: Nanos, last: usize) -> usize {
        let mut at = last;
        while self.cuts.get(at + 1).is_some_and(|cut| *cut <= now) {
            at += 1;
        }
        at
    }

    /// When a segment ends; `Nanos::MAX` for the last one.
    pub fn end(&self, segment: usize) -> Nanos {
        self.cuts.get(segment + 1).copied().unwrap_or(Nanos::MAX)
    }

    /// The segments of a window [from, to), whose ends are cuts.
    pub fn window(&self, from: Nanos, to: Nanos) -> std::ops::Range<usize> {
        let at = |time| self.cuts.partition_point(|cut| *cut < time);
        at(from)..at(to)
    }
}

/// The counts of one class or one flow in one segment.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Packets sent: by the class, or by the flow's source.
    pub sent: u64,
    /// Bytes of these packets at layer 3; for a flow: bytes received.
    pub bytes: u64,
    /// Bytes that the link charged for them; for a flow: payload delivered.
    pub charged: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// For a flow: packets lost on the way, in queues and on links.
    pub lost: u64,
    /// For a class: the sum of the times for which dropped packets had waited. (Some queues drop
    /// from their head.)
    pub dropped_wait: u128,
    /// Packets that a queue marked; for a flow only if a probe asks for it.
    pub marked: u64,
    /// For a flow: the sum of the times for which its packets waited in links with a policy; only
    /// if a probe asks for it.
    pub waited: u128,
    /// Packets that arrived at the flow's destination.
    pub received: u64,
    /// For a class: bytes on the wire, as the medium frames them.
    pub wire: u64,
    /// The delay of each packet: for a class in the link, for a flow from source to destination.
    pub delays: Vec<Nanos>,
    /// Requests answered.
    pub transactions: u64,
    /// The time of each transaction.
    pub rtts: Vec<Nanos>,
}

/// Cells of many classes or flows.
#[derive(Clone, Debug)]
pub struct Tally {
    segments: Vec<Vec<Cell>>,
}

impl Tally {
    /// Empty cells for these numbers of segments and of classes or flows.
    pub fn new(segments: usize, columns: usize) -> Tally {
        Tally { segments: vec![vec![Cell::default(); columns]; segments] }
    }

    /// A cell, which is made if it does not exist.
    #[inline]
    pub fn cell(&mut self, segment: usize, column: usize) -> &mut Cell {
        let row = &mut self.segments[segment];
        if column >= row.len() {
            widen(row, column);
        }
        &mut row[column]
    }

    /// The sums of `charged` over segments, by class or flow.
    pub fn charged(&self, segments: std::ops::Range<usize>) -> Vec<u64> {
        let mut sums = Vec::new();
        for row in self.segments.get(segments).unwrap_or(&[]) {
            sums.resize(sums.len().max(row.len()), 0);
            sums.iter_mut().zip(row).for_each(|(sum, cell)| *sum += cell.charged);
        }
        sums
    }

    /// The longest delay of a class or flow.
    pub fn longest_delay(&self, column: u32) -> Nanos {
        let cells = self.segments.iter().filter_map(|row| row.get(column as usize));
        cells.flat_map(|cell| &cell.delays).copied().max().unwrap_or(0)
    }

    /// The sum of the cells of these segments and these classes or flows.
    pub fn sum(&self, segments: std::ops::Range<usize>, columns: &[ClassId]) -> Cell {
        let mut sum = Cell::default();
        for row in self.segments.get(segments).unwrap_or(&[]) {
            for column in columns {
                let Some(cell) = row.get(*column as usize) else { continue };
                sum.sent += cell.sent;
                sum.bytes += cell.bytes;
                sum.charged += cell.charged;
                sum.dropped += cell.dropped;
                sum.lost += cell.lost;
                sum.marked += cell.marked;
                sum.waited += cell.waited;
                sum.dropped_wait += cell.dropped_wait;
                sum.received += cell.received;
                sum.wire += cell.wire;
                sum.delays.extend_from_slice(&cell.delays);
                sum.transactions += cell.transactions;
                sum.rtts.extend_from_slice(&cell.rtts);
            }
        }
        sum
    }
}

/// Makes cells up to one that does not exist.
#[cold]
fn widen(row: &mut Vec<Cell>, column: usize) {
    row.resize(column + 1, Cell::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_runs_of_segments() {
        let segments = Segments::new(vec![10, 30, 20, 10]);
        assert_eq!(segments.len(), 4);
        assert_eq!(segments.window(0, 30), 0..3);
        assert_eq!(segments.window(10, 20), 1..2);
        assert_eq!([0, 9, 10, 29, 30].map(|now| segments.find(now, 0)), [0, 0, 1, 2, 3]);
        let mut tally = Tally::new(4, 1);
        tally.cell(1, 0).bytes += 5;
        tally.cell(2, 3).bytes += 7;
        assert_eq!((tally.sum(1..3, &[0, 3]).bytes, tally.sum(0..2, &[0, 3]).bytes), (12, 5));
    }
}
