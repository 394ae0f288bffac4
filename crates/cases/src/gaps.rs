//! Gaps between the packets of a flow: mean, deviation, and the modes of their distribution.
//!
//! Gaps show what mean rates hide: a class that is served in rounds of a timer has gaps of two
//! kinds, and the mean is neither. They are counted in buckets of 1/16 octave, in fixed memory. A
//! *mode* is a peak of that histogram (smoothed over one bucket to each side) which
//!
//! - is at least twice as high as the valley between it and any higher peak,
//! - stands out of that valley by three deviations of such a count (Poisson), and
//! - holds at least a twentieth of all gaps between its valleys.

use altq_engine::sketch::{bucket, buckets};
use altq_engine::units::Nanos;
use serde::{Deserialize, Serialize};

/// Number of bits below the leading one by which buckets differ. The buckets are wider than those
/// of a `Sketch`, and each keeps the sum of its gaps, because modes need smooth counts and exact
/// means.
const BITS: u32 = 4;
const BUCKETS: usize = buckets(BITS);

/// The smallest fraction of all gaps that a mode holds.
const LEAST: f64 = 0.05;

/// The gaps of a flow.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Number and sum of the gaps in every bucket. Allocated at the first gap.
    buckets: Option<Box<[(u32, u64); BUCKETS]>>,
    count: u64,
    /// Mean and sum of squared deviations so far (Welford 1962).
    mean: f64,
    squares: f64,
    min: Nanos,
    max: Nanos,
    last: Option<Nanos>,
}

/// A summary of a flow's gaps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GapSummary {
    /// Number of gaps, which is one less than that of packets.
    pub count: u64,
    /// Their mean.
    pub mean_ns: Nanos,
    /// Their standard deviation.
    pub deviation_ns: Nanos,
    /// The shortest.
    pub min_ns: Nanos,
    /// The longest.
    pub max_ns: Nanos,
    /// The modes, from the shortest gap to the longest.
    pub modes: Vec<Mode>,
}

/// A frequent gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mode {
    /// The mean of the gaps around the peak.
    pub at_ns: Nanos,
    /// The fraction of all gaps that is between the peak's valleys.
    pub share: f64,
}

/// A whole number as a double. Processors convert numbers with a sign in one step.
#[inline]
fn float(value: u64) -> f64 {
    i64::try_from(value).map_or(value as f64, |value| value as f64)
}

impl Gaps {
    /// Counts a packet that arrives at `now`.
    #[inline]
    pub fn arrived(&mut self, now: Nanos) {
        if let Some(last) = self.last.replace(now) {
            self.add(now.saturating_sub(last));
        }
    }

    /// Adds a gap.
    pub fn add(&mut self, gap: Nanos) {
        let buckets = self.buckets.get_or_insert_with(|| Box::new([(0, 0); BUCKETS]));
        if let Some((count, sum)) = buckets.get_mut(bucket::<BITS>(gap)) {
            *count = count.saturating_add(1);
            *sum = sum.saturating_add(gap);
        }
        if self.count == 0 {
            self.min = gap;
        }
        self.min = self.min.min(gap);
        self.max = self.max.max(gap);
        self.count += 1;
        let (gap, count) = (float(gap), float(self.count));
        let off = gap - self.mean;
        self.mean += off / count;
        self.squares += off * (gap - self.mean);
    }

    /// Number of gaps.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The summary; `None` without gaps.
    pub fn summary(&self) -> Option<GapSummary> {
        if self.count == 0 {
            return None;
        }
        Some(GapSummary {
            count: self.count,
            mean_ns: self.mean.round() as Nanos,
            deviation_ns: (self.squares / self.count as f64).max(0.0).sqrt().round() as Nanos,
            min_ns: self.min,
            max_ns: self.max,
            modes: self.modes(),
        })
    }

