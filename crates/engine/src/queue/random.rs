//! Lots that queues draw: the same on every machine, 8 bytes of state.

/// SplitMix64 (Steele, Lea and Flood 2014): a counter and a mixer; a period of 2^64 from any seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True in `part` of `whole` cases, to one part in 2^32 where `whole` is below that.
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
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [random.bits(), random.bits(), random.bits()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
