//! Random numbers that are the same on every machine: PCG32, with one generator per flow.
//! Everything else is built on additions, multiplications and divisions of IEEE 754, because a
//! library's logarithm may differ in the last bit from one system to the next.

use altq_engine::random::{GOLDEN_GAMMA, SplitMix64};
use altq_engine::units::Nanos;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Pcg32);

impl Random {
    /// Generator number `stream` for a seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        // Generators with the same state are correlated, so the state depends on the number too.
        let mut states = SplitMix64::new(seed.wrapping_add(stream.wrapping_mul(GOLDEN_GAMMA)));
        Random(Pcg32::new(states.bits(), stream))
    }

    /// A number below `n`, all with equal probability; 0 if `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        if n < 2 {
            return 0;
        }
        // Lemire 2019: the high half of a product, where the few values that would favour some are
        // rejected.
        let least = n.wrapping_neg() % n;
        loop {
            let product = u64::from(self.0.next_u32()) * u64::from(n);
            if product as u32 >= least {
                return (product >> 32) as u32;
            }
        }
    }

    /// A time from 0 to `most`, all with equal probability.
    pub fn up_to(&mut self, most: Nanos) -> Nanos {
        // The high half of a 128-bit product: with 2^64 random values no result is favoured by more
        // than most/2^64.
        ((u128::from(self.0.next_u64()) * (u128::from(most) + 1)) >> 64) as Nanos
    }

    /// True with this probability.
    pub fn chance(&mut self, share: f64) -> bool {
        self.fraction() <= share
    }

    /// A fraction above 0 and up to 1.
    fn fraction(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A time from the exponential distribution with this mean, at least a nanosecond.
    pub fn exponential(&mut self, mean: Nanos) -> Nanos {
        let span = minus_ln(self.fraction()) * mean as f64;
        (span as Nanos).max(1)
    }

    /// A time from the Pareto distribution with this mean and a shape above 1, at least a
    /// nanosecond: least / u^(1/shape).
    pub fn pareto(&mut self, mean: Nanos, shape: f64) -> Nanos {
        let least = mean as f64 * (shape - 1.0) / shape;
        ((least * exp(minus_ln(self.fraction()) / shape)) as Nanos).max(1)
    }
}

/// e^x for x from 0 on: x = k ln 2 + r with r within half of ln 2, a Taylor series of r, times 2^k.
fn exp(x: f64) -> f64 {
    let k = (x / std::f64::consts::LN_2).round().min(1000.0);
    let r = x.min(700.0) - k * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for n in (1..=18).rev() {
        sum = 1.0 + sum * r / f64::from(n);
    }
    sum * f64::from_bits(((k as u64) + 1023) << 52)
}

/// -ln(x) for x above 0 and up to 1: x = m·2^e with m within a factor of sqrt(2) of 1, and ln m = 2
/// artanh((m-1)/(m+1)).
fn minus_ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        exponent += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for k in (0..12).rev() {
        sum = sum * square + 1.0 / (2 * k + 1) as f64;
    }
    -(2.0 * s * sum + exponent as f64 * std::f64::consts::LN_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm() {
        for k in 1..=10_000 {
            let x = k as f64 / 10_000.0;
            assert!((minus_ln(x) + x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "{x}");
        }
        assert!((minus_ln(2f64.powi(-53)) - 53.0 * std::f64::consts::LN_2).abs() < 1e-13);
    }

    #[test]
    fn exponential_function() {
        for k in 0..=4_000 {
            let x = k as f64 / 100.0;
            assert!((exp(x) / x.exp() - 1.0).abs() <= 1e-13, "{x}");
        }
    }

    #[test]
    fn distributions() {
        let mut random = Random::new(7, 3);
        let n = 200_000;
        let draws: Vec<u64> = (0..n).map(|_| random.exponential(1_000_000)).collect();
        let mean = draws.iter().sum::<u64>() as f64 / n as f64;
        // The mean of n values has a standard deviation of 1/sqrt(n); five of them are allowed.
        assert!((mean / 1e6 - 1.0).abs() < 5.0 / (n as f64).sqrt(), "{mean}");
        let beyond = draws.iter().filter(|d| **d > 1_000_000).count() as f64 / n as f64;
        assert!((beyond - (-1f64).exp()).abs() < 0.006, "{beyond}");
        let mut counts = [0u32; 3];
        (0..30_000).for_each(|_| counts[random.below(3) as usize] += 1);
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| -> Vec<u32> {
            let mut random = Random::new(seed, stream);
            (0..8).map(|_| random.below(u32::MAX)).collect()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert!(draw(1, 2) != draw(1, 3) && draw(1, 2) != draw(2, 2));
    }
}
