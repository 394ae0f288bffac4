//! Slices one behind the other, in few pieces of memory.
//!
//! A history has thousands of slices, and they stay for hours. If each had memory of its own, they
//! would lie scattered between what other work takes and frees again, and for each of them a whole
//! page would stay. So short ones share pieces of memory, and a piece is freed as a whole.

use std::collections::VecDeque;

use altq_engine::spec::ClassId;

use crate::slice::{Slice, SliceRef};

/// Bytes of a piece that slices share.
const PIECE: usize = 16 << 10;
/// A slice with more bytes of points has a piece of its own. So at most an eighth of a shared piece
/// stays empty at its end.
const SHORT: usize = PIECE / 8;

/// Where the points of a slice are.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of the piece. Pieces are counted from the first that there ever was.
    piece: usize,
    from: usize,
    length: usize,
}

/// A piece of memory.
#[derive(Clone, Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    /// How many slices have their points here.
    slices: usize,
}

/// Slices, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    heads: VecDeque<Slice<Place>>,
    pieces: VecDeque<Piece>,
    /// The number of the first piece that is still there.
    first: usize,
    /// The number of the piece to which short slices are added.
    shared: Option<usize>,
    /// Bytes of the points.
    points: usize,
}

impl Slices {
    /// Adds one at the end.
    pub fn push_back(&mut self, slice: SliceRef<'_>) {
        let packed = *slice.packed();
        let number = self.with_room(packed.len());
        let Some(piece) = self.pieces.get_mut(number.wrapping_sub(self.first)) else { return };
        let place = Place { piece: number, from: piece.bytes.len(), length: packed.len() };
        piece.bytes.extend_from_slice(packed);
        piece.slices += 1;
        self.heads.push_back(slice.with(place));
        self.points += packed.len();
    }

    /// The number of a piece that has room for so many bytes.
    fn with_room(&mut self, length: usize) -> usize {
        let next = self.first + self.pieces.len();
        if length > SHORT {
            self.pieces.push_back(Piece { bytes: Vec::with_capacity(length), slices: 0 });
            return next;
        }
        let has_room = |number: &usize| {
            let piece = self.pieces.get(number.wrapping_sub(self.first));
            piece.is_some_and(|piece| piece.bytes.len() + length <= PIECE)
        };
        if let Some(number) = self.shared.filter(has_room) {
            return number;
        }
        self.pieces.push_back(Piece { bytes: Vec::with_capacity(PIECE), slices: 0 });
        if let Some(before) = self.shared.replace(next) {
            self.free(before);
        }
        next
    }

    /// Frees a piece that no slice needs any more.
    fn free(&mut self, number: usize) {
        if let Some(piece) = self.pieces.get_mut(number.wrapping_sub(self.first))
            && piece.slices == 0
            && self.shared != Some(number)
        {
            piece.bytes = Vec::new();
        }
        while self.pieces.front().is_some_and(|piece| piece.slices == 0) && self.shared != Some(self.first) {
            self.pieces.pop_front();
            self.first += 1;
        }
    }

    /// Drops the oldest.
    pub fn pop_front(&mut self) {
        let Some(Place { piece: number, length, .. }) = self.heads.pop_front().map(|head| *head.packed()) else {
            return;
        };
        self.points -= length;
        if let Some(piece) = self.pieces.get_mut(number.wrapping_sub(self.first)) {
            piece.slices -= 1;
        }
        self.free(number);
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
            head.with(piece.and_then(|piece| piece.bytes.get(from..from + length)).unwrap_or(&[]))
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

    /// Bytes of memory held, without pieces' room that is empty: an eighth at most, and two pieces.
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
        // None, a few, some that just share a piece or just do not, and more than a piece can hold.
        let sizes = [0, 1, 3000, 7, 40, 0, 900, 2, 130, 3000, 160, 1];
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
            // Beyond the points: the end of each shared piece, what is gone of the first, and what
            // is not used yet of the last.
            let held: usize = slices.pieces.iter().map(|piece| piece.bytes.capacity()).sum();
            assert!(held * 7 <= points * 8 + 7 * 2 * PIECE, "{step}: {held} bytes for {points}");
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
