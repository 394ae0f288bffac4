//! A heap with four children an entry that knows where each class stands, so that any class can be
//! moved or taken out.
//!
//! An entry is a number: its time in the upper 96 bits, its class in the lower 32. So a comparison
//! is one of numbers, equal times go by class, and the first entry does not depend on the order in
//! which the others came. 2^96 ns of virtual time pass in 25 years on a link of 100 Gbit/s with
//! classes of 1 bit/s; what is later is taken as equally late.

/// A heap of classes by time, the earliest first. Where a class stands is kept outside, in one
/// table for all heaps of which a class is in one at most.
pub struct Heap {
    /// The first entry, or [`NONE`].
    root: u128,
    /// The children of each entry in turn; [`NONE`] where there is none.
    below: Vec<Children>,
    len: usize,
}

const WAYS: usize = 4;
/// The latest time.
const LATEST: u128 = (1 << 96) - 1;
/// No entry: later than any.
const NONE: u128 = u128::MAX;

/// The children of an entry: a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Children([u128; WAYS]);

impl Children {
    /// The earliest, and which it is.
    #[inline(always)]
    fn least(&self) -> (u128, usize) {
        let of = &self.0;
        let left = if of[1] < of[0] { (of[1], 1) } else { (of[0], 0) };
        let right = if of[3] < of[2] { (of[3], 3) } else { (of[2], 2) };
        if right.0 < left.0 { right } else { left }
    }
}

#[inline]
fn entry(time: u128, id: u32) -> u128 {
    time.min(LATEST) << 32 | u128::from(id)
}

impl Heap {
    pub const fn new() -> Heap {
        Heap { root: NONE, below: Vec::new(), len: 0 }
    }

    /// The time and the class of the first entry.
    #[inline]
    pub fn first(&self) -> Option<(u128, u32)> {
        if self.len == 0 { None } else { Some((self.root >> 32, self.root as u32)) }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where an entry is kept. The first is 0, the children of n are 4 n + 1 to 4 n + 4.
    #[inline(always)]
    fn slot(&mut self, place: usize) -> &mut u128 {
        match place.checked_sub(1) {
            None => &mut self.root,
            Some(at) => &mut self.below[at / WAYS].0[at % WAYS],
        }
    }

    /// Puts a class in.
    #[inline]
    pub fn push(&mut self, time: u128, id: u32, at: &mut [u32]) {
        let entry = entry(time, id);
        if self.len > 0 {
            return self.push_more(entry, at);
        }
        self.len = 1;
        self.root = entry;
        at[id as usize] = 0;
    }

    /// [`push`](Heap::push) where there are others.
    fn push_more(&mut self, entry: u128, at: &mut [u32]) {
        let place = self.len;
        self.len += 1;
        if (place - 1).is_multiple_of(WAYS) {
            self.below.push(Children([NONE; WAYS]));
        }
        self.rise(place, entry, at);
    }

    /// Gives a class that is in it another time.
    #[inline]
    pub fn update(&mut self, time: u128, id: u32, at: &mut [u32]) {
        let (entry, place) = (entry(time, id), at[id as usize] as usize);
        if entry < *self.slot(place) {
            self.rise(place, entry, at);
        } else {
            self.sink(place, entry, at);
        }
    }

    /// Takes a class that is in it out.
    #[inline]
    pub fn remove(&mut self, id: u32, at: &mut [u32]) {
        if self.len == 1 {
            (self.len, self.root) = (0, NONE);
            return;
        }
        self.remove_of_many(id, at);
    }

    /// [`remove`](Heap::remove) where there are others.
    fn remove_of_many(&mut self, id: u32, at: &mut [u32]) {
        let place = at[id as usize] as usize;
        self.len -= 1;
        let last = self.len;
        let moved = std::mem::replace(self.slot(last), NONE);
        if last > 0 && (last - 1).is_multiple_of(WAYS) {
            self.below.pop();
        }
        if place == last {
            return;
        }
        if moved < *self.slot(place) {
            self.rise(place, moved, at);
        } else {
            self.sink(place, moved, at);
        }
    }

    /// Puts `entry` at `place` or above it.
    fn rise(&mut self, mut place: usize, entry: u128, at: &mut [u32]) {
        while place > 0 {
            let parent = (place - 1) / WAYS;
            let above = *self.slot(parent);
            if above <= entry {
                break;
            }
            *self.slot(place) = above;
            at[above as u32 as usize] = place as u32;
            place = parent;
        }
        *self.slot(place) = entry;
        at[entry as u32 as usize] = place as u32;
    }

    /// Puts `entry` at `place` or below it.
    fn sink(&mut self, mut place: usize, entry: u128, at: &mut [u32]) {
        // The hole that moves down: whose child it is, and which.
        let (mut parent, mut lane) = match place.checked_sub(1) {
            Some(before) => (before / WAYS, before % WAYS),
            None => match self.below.first().map(Children::least) {
                Some((first, which)) if first < entry => {
                    self.root = first;
                    at[first as u32 as usize] = 0;
                    place = 1 + which;
                    (0, which)
                }
                _ => {
                    self.root = entry;
                    at[entry as u32 as usize] = 0;
                    return;
                }
            },
        };
        let below = self.below.as_mut_slice();
        while let Some(children) = below.get(place) {
            let (first, which) = children.least();
            if entry <= first {
                break;
            }
            below[parent].0[lane % WAYS] = first;
            at[first as u32 as usize] = place as u32;
            (parent, lane) = (place, which);
            place = place * WAYS + 1 + which;
        }
        below[parent].0[lane % WAYS] = entry;
        at[entry as u32 as usize] = place as u32;
    }

    pub fn memory(&self) -> usize {
        self.below.capacity() * size_of::<Children>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list that is searched.
    #[test]
    fn any_order_of_calls() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut heap, mut at, mut list) = (Heap::new(), vec![0; 200], Vec::<(u128, u32)>::new());
        for _ in 0..20_000 {
            let (id, time) = (next(200) as u32, u128::from(next(50)));
            match list.iter().position(|(_, other)| *other == id) {
                None => {
                    heap.push(time, id, &mut at);
                    list.push((time, id));
                }
                Some(place) if next(2) == 0 => {
                    heap.remove(id, &mut at);
                    list.remove(place);
                }
                Some(place) => {
                    heap.update(time, id, &mut at);
                    list[place].0 = time;
                }
            }
            assert_eq!(heap.first(), list.iter().min().copied());
            assert_eq!(heap.is_empty(), list.is_empty());
        }
    }

    #[test]
    fn later_than_the_latest_is_the_latest() {
        let (mut heap, mut at) = (Heap::new(), vec![0; 3]);
        heap.push(u128::MAX, 0, &mut at);
        heap.push(1 << 96, 1, &mut at);
        heap.push(1 << 95, 2, &mut at);
        assert_eq!(heap.first(), Some((1 << 95, 2)));
        heap.remove(2, &mut at);
        assert_eq!(heap.first(), Some((LATEST, 0)));
    }
}
