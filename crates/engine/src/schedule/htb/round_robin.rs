//! A round robin over places in the order of their numbers: a set of places, and a hand that points
//! to the one whose turn it is.
//!
//! The set is a tree of bitmaps: a bit of a level says whether a word of the level below is not 0,
//! and the topmost word lies in the ring itself. To put a place in, to take one out and to find the
//! next one touches a word of each level: one word for 64 places, four for a million. The kernel
//! keeps such a set in a red-black tree by class id.

/// Enough for any number.
const LEVELS: usize = 5;

/// The set and its hand.
#[derive(Default)]
pub struct RoundRobin {
    /// The topmost word.
    top: u64,
    /// Words of the levels below it, the lowest one first: of places, of words that are not 0, of
    /// words of those.
    words: Vec<u64>,
    /// Where each level begins, and the last one ends.
    starts: [u32; LEVELS + 1],
    /// Levels below the topmost word.
    levels: u8,
    /// The turn is that of the first place from this number on, or of the first place of all if
    /// there is none.
    pub hand: u32,
}

impl RoundRobin {
    /// Whether no place is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.top == 0
    }

    /// The word of a place on a level below the topmost word, if it reaches so far.
    #[inline]
    fn word(&self, level: u8, at: u32) -> Option<usize> {
        let place = self.starts[usize::from(level)] + (at >> 6);
        (place < self.starts[usize::from(level) + 1]).then_some(place as usize)
    }

    /// Puts a place in.
    #[inline]
    pub fn insert(&mut self, at: u32) {
        if self.levels == 0 && at < 64 {
            self.top |= 1 << at;
        } else {
            self.insert_far(at);
        }
    }

    fn insert_far(&mut self, at: u32) {
        if self.levels == 0 || self.word(0, at).is_none() {
            self.grow(at);
        }
        let mut at = at;
        for level in 0..self.levels {
            let Some(word) = self.word(level, at) else { return };
            let old = self.words[word];
            self.words[word] |= 1 << (at & 63);
            if old != 0 {
                return;
            }
            at >>= 6;
        }
        self.top |= 1 << (at & 63);
    }

    /// Takes a place out.
    #[inline]
    pub fn remove(&mut self, at: u32) {
        if self.levels == 0 {
            self.top &= !1_u64.checked_shl(at).unwrap_or(0);
        } else {
            self.remove_far(at);
        }
    }

    fn remove_far(&mut self, mut at: u32) {
        for level in 0..self.levels {
            let Some(word) = self.word(level, at) else { return };
            self.words[word] &= !(1 << (at & 63));
            if self.words[word] != 0 {
                return;
            }
            at >>= 6;
        }
        self.top &= !(1 << (at & 63));
    }

    /// The first place from `at` on.
    #[inline]
    pub fn next(&self, at: u32) -> Option<u32> {
        if self.levels > 0 {
            return self.next_far(at);
        }
        let rest = self.top & u64::MAX.checked_shl(at).unwrap_or(0);
        (rest != 0).then(|| rest.trailing_zeros())
    }

    fn next_far(&self, mut at: u32) -> Option<u32> {
        let mut level = 0;
        // Up, until a word holds one from here on.
        let mut found = loop {
            let word = match self.word(level, at) {
                Some(word) if level < self.levels => self.words[word],
                None if level < self.levels => return None,
                _ if at < 64 => self.top,
                _ => return None,
            };
            let rest = word & (u64::MAX << (at & 63));
            if rest != 0 {
                break (at & !63) + rest.trailing_zeros();
            }
            if level == self.levels {
                return None;
            }
            (at, level) = ((at >> 6) + 1, level + 1);
        };
        while level > 0 {
            level -= 1;
            found = self.down(level, found);
        }
        Some(found)
    }

    /// The first place of all.
    #[inline]
    fn first_far(&self) -> Option<u32> {
        let mut found = self.top.trailing_zeros();
        if found == 64 {
            return None;
        }
        for level in (0..self.levels).rev() {
            found = self.down(level, found);
        }
        Some(found)
    }

    /// The first place in a word that is not 0.
    #[inline]
    fn down(&self, level: u8, word: u32) -> u32 {
        let at = self.starts[usize::from(level)] + word;
        (word << 6) + self.words[at as usize].trailing_zeros()
    }

    /// Whose turn it is.
    #[inline]
    pub fn current(&self) -> Option<u32> {
        if self.levels > 0 {
            return self.next_far(self.hand).or_else(|| self.first_far());
        }
        let rest = self.top & u64::MAX.checked_shl(self.hand).unwrap_or(0);
        let rest = if rest == 0 { self.top } else { rest };
        (rest != 0).then(|| rest.trailing_zeros())
    }

    #[cold]
    fn grow(&mut self, at: u32) {
        let all: Vec<u32> = std::iter::successors(self.next(0), |at| self.next(at + 1)).collect();
        let mut words = (at >> 6).saturating_add(1).next_power_of_two();
        (self.levels, self.starts) = (0, [0; LEVELS + 1]);
        // A level for the places, and one for the words of the level below until a single word has
        // a bit for each.
        loop {
            let level = usize::from(self.levels);
            self.starts[level + 1] = self.starts[level] + words;
            self.levels += 1;
            if words <= 64 {
                break;
            }
            words = words.div_ceil(64);
        }
        self.words = vec![0; self.starts[usize::from(self.levels)] as usize];
        self.top = 0;
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
            let (mut ring, mut set) = (RoundRobin::default(), BTreeSet::new());
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
                assert_eq!(ring.current(), set.range(from..).next().or(set.first()).copied());
            }
        }
    }
}
