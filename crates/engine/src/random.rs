//! Random numbers that are the same on every machine: SplitMix64.
//!
//! G. L. Steele, D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
//! 2014. A counter that grows by a fixed odd number, and a function that mixes its bits. The state
//! is 8 bytes; the period is 2^64 from any seed.

/// The number by which the counter grows: 2^64 over the golden ratio, made odd.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mixing function: every bit of `z` changes every bit of the result with a probability of
/// about one half. It maps the 64-bit numbers one to one; 0 stays 0.
#[inline]
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The generator. Equal seeds give equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that starts at this seed.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// True with probability `part`/`whole`, exact to one part in 2^32 for a `whole` below 2^32.
    #[inline]
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        (((u128::from(self.bits()) * u128::from(whole)) >> 64) as u64) < part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_published() {
        // The first outputs for seed 1234567, as the reference implementation (Vigna's
        // splitmix64.c) gives them.
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(
            [random.bits(), random.bits(), random.bits()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
