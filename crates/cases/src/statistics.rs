//! Means and percentiles, exact.

use serde::{Deserialize, Serialize};

/// A summary of delays; `None` if there were no delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        let sum: u128 = samples.iter().map(|v| u128::from(*v)).sum();
        let Some([p50, p99, max]) = percentiles(samples, [50, 99, 100]) else { return Delay::default() };
        let mean = (sum / samples.len() as u128) as u64;
        Delay { mean: Some(mean), p50: Some(p50), p99: Some(p99), max: Some(max) }
    }
}

/// The percentile by nearest rank: the smallest sample that at least `percent` of 100 do not
/// exceed. Changes the order of the samples.
pub fn percentile(samples: &mut [u64], percent: u32) -> Option<u64> {
    percentiles(samples, [percent]).map(|[value]| value)
}

/// Several percentiles as [`percentile`] defines them. `percents` must ascend; `None` if there are
/// no samples. Changes the order of the samples.
pub fn percentiles<const N: usize>(samples: &mut [u64], percents: [u32; N]) -> Option<[u64; N]> {
    let all = samples.len() as u128;
    // Samples before this index are at or below the last percentile, so they are not looked at
    // again for the next one.
    let mut below = 0;
    let mut values = [0; N];
    for (value, percent) in values.iter_mut().zip(percents) {
        let rank = (all * u128::from(percent)).div_ceil(100).clamp(1, all.max(1)) as usize;
        let nth = (rank - 1).saturating_sub(below);
        let rest = samples.get_mut(below..).filter(|rest| nth < rest.len())?;
        *value = *rest.select_nth_unstable(nth).1;
        below += nth;
    }
    Some(values)
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
        assert_eq!(percentiles(&mut list.clone(), [5, 30, 40, 50, 99]), Some([15, 20, 20, 35, 50]));
        assert_eq!(percentiles(&mut [7], [50, 99, 100]), Some([7, 7, 7]));
    }

    #[test]
    fn mean_does_not_overflow() {
        let delay = Delay::of(&mut [u64::MAX, u64::MAX, u64::MAX - 3]);
        assert_eq!((delay.mean, delay.max), (Some(u64::MAX - 1), Some(u64::MAX)));
    }
}
