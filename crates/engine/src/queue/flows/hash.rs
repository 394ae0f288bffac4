//! The hash from a flow's number to its bucket.

use crate::random::SplitMix64;

/// Multiply-shift (Dietzfelbinger 1996): (a x + b) / 2^32 for random a and b of 64 bits. For a
/// random seed, two flows share one of n buckets with a probability of about 1/n. The flows'
/// numbers need not be hashes themselves.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Hash {
    a: u64,
    b: u64,
}

impl Hash {
    pub fn new(seed: u64) -> Hash {
        let mut random = SplitMix64::new(seed);
        Hash { a: random.bits() | 1, b: random.bits() }
    }

    /// The bucket of `flow`, below `buckets`.
    #[inline]
    pub fn bucket(&self, flow: u32, buckets: u32) -> u32 {
        let hash = self.of(flow);
        ((u64::from(hash) * u64::from(buckets)) >> 32) as u32
    }

    /// The hash itself.
    #[inline]
    pub fn of(&self, flow: u32) -> u32 {
        (self.a.wrapping_mul(u64::from(flow)).wrapping_add(self.b) >> 32) as u32
    }
}

/// A seed that was set while packets waited. The old hash stays until the queue is empty, so that
/// no flow changes its bucket while it has packets.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct NextSeed(Option<u64>);

impl NextSeed {
    /// The hash of a new seed if the queue is empty; else it is kept for [`due`](NextSeed::due).
    pub fn set(&mut self, seed: u64, empty: bool) -> Option<Hash> {
        self.0 = (!empty).then_some(seed);
        empty.then(|| Hash::new(seed))
    }

    /// The hash of the seed that was kept, if there is one and the queue is empty.
    #[inline]
    pub fn due(&mut self, empty: bool) -> Option<Hash> {
        if empty { self.0.take().map(Hash::new) } else { None }
    }
}
