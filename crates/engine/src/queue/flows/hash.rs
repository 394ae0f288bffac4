//! From a flow's number to its bucket.

/// Multiply-shift (Dietzfelbinger 1996): (a x + b) / 2^32 for random a and b of 64 bits. Two flows meet in one of n buckets with a
/// probability of about 1/n, over the seeds; the numbers need not be hashes themselves.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Hash {
    a: u64,
    b: u64,
}

impl Hash {
    pub fn new(seed: u64) -> Hash {
        let mut seed = seed;
        let a = step(&mut seed) | 1;
        Hash { a, b: step(&mut seed) }
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

/// The next number of SplitMix64 (Steele, Lea and Flood 2014).
pub(in super::super) fn step(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