    fn modes(&self) -> Vec<Mode> {
        let Some(buckets) = &self.buckets else { return Vec::new() };
        let count = |at: usize| buckets.get(at).map_or(0.0, |(count, _)| f64::from(*count));
        let smooth: Vec<f64> =
            (0..BUCKETS).map(|at| at.checked_sub(1).map_or(0.0, count) + 2.0 * count(at) + count(at + 1)).collect();
        let mut peaks = Vec::new();
        for (at, height) in smooth.iter().copied().enumerate() {
            let before = at.checked_sub(1).and_then(|at| smooth.get(at)).copied().unwrap_or(0.0);
            let after = smooth.get(at + 1).copied().unwrap_or(0.0);
            if height > before && height >= after {
                let valley = valley(smooth[..at].iter().rev(), height).max(valley(smooth[at + 1..].iter(), height));
                // The smoothing has weights 1, 2, 1, so a count c has the height 4c and the
                // variance 6c.
                if height >= 2.0 * valley && height - valley >= 3.0 * (1.5 * height).sqrt() {
                    peaks.push(at);
                }
            }
        }
        // The gaps of a peak are those between the lowest points that separate it from its
        // neighbours.
        let lowest =
            |from: usize, to: usize| (from..to).min_by(|a, b| smooth[*a].total_cmp(&smooth[*b])).unwrap_or(from);
        let mut edges = vec![0];
        edges.extend(peaks.windows(2).map(|pair| lowest(pair[0], pair[1])));
        edges.push(BUCKETS);
        let mut modes = Vec::new();
        for (peak, edge) in peaks.iter().zip(edges.windows(2)) {
            let share = (edge[0]..edge[1]).map(count).sum::<f64>() / self.count as f64;
            let around = &buckets[peak.saturating_sub(1)..(peak + 2).min(BUCKETS)];
            let (number, sum) = around
                .iter()
                .fold((0u64, 0u128), |(n, sum), (count, of)| (n + u64::from(*count), sum + u128::from(*of)));
            if share >= LEAST && number > 0 {
                modes.push(Mode { at_ns: (sum / u128::from(number)) as Nanos, share });
            }
        }
        modes
    }
}

/// The lowest height on the way to one that is higher than `peak`; 0 if there is none.
fn valley<'a>(way: impl Iterator<Item = &'a f64>, peak: f64) -> f64 {
    let mut lowest = peak;
    for height in way {
        if *height > peak {
            return lowest;
        }
        lowest = lowest.min(*height);
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const MS: Nanos = 1_000_000;

    #[test]
    fn figures_of_a_few_gaps() {
        // 2, 4, 4, 4, 5, 5, 7, 9: mean 5, deviation 2, the example of every textbook.
        let mut gaps = Gaps::default();
        assert_eq!(gaps.summary(), None);
        let mut now = 1_000 * MS;
        gaps.arrived(now);
        for gap in [2, 4, 4, 4, 5, 5, 7, 9] {
            now += gap * MS;
            gaps.arrived(now);
        }
        let summary = gaps.summary().unwrap();
        assert_eq!((summary.count, summary.mean_ns, summary.deviation_ns), (8, 5 * MS, 2 * MS));
        assert_eq!((summary.min_ns, summary.max_ns), (2 * MS, 9 * MS));
        // These are too few gaps for modes.
        assert_eq!(summary.modes, []);
    }

    #[test]
    fn one_gap_is_one_mode() {
        let mut gaps = Gaps::default();
        (0..1000).for_each(|k| gaps.arrived(k * 2_840_000));
        let summary = gaps.summary().unwrap();
        assert_eq!((summary.mean_ns, summary.deviation_ns), (2_840_000, 0));
        assert_eq!(summary.modes, [Mode { at_ns: 2_840_000, share: 1.0 }]);
    }

    #[test]
    fn two_kinds_of_gaps_are_two_modes() {
        // Five gaps of 16.7 ms, then one of 176 ms, each up to a tenth longer or shorter.
        let mut random = Random::new(1, 1);
        let mut gaps = Gaps::default();
        for k in 0..6_000u64 {
            let middle = if k % 6 == 5 { 176 * MS } else { 16_700_000 };
            gaps.add(middle * 9 / 10 + u64::from(random.below((middle / 5) as u32)));
        }
        let modes = gaps.summary().unwrap().modes;
        assert_eq!(modes.len(), 2, "{modes:?}");
        // The gaps are evenly spread by a tenth, so the peak may be anywhere in that range.
        for (mode, (at, share)) in modes.iter().zip([(16.7e6, 5.0 / 6.0), (176e6, 1.0 / 6.0)]) {
            assert!((mode.at_ns as f64 / at - 1.0).abs() < 0.1, "{mode:?}");
            assert!((mode.share - share).abs() < 0.01, "{mode:?}");
        }
    }

    #[test]
    fn a_smooth_distribution_has_at_most_one_mode() {
        // Exponential gaps, as from a Poisson source, make one broad hill at the mean on a scale of
        // octaves.
        for seed in 0..20 {
            let mut random = Random::new(seed, 7);
            let mut gaps = Gaps::default();
            (0..20_000).for_each(|_| gaps.add(random.exponential(10 * MS)));
            let modes = gaps.summary().unwrap().modes;
            assert_eq!(modes.len(), 1, "seed {seed}: {modes:?}");
            assert!((5 * MS..20 * MS).contains(&modes[0].at_ns), "seed {seed}: {modes:?}");
        }
    }

    #[test]
    fn no_gap_is_too_long() {
        let mut gaps = Gaps::default();
        gaps.arrived(5);
        gaps.arrived(3);
        gaps.add(Nanos::MAX);
        assert_eq!(gaps.summary().unwrap().max_ns, Nanos::MAX);
    }
}
