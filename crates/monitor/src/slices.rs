//! Slices one behind the other, in few pieces of memory.
//!
//! A history has thousands of slices, and they stay for hours. If each had memory of its own, they
//! would lie scattered between what other work takes and frees again, and for each of them a whole
//! page would stay. So they share pieces of memory, and a piece is freed as a whole.

use std::collections::VecDeque;

use altq_engine::spec::ClassId;

use crate::slice::{Slice, SliceRef};

/// Bytes of a piece. A slice with more points has a piece of its own.
const PIECE: usize = 16 << 10;

/// Where the points of a slice are.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of the piece. Pieces are counted from the first that there ever was.
    piece: usize,
    from: usize,
    length: usize,
}

/// Slices, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    heads: VecDeque<Slice<Place>>,
    pieces: VecDeque<Vec<u8>>,
    /// The number of the first piece that is still there.
    first: usize,
    /// Bytes of the points.
    points: usize,
}

impl Slices {
    /// Adds one at the end.
    pub fn push_back(&mut self, slice: SliceRef<'_>) {
        let packed = *slice.packed();
        let room = self.pieces.back().map_or(0, |piece| piece.capacity() - piece.len());
        if self.pieces.is_empty() || room < packed.len() {
            self.pieces.push_back(Vec::with_capacity(packed.len().max(PIECE)));
        }
        let number = self.first + self.pieces.len() - 1;
        if let Some(piece) = self.pieces.back_mut() {
            let place = Place { piece: number, from: piece.len(), length: packed.len() };
            piece.extend_from_slice(packed);
            self.heads.push_back(slice.with(place));
            self.points += packed.len();
        }
    }

    /// Drops the oldest.
    pub fn pop_front(&mut self) {
        let Some(head) = self.heads.pop_front() else { return };
        self.points -= head.packed().length;
        let used = self.heads.front().map(|head| head.packed().piece);
        // The last piece stays if there is room left: the next slice goes there.
        while self.first < used.unwrap_or(self.first + self.pieces.len().saturating_sub(1)) {
            self.pieces.pop_front();
            self.first += 1;
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SliceRef<'_>> + ExactSizeIterator {
        self.heads.iter().map(|head| {
            let Place { piece, from, length } = *head.packed();
            let piece = self.pieces.get(piece.wrapping_sub(self.first));
            head.with(piece.and_then(|piece| piece.get(from..from + length)).unwrap_or(&[]))
        })
    }

    /// The oldest.
    pub fn front(&self) -> Option<SliceRef<'_>> {
        self.iter().next()
    }

    /// The latest.
    pub fn back(&self) -> Option<SliceRef<'_>> {
        self.iter().next_back()
    }

    /// Gives their classes other numbers. `new` has the new number by old number.
    pub fn renumber(&mut self, new: &[ClassId]) {
        for _ in 0..self.len() {
            let Some(slice) = self.front().map(|slice| slice.renumbered(new)) else { return };
            self.pop_front();
            self.push_back(slice.view());
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.heads.len() * size_of::<Slice<Place>>() + self.points
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::slice::Point;

    fn slice(second: u64, classes: ClassId) -> Slice {
        let point = Point { sent_packets: second + 1, sent_bytes: second * 1000 + 1, ..Point::default() };
        Slice::new(second, second + 1, 1, (0..classes).map(|class| (class, point)))
    }

    #[test]
    fn slices_of_all_sizes_come_back_and_no_piece_is_kept_without_need() {
        // None, a few, and more classes than a piece can hold.
        let sizes = [0, 1, 3000, 7, 40, 0, 900, 2, 2, 3000, 3000, 1];
        let (mut slices, mut expected) = (Slices::default(), VecDeque::new());
        for step in 0..4000u64 {
            // It grows to 300, shrinks to nothing, and grows again.
            let shrinks = step / 300 % 2 == 1;
            if shrinks || expected.len() > 300 {
                slices.pop_front();
                expected.pop_front();
            } else {
                let next = slice(step, sizes[step as usize * 7 % sizes.len()]);
                slices.push_back(next.view());
                expected.push_back(next);
            }
            assert!(slices.iter().eq(expected.iter().map(Slice::view)), "{step}");
            assert_eq!(slices.len(), expected.len());
            assert_eq!(slices.back(), expected.back().map(Slice::view));
            let points: usize = expected.iter().map(|slice| slice.view().packed().len()).sum();
            assert_eq!(slices.points, points);
            assert_eq!(slices.memory(), points + expected.len() * size_of::<Slice<Place>>());
            // What is held beyond the points: the ends of pieces, where a slice did not fit (it was
            // no longer than that of 3000 classes, 39,000 bytes), and what is gone of the first.
            let held: usize = slices.pieces.iter().map(Vec::capacity).sum();
            assert!(held <= 2 * points + 2 * 45_000, "{step}: {held} bytes for {points}");
        }
    }

    #[test]
    fn they_get_other_numbers_in_their_place() {
        let (old, new) = ([slice(1, 3), slice(2, 0), slice(3, 2)], [0, 2, 1]);
        let mut slices = Slices::default();
        old.iter().for_each(|slice| slices.push_back(slice.view()));
        slices.renumber(&new);
        let expected: Vec<Slice> = old.iter().map(|slice| slice.view().renumbered(&new)).collect();
        assert!(slices.iter().eq(expected.iter().map(Slice::view)));
    }
}
