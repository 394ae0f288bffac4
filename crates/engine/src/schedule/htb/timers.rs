//! Who changes its mode when: a heap of four, in which every class has at most one entry.
//!
//! A class's time only moves on while it waits, but for changes of its words; so an entry may lie there too early, and is then put
//! right when its turn comes. Entries of one time go in the order of their slots: what happens does not depend on when one asked.

/// "Not in the heap."
const OUT: u32 = u32::MAX;

/// The heap.
#[derive(Default)]
pub struct Timers {
    heap: Vec<(u64, u32)>,
    /// Where each slot's entry lies.
    places: Vec<u32>,
}

impl Timers {
    /// Makes room for a slot.
    pub fn reserve(&mut self, slot: u32) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, OUT);
            // So that filing never allocates.
            self.heap.reserve(self.places.len() - self.heap.len());
        }
    }

    /// Sees to it that the slot is asked at `due` or before.
    #[inline]
    pub fn file(&mut self, slot: u32, due: u64) {
        let place = self.places[slot as usize];
        if place == OUT {
            self.heap.push((due, slot));
            self.up(self.heap.len() - 1, (due, slot));
        } else if due < self.heap[place as usize].0 {
            self.up(place as usize, (due, slot));
        }
    }

    /// The first entry: its time and slot.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().copied()
    }

    /// Gives the first entry a later time.
    pub fn put_off(&mut self, due: u64) {
        if let Some(&(_, slot)) = self.heap.first() {
            self.down(0, (due, slot));
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

    /// Takes all entries out.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.places.fill(OUT);
    }

    #[inline]
    fn take(&mut self, at: usize) {
        let Some(last) = self.heap.pop() else { return };
        if at == self.heap.len() {
            self.places[last.1 as usize] = OUT;
            return;
        }
        self.places[self.heap[at].1 as usize] = OUT;
        if at > 0 && last < self.heap[(at - 1) / 4] {
            self.up(at, last);
        } else {
            self.down(at, last);
        }
    }

    /// Puts an entry at `at` or, as far as it belongs there, above.
    #[inline]
    fn up(&mut self, mut at: usize, entry: (u64, u32)) {
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

    /// Puts an entry at `at` or, as far as it belongs there, below.
    #[inline]
    fn down(&mut self, mut at: usize, entry: (u64, u32)) {
        loop {
            let first = at * 4 + 1;
            let last = (first + 4).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|at| self.heap[*at]).filter(|at| self.heap[*at] < entry) else { break };
            self.set(at, self.heap[least]);
            at = least;
        }
        self.set(at, entry);
    }

    #[inline]
    fn set(&mut self, at: usize, entry: (u64, u32)) {
        self.heap[at] = entry;
        self.places[entry.1 as usize] = at as u32;
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<(u64, u32)>() + self.places.capacity() * 4
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
        let (mut timers, mut set, mut due) = (Timers::default(), BTreeSet::new(), [None; 50]);
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
