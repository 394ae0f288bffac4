//! From a flow's number to its bucket.

use crate::random::SplitMix64;

/// Multiply-shift (Dietzfelbinger 1996): (a x + b) / 2^32 for random a and b of 64 bits. Two flows
/// meet in one of n buckets with a probability of about 1/n, over the seeds; the numbers need not
/// be hashes themselves.
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

    /// The bucket of `flow`, of `buckets`.
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
