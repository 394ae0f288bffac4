//! Random numbers from a seed, or from the bytes of a fuzzer.

use std::cell::Cell;

use altq_engine::random::SplitMix64;

/// A source of numbers. The same seed, or the same bytes, give the same ones on every machine.
pub struct Random {
    bytes: Vec<u8>,
    at: Cell<usize>,
    seed: Cell<SplitMix64>,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { bytes: Vec::new(), at: Cell::new(0), seed: Cell::new(SplitMix64::new(seed)) }
    }

    /// From these bytes, and when they are used up from a seed of their number.
    #[allow(dead_code)]
    pub fn from_bytes(bytes: &[u8]) -> Random {
        Random { bytes: bytes.to_vec(), at: Cell::new(0), seed: Cell::new(SplitMix64::new(bytes.len() as u64)) }
    }

    fn bits(&self, n: u64) -> u64 {
        let bytes = if n <= 1 << 8 {
            1
        } else if n <= 1 << 16 {
            2
        } else {
            8
        };
        let at = self.at.get();
        match self.bytes.get(at..at + bytes) {
            Some(bytes) => {
                self.at.set(at + bytes.len());
                bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            }
            None => {
                let mut seed = self.seed.get();
                let bits = seed.bits();
                self.seed.set(seed);
                bits
            }
        }
    }

    /// One of 0 to `n` - 1; 0 of none.
    pub fn below(&self, n: u64) -> u64 {
        self.bits(n) % n.max(1)
    }

    /// True in `percent` of 100.
    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// 1 to `most`, every power of two as likely as another.
    pub fn scale(&self, most: u64) -> u64 {
        let bits = self.below(u64::from(64 - most.leading_zeros()) + 1);
        let bound = if bits >= 64 { most } else { (1_u64 << bits).min(most.max(1)) };
        1 + self.below(bound)
    }
}
