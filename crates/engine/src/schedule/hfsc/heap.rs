//! A heap with four children an entry that knows where each class stands, so that any class can be moved or taken out.
//!
//! Equal keys go by class number: the first entry does not depend on the order in which the others came.

/// A heap of classes by a key, the least first. Where a class stands is kept outside, in one table for all heaps of which a class is
/// in one at most.
pub struct Heap<K> {
    entries: Vec<(K, u32)>,
}

const WAYS: usize = 4;

impl<K: Copy + Ord> Heap<K> {
    pub const fn new() -> Heap<K> {
        Heap { entries: Vec::new() }
    }

    #[inline]
    pub fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    /// Puts a class in.
    #[inline]
    pub fn push(&mut self, key: K, id: u32, at: &mut [u32]) {
        self.entries.push((key, id));
        self.up(self.entries.len() - 1, (key, id), at);
    }

    /// Gives a class that is in it another key.
    #[inline]
    pub fn update(&mut self, key: K, id: u32, at: &mut [u32]) {
        let place = at[id as usize] as usize;
        let old = self.entries[place].0;
        if key < old {
            self.up(place, (key, id), at);
        } else {
            self.down(place, (key, id), at);
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
            self.up(place, last, at);
        } else {
            self.down(place, last, at);
        }
    }

    /// Puts `entry` at `place` or above it.
    #[inline]
    fn up(&mut self, mut place: usize, entry: (K, u32), at: &mut [u32]) {
        while place > 0 {
            let above = (place - 1) / WAYS;
            if self.entries[above] <= entry {
                break;
            }
            self.entries[place] = self.entries[above];
            at[self.entries[place].1 as usize] = place as u32;
            place = above;
        }
        self.entries[place] = entry;
        at[entry.1 as usize] = place as u32;
    }

    /// Puts `entry` at `place` or below it.
    #[inline]
    fn down(&mut self, mut place: usize, entry: (K, u32), at: &mut [u32]) {
        loop {
            let below = place * WAYS + 1;
            let end = (below + WAYS).min(self.entries.len());
            let Some(children) = self.entries.get(below..end).filter(|children| !children.is_empty()) else { break };
            let (mut least, mut which) = (children[0], 0);
            for (n, child) in children.iter().enumerate().skip(1) {
                if *child < least {
                    (least, which) = (*child, n);
                }
            }
            if entry <= least {
                break;
            }
            self.entries[place] = least;
            at[least.1 as usize] = place as u32;
            place = below + which;
        }
        self.entries[place] = entry;
        at[entry.1 as usize] = place as u32;
    }

    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<(K, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a sorted list.
    #[test]
    fn any_order_of_calls() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut heap, mut at, mut list) = (Heap::new(), vec![0; 200], Vec::<(u64, u32)>::new());
        for _ in 0..20_000 {
            let (id, key) = (next(200) as u32, next(50));
            match list.iter().position(|(_, other)| *other == id) {
                None => {
                    heap.push(key, id, &mut at);
                    list.push((key, id));
                }
                Some(place) if next(2) == 0 => {
                    heap.remove(id, &mut at);
                    list.remove(place);
                }
                Some(place) => {
                    heap.update(key, id, &mut at);
                    list[place].0 = key;
                }
            }
            assert_eq!(heap.first(), list.iter().min().copied());
            assert_eq!(heap.len(), list.len());
        }
    }
}
