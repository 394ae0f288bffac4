//! Means and percentiles, exact.

use serde::{Deserialize, Serialize};

/// A summary of delays; `None` if there were no delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Arithmetic mean, rounded down to a nanosecond.
    pub mean: Option<u64>,
    /// The median.
    pub p50: Option<u64>,
    /// The 99th percentile.
    pub p99: Option<u64>,
    /// The longest.
    pub max: Option<u64>,
}

impl Delay {
    /// The figures of `samples`, whose order is changed.
    pub fn of(samples: &mut [u64]) -> Delay {
        if samples.is_empty() {
            return Delay::default();
        }
        let sum: u128 = samples.iter().map(|v| u128::from(*v)).sum();
        Delay {
            mean: Some((sum / samples.len() as u128) as u64),
            p50: percentile(samples, 50),
            p99: percentile(samples, 99),
            max: samples.iter().copied().max(),
        }
    }
}

/// The percentile by nearest rank: the smallest sample that at least `percent` of 100 do not
/// exceed. Changes the order of the samples.
pub fn percentile(samples: &mut [u64], percent: u32) -> Option<u64> {
    if samples.is_empty() {
        return None;
    }
    let rank = (samples.len() as u128 * u128::from(percent)).div_ceil(100).max(1) as usize;
    let (_, value, _) = samples.select_nth_unstable(rank.min(samples.len()) - 1);
    Some(*value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        // The textbook's list is 15 20 35 40 50, with ranks ceil(p/100·5).
        let list = [35, 20, 15, 50, 40];
        for (percent, expected) in [(5, 15), (30, 20), (40, 20), (50, 35), (99, 50), (100, 50)] {
            assert_eq!(percentile(&mut list.clone(), percent), Some(expected), "{percent}");
        }
        assert_eq!(percentile(&mut [], 50), None);
    }

    #[test]
    fn mean_does_not_overflow() {
        let delay = Delay::of(&mut [u64::MAX, u64::MAX, u64::MAX - 3]);
        assert_eq!((delay.mean, delay.max), (Some(u64::MAX - 1), Some(u64::MAX)));
    }
}
