//! Which of the hashed queues holds the most bytes. Of equally long ones it is the one whose turn
//! comes first.
//!
//! A binary heap with an entry for each queue that has packets. A queue that grows is moved at
//! once. One that shrinks, or whose turn has come and goes to the end of the round, keeps its
//! entry, which then says too much, until it comes to the front. So a packet that leaves costs
//! nothing here.

/// The place of a queue that has no entry.
const OUT: u16 = u16::MAX;

/// What a queue holds, and when its turn comes: the number of the turn that it had last, of all
/// turns of all queues. The lower one is the next.
pub type Held = (u32, u64);

/// The heap.
#[derive(Default)]
pub struct Longest {
    /// The longest first.
    heap: Vec<u128>,
    /// The index in `heap` of each queue's entry.
    places: Box<[u16]>,
}

/// What a queue holds and its number, in one number: the greater one is to lose a packet first.
#[inline]
fn entry((bytes, turn): Held, at: u16) -> u128 {
    u128::from(bytes) << 80 | u128::from(!turn) << 16 | u128::from(at)
}

#[inline]
fn number(entry: u128) -> u16 {
    entry as u16
}

impl Longest {
    /// For `queues` queues, all of them empty.
    pub fn new(queues: usize) -> Longest {
        Longest { heap: Vec::with_capacity(queues), places: vec![OUT; queues].into_boxed_slice() }
    }

    /// The queue `at` got a packet, and holds so much now.
    #[inline]
    pub fn grown(&mut self, at: u16, held: Held) {
        let (place, entry) = (self.places[usize::from(at)], entry(held, at));
        if place == OUT {
            self.heap.push(entry);
            self.up(self.heap.len() - 1, entry);
        } else if entry > self.heap[usize::from(place)] {
            self.up(usize::from(place), entry);
        }
    }

    /// The longest queue. `held` says what a queue holds now; `None` if it is empty.
    pub fn find(&mut self, held: impl Fn(u16) -> Option<Held>) -> Option<u16> {
        loop {
            let first = *self.heap.first()?;
            let at = number(first);
            match held(at) {
                None => {
                    self.places[usize::from(at)] = OUT;
                    let last = self.heap.pop()?;
                    if !self.heap.is_empty() {
                        self.down(last);
                    }
                }
                Some(now) if entry(now, at) == first => return Some(at),
                Some(now) => self.down(entry(now, at)),
            }
        }
    }

    /// Puts an entry at a free place, or above it.
    #[inline]
    fn up(&mut self, mut place: usize, entry: u128) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above] >= entry {
                break;
            }
            self.set(place, self.heap[above]);
            place = above;
        }
        self.set(place, entry);
    }

    /// Puts an entry in the place of the first one, or below it.
    fn down(&mut self, entry: u128) {
        let mut place = 0;
        loop {
            let left = 2 * place + 1;
            let Some(mut below) = self.heap.get(left).map(|_| left) else { break };
            if self.heap.get(left + 1).is_some_and(|right| *right > self.heap[left]) {
                below = left + 1;
            }
            if self.heap[below] <= entry {
                break;
            }
            self.set(place, self.heap[below]);
            place = below;
        }
        self.set(place, entry);
    }

    #[inline]
    fn set(&mut self, place: usize, entry: u128) {
        self.heap[place] = entry;
        self.places[usize::from(number(entry))] = place as u16;
    }

    /// Bytes of memory held beyond its own size.
    pub fn memory(&self) -> usize {
        self.heap.capacity() * 16 + self.places.len() * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// Compared with a search through all queues.
    #[test]
    fn as_a_search_through_all() {
        let mut random = SplitMix64::new(1);
        let mut held = [(0_u32, 0_u64); 20];
        let mut longest = Longest::new(held.len());
        for turn in 1..20_000 {
            let at = (random.bits() % 20) as usize;
            if random.chance(1, 2) {
                held[at].0 += 100 * (1 + (random.bits() % 4) as u32);
                longest.grown(at as u16, held[at]);
            } else {
                held[at] = (held[at].0.saturating_sub(300), turn);
            }
            if random.chance(1, 3) {
                let waiting = held.iter().enumerate().filter(|(_, held)| held.0 > 0);
                let first = waiting.max_by_key(|(at, held)| (held.0, !held.1, *at)).map(|(at, _)| at);
                let found = longest.find(|at| Some(held[usize::from(at)]).filter(|held| held.0 > 0));
                assert_eq!(found.map(usize::from), first);
            }
        }
    }
}
