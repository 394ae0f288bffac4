//! A 4-ary heap of timers, in which every class has at most one entry.
//!
//! A class's time only becomes later while it waits, unless its words change. So an entry may be
//! earlier than the class's time; it is corrected when it comes to the front. Entries of equal
//! times are in the order of their slots, so the result does not depend on when the heap is asked.

/// The place of a slot that is not in the heap.
const OUT: u32 = u32::MAX;

/// The heap.
#[derive(Default)]
pub struct TimerHeap {
    /// Time and slot in one number, so that one comparison orders both.
    heap: Vec<u128>,
    /// The index in `heap` of each slot's entry.
    places: Vec<u32>,
}

#[inline]
fn entry(due: u64, slot: u32) -> u128 {
    u128::from(due) << 32 | u128::from(slot)
}

#[inline]
fn parts(entry: u128) -> (u64, u32) {
    ((entry >> 32) as u64, entry as u32)
}

impl TimerHeap {
    /// Makes room for a slot.
    pub fn reserve(&mut self, slot: u32) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, OUT);
            // So that filing never allocates.
            self.heap.reserve(self.places.len() - self.heap.len());
        }
    }

    /// Files a timer for a slot at `due`. An earlier one that it has already stays.
    #[inline]
    pub fn file(&mut self, slot: u32, due: u64) {
        let (place, entry) = (self.places[slot as usize], entry(due, slot));
        if place == OUT {
            self.heap.push(entry);
            self.up(self.heap.len() - 1, entry);
        } else if entry < self.heap[place as usize] {
            self.up(place as usize, entry);
        }
    }

    /// The first entry: its time and slot.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().map(|entry| parts(*entry))
    }

    /// Gives the first entry a later time.
    pub fn put_off(&mut self, due: u64) {
        if let Some((_, slot)) = self.first() {
            self.down(0, entry(due, slot));
        }
    }

    /// Takes the first entry out.
    #[inline]
    pub fn pop(&mut self) {
        self.take(0);
    }

    /// Takes a slot's entry out.
    pub fn remove(&mut self, slot: u32) {
        let place = self.places[slot as usize];
        if place != OUT {
            self.take(place as usize);
        }
    }

    #[inline]
    fn take(&mut self, at: usize) {
        let Some(last) = self.heap.pop() else { return };
        let gone = self.heap.get(at).copied().unwrap_or(last);
        self.places[parts(gone).1 as usize] = OUT;
        if at == self.heap.len() {
            return;
        }
        if at > 0 && last < self.heap[(at - 1) / 4] {
            self.up(at, last);
        } else {
            self.down(at, last);
        }
    }

    /// Puts an entry at `at`, or moves it up from there to where it belongs.
    #[inline]
    fn up(&mut self, mut at: usize, entry: u128) {
        while at > 0 {
            let above = (at - 1) / 4;
            if self.heap[above] <= entry {
                break;
            }
            self.set(at, self.heap[above]);
            at = above;
        }
        self.set(at, entry);
    }

    /// Puts an entry at `at`, or moves it down from there to where it belongs.
    fn down(&mut self, mut at: usize, entry: u128) {
        loop {
            let first = at * 4 + 1;
            let Some(below) = self.heap.get(first..(first + 4).min(self.heap.len())) else { break };
            let (mut least, mut place) = (entry, at);
            for (offset, other) in below.iter().enumerate() {
                if *other < least {
                    (least, place) = (*other, first + offset);
                }
            }
            if place == at {
                break;
            }
            self.set(at, least);
            at = place;
        }
        self.set(at, entry);
    }

    #[inline]
    fn set(&mut self, at: usize, entry: u128) {
        self.heap[at] = entry;
        self.places[parts(entry).1 as usize] = at as u32;
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<u128>() + self.places.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn as_an_ordered_set() {
        let mut state = 7_u64;
        let mut random = |n: u64| {
            // Knuth's MMIX generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (mut timers, mut set, mut due) = (TimerHeap::default(), BTreeSet::new(), [None; 50]);
        timers.reserve(49);
        for _ in 0..20_000 {
            let slot = random(50) as u32;
            match random(5) {
                0..=2 => {
                    let time = random(100);
                    timers.file(slot, time);
                    let old = due[slot as usize];
                    if old.is_none_or(|old| time < old) {
                        old.map(|old| set.remove(&(old, slot)));
                        set.insert((time, slot));
                        due[slot as usize] = Some(time);
                    }
                }
                3 => {
                    timers.remove(slot);
                    due[slot as usize].take().map(|old| set.remove(&(old, slot)));
                }
                _ => {
                    let Some((time, slot)) = set.pop_first() else { continue };
                    if random(2) == 0 {
                        timers.pop();
                        due[slot as usize] = None;
                    } else {
                        let time = time + random(30);
                        timers.put_off(time);
                        set.insert((time, slot));
                        due[slot as usize] = Some(time);
                    }
                }
            }
            assert_eq!(timers.first(), set.first().copied());
        }
    }
}
