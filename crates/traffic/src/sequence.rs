//! Finds duplicate and late datagrams by their numbers.

/// How many numbers below the highest are remembered, to tell late datagrams from duplicates.
const WINDOW: u32 = 1 << 16;

/// The numbers of the datagrams that have arrived.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    highest: Option<u32>,
    /// Datagrams with numbers from 0 to the highest that have not arrived. Late ones that arrive
    /// too late to be told from duplicates stay in it.
    missing: u64,
    /// One bit per number, for the last `WINDOW` numbers up to the highest.
    seen: Vec<u64>,
}

/// How a datagram's number compares with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Its number is the highest yet.
    InOrder,
    /// A datagram with a higher number arrived before (RFC 4737, 3.3).
    Late,
    /// A datagram with the same number arrived before.
    Again,
}

impl Sequence {
    /// Notes a datagram. Numbers wrap around: a number less than 2^31 ahead of the highest is a
    /// higher one. A number more than 65536 below the highest counts as late, even if it is a
    /// duplicate.
    pub fn note(&mut self, number: u32) -> Arrival {
        if self.seen.is_empty() {
            self.seen = vec![0; WINDOW as usize / 64];
        }
        let Some(highest) = self.highest else {
            self.highest = Some(number);
            self.missing = u64::from(number);
            self.mark(number);
            return Arrival::InOrder;
        };
        let ahead = number.wrapping_sub(highest);
        if ahead == 0 {
            return Arrival::Again;
        }
        if ahead <= u32::MAX / 2 {
            // The numbers in between have not arrived, but their bits may be set for much older
            // numbers.
            if ahead >= WINDOW {
                self.seen.fill(0);
            } else {
                (1..ahead).for_each(|k| self.clear(highest.wrapping_add(k)));
            }
            self.highest = Some(number);
            self.missing = self.missing.saturating_add(u64::from(ahead) - 1);
            self.mark(number);
            return Arrival::InOrder;
        }
        if highest.wrapping_sub(number) >= WINDOW {
            return Arrival::Late;
        }
        if self.mark(number) {
            return Arrival::Again;
        }
        self.missing = self.missing.saturating_sub(1);
        Arrival::Late
    }

    /// The number of datagrams, counted from number 0 to the highest that has arrived, that have
    /// not arrived.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Sets a number's bit; true if it was set before.
    fn mark(&mut self, number: u32) -> bool {
        let (at, bit) = place(number);
        let Some(word) = self.seen.get_mut(at) else { return false };
        let was = *word & bit != 0;
        *word |= bit;
        was
    }

    fn clear(&mut self, number: u32) {
        let (at, bit) = place(number);
        if let Some(word) = self.seen.get_mut(at) {
            *word &= !bit;
        }
    }
}

fn place(number: u32) -> (usize, u64) {
    ((number % WINDOW / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_go_round() {
        let mut sequence = Sequence::default();
        for number in [u32::MAX - 1, u32::MAX, 0, 1] {
            assert_eq!(sequence.note(number), Arrival::InOrder, "{number}");
        }
        assert_eq!(sequence.note(u32::MAX), Arrival::Again);
        assert_eq!(sequence.note(1), Arrival::Again);
        assert_eq!(sequence.note(u32::MAX - 5), Arrival::Late);
        assert_eq!(sequence.note(u32::MAX - 5), Arrival::Again);
    }

    #[test]
    fn old_bits_are_forgotten() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.note(3), Arrival::InOrder);
        assert_eq!(sequence.note(4), Arrival::InOrder);
        // The same bits again, one window later: 3 had arrived, 4 had not.
        assert_eq!(sequence.note(3 + WINDOW), Arrival::InOrder);
        assert_eq!(sequence.note(5 + WINDOW), Arrival::InOrder);
        assert_eq!(sequence.note(4 + WINDOW), Arrival::Late);
        assert_eq!(sequence.note(3 + WINDOW), Arrival::Again);
        assert_eq!(sequence.note(3), Arrival::Late, "too long ago to tell");
    }

    proptest! {
        /// Compared with a set that keeps all numbers.
        #[test]
        fn as_a_set_would_say(start in any::<u32>(), steps in prop::collection::vec(0u32..400, 1..400)) {
            let mut sequence = Sequence::default();
            let (mut seen, mut highest) = (HashSet::new(), None::<u64>);
            let start = u64::from(start) + (1 << 40);
            sequence.note(start as u32);
            seen.insert(start);
            highest = highest.max(Some(start));
            let missing_before = sequence.missing();
            for (k, step) in steps.iter().enumerate() {
                let number = start + k as u64 + u64::from(*step);
                let expected = match highest {
                    _ if !seen.insert(number) => Arrival::Again,
                    Some(highest) if number < highest => Arrival::Late,
                    _ => Arrival::InOrder,
                };
                highest = highest.max(Some(number));
                prop_assert_eq!(sequence.note(number as u32), expected);
                // `start` comes first, so that what is missing begins there.
                let missing = highest.map_or(0, |highest| highest - start + 1 - seen.len() as u64);
                prop_assert_eq!(sequence.missing() - missing_before, missing);
            }
        }
    }
}
