//! A set of places in the order of their numbers, with a hand that points to whose turn it is.
//!
//! A bitmap of three levels: putting in, taking out and finding the next one are a few words each, whether there are ten places or
//! a million. The kernel keeps such a set in a red-black tree by class id.

/// The set and its hand.
#[derive(Default)]
pub struct Ring {
    /// The bits of the places, then of the words that are not 0, then of the words of those.
    words: Vec<u64>,
    /// Words of the first and of the second level.
    low: u32,
    mid: u32,
    /// Places in it.
    count: u32,
    /// The turn is of the first one from here on; of the first of all if there is none.
    pub hand: u32,
}

impl Ring {
    /// Whether no place is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts a place in.
    #[inline]
    pub fn insert(&mut self, at: u32) {
        if at >> 6 >= self.low {
            self.grow(at);
        }
        let word = &mut self.words[(at >> 6) as usize];
        let (old, bit) = (*word, 1 << (at & 63));
        *word |= bit;
        self.count += u32::from(old & bit == 0);
        if old == 0 {
            let (mid, top) = (self.low as usize, (self.low + self.mid) as usize);
            self.words[mid + (at >> 12) as usize] |= 1 << (at >> 6 & 63);
            self.words[top + (at >> 18) as usize] |= 1 << (at >> 12 & 63);
        }
    }

    /// Takes a place out.
    #[inline]
    pub fn remove(&mut self, at: u32) {
        let Some(word) = self.words.get_mut((at >> 6) as usize).filter(|_| at >> 6 < self.low) else { return };
        let bit = 1 << (at & 63);
        self.count -= u32::from(*word & bit != 0);
        *word &= !bit;
        if *word == 0 {
            self.clear_above(at);
        }
    }

    fn clear_above(&mut self, at: u32) {
        let (mid, top) = (self.low as usize, (self.low + self.mid) as usize);
        let word = &mut self.words[mid + (at >> 12) as usize];
        *word &= !(1 << (at >> 6 & 63));
        if *word == 0 {
            self.words[top + (at >> 18) as usize] &= !(1 << (at >> 12 & 63));
        }
    }

    /// The first place from `at` on.
    #[inline]
    pub fn next(&self, at: u32) -> Option<u32> {
        let word = at >> 6;
        if word >= self.low {
            return None;
        }
        let rest = self.words[word as usize] & (u64::MAX << (at & 63));
        if rest != 0 {
            return Some((at & !63) + rest.trailing_zeros());
        }
        self.next_in(word + 1)
    }

    /// The first place in a word from this one on.
    fn next_in(&self, word: u32) -> Option<u32> {
        if word >= self.low {
            return None;
        }
        let (low, mid) = (self.low as usize, self.mid as usize);
        let rest = self.words[low + (word >> 6) as usize] & (u64::MAX << (word & 63));
        let mut found = (word & !63) + rest.trailing_zeros();
        if rest == 0 {
            let block = (word >> 6) + 1;
            let tops = self.words[low + mid..].iter().enumerate().skip((block >> 6) as usize);
            let mut bits =
                tops.map(|(at, bits)| (at as u32, if at as u32 == block >> 6 { bits & (u64::MAX << (block & 63)) } else { *bits }));
            let (at, bits) = bits.find(|(_, bits)| *bits != 0)?;
            let block = (at << 6) + bits.trailing_zeros();
            found = (block << 6) + self.words[low + block as usize].trailing_zeros();
        }
        Some((found << 6) + self.words[found as usize].trailing_zeros())
    }

    /// Whose turn it is.
    #[inline]
    pub fn turn(&self) -> Option<u32> {
        self.next(self.hand).or_else(|| self.next(0))
    }

    fn grow(&mut self, at: u32) {
        let all: Vec<u32> = std::iter::successors(self.next(0), |at| self.next(at + 1)).collect();
        self.low = (at >> 6).saturating_add(1).next_power_of_two();
        self.mid = self.low.div_ceil(64);
        let top = self.mid.div_ceil(64);
        self.words = vec![0; (self.low + self.mid + top) as usize];
        self.count = 0;
        all.into_iter().for_each(|at| self.insert(at));
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.words.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn as_an_ordered_set() {
        let mut state = 1_u64;
        let mut random = |n: u64| {
            // Knuth's MMIX generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % n) as u32
        };
        for most in [1, 3, 64, 65, 4_096, 5_000, 300_000] {
            let (mut ring, mut set) = (Ring::default(), BTreeSet::new());
            for _ in 0..4_000 {
                let at = random(most);
                if random(3) == 0 {
                    ring.remove(at);
                    set.remove(&at);
                } else if random(4) > 0 {
                    ring.insert(at);
                    set.insert(at);
                }
                let from = random(most + 70);
                assert_eq!(ring.next(from), set.range(from..).next().copied());
                assert_eq!(ring.is_empty(), set.is_empty());
                ring.hand = from;
                assert_eq!(ring.turn(), set.range(from..).next().or(set.first()).copied());
            }
        }
    }
}
