//! A heap with four children an entry that knows where each class stands, so that any class can be moved or taken out.
//!
//! An entry is a number: its time in the upper 96 bits, its class in the lower 32. So a comparison is one of numbers, equal times go
//! by class, and the first entry does not depend on the order in which the others came. 2^96 ns of virtual time pass in 25 years on a
//! link of 100 Gbit/s with classes of 1 bit/s; what is later is taken as equally late.

/// A heap of classes by time, the earliest first. Where a class stands is kept outside, in one table for all heaps of which a class is
/// in one at most.
pub struct Heap {
    entries: Vec<u128>,
}

const WAYS: usize = 4;
/// The latest time.
const LATEST: u128 = (1 << 96) - 1;

#[inline]
fn entry(time: u128, id: u32) -> u128 {
    time.min(LATEST) << 32 | u128::from(id)
}

/// The earliest of four entries, and which it is.
#[inline]
fn least(of: &[u128; WAYS]) -> (u128, usize) {
    let left = if of[1] < of[0] { (of[1], 1) } else { (of[0], 0) };
    let right = if of[3] < of[2] { (of[3], 3) } else { (of[2], 2) };
    if right.0 < left.0 { right } else { left }
}

impl Heap {
    pub const fn new() -> Heap {
        Heap { entries: Vec::new() }
    }

    /// The time and the class of the first entry.
    #[inline]
    pub fn first(&self) -> Option<(u128, u32)> {
        self.entries.first().map(|entry| (entry >> 32, *entry as u32))
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts a class in.
    #[inline]
    pub fn push(&mut self, time: u128, id: u32, at: &mut [u32]) {
        let (entry, place) = (entry(time, id), self.entries.len());
        self.entries.push(entry);
        if place == 0 {
            at[id as usize] = 0;
        } else {
            self.rise(place, entry, at);
        }
    }

    /// Gives a class that is in it another time.
    #[inline]
    pub fn update(&mut self, time: u128, id: u32, at: &mut [u32]) {
        let (entry, place) = (entry(time, id), at[id as usize] as usize);
        if entry < self.entries[place] {
            self.rise(place, entry, at);
        } else {
            self.sink(place, entry, at);
        }
    }

    /// Takes a class that is in it out.
    #[inline]
    pub fn remove(&mut self, id: u32, at: &mut [u32]) {
        let place = at[id as usize] as usize;
        let Some(last) = self.entries.pop() else { return };
        if place == self.entries.len() {
            return;
        }
        if last < self.entries[place] {
            self.rise(place, last, at);
        } else {
            self.sink(place, last, at);
        }
    }

    /// Puts `entry` at `place` or above it.
    fn rise(&mut self, mut place: usize, entry: u128, at: &mut [u32]) {
        let entries = self.entries.as_mut_slice();
        while place > 0 {
            let above = (place - 1) / WAYS;
            if entries[above] <= entry {
                break;
            }
            entries[place] = entries[above];
            at[entries[place] as u32 as usize] = place as u32;
            place = above;
        }
        entries[place] = entry;
        at[entry as u32 as usize] = place as u32;
    }

    /// Puts `entry` at `place` or below it.
    fn sink(&mut self, mut place: usize, entry: u128, at: &mut [u32]) {
        let entries = self.entries.as_mut_slice();
        loop {
            let below = place * WAYS + 1;
            let (first, which) = match entries.get(below..).and_then(|children| children.first_chunk()) {
                Some(children) => least(children),
                None => {
                    let children = entries.get(below..).unwrap_or_default().iter().copied().zip(0..);
                    let Some(first) = children.min() else { break };
                    first
                }
            };
            if entry <= first {
                break;
            }
            entries[place] = first;
            at[first as u32 as usize] = place as u32;
            place = below + which;
        }
        entries[place] = entry;
        at[entry as u32 as usize] = place as u32;
    }

    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<u128>()
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
