//! What a result keeps for plots: classes and flows over time, delays of packets, and how fast
//! classes got their share back.

use altq_engine::units::Nanos;
use serde::{Deserialize, Serialize};

/// The quantiles of [`Delays::ns`]: close enough together to draw a distribution, with P50, P90,
/// P99 and P99.9 among them.
pub const QUANTILES: [f64; 34] = [
    0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9,
    0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999, 0.9999, 1.0,
];

/// One run (a column, a row) over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSeries {
    /// The column, if the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The row, if the case has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// Width of a bin. The first bin begins at 0; the last may be cut off by the end of the run.
    pub bin_ns: u64,
    /// Classes that had packets of their own.
    pub classes: Vec<SeriesRow>,
    /// Flows.
    pub flows: Vec<SeriesRow>,
    /// How fast classes with a guarantee got it back after a time without packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reclaims: Vec<Reclaim>,
    /// The changes of rates that adapt, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateChange>,
    /// Number of classes and flows that were left out because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// A class or a flow over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeriesRow {
    /// Its name. If several links have a class of this name, the link's name and a slash come
    /// before it.
    pub name: String,
    /// For a class: its link, as in [`ClassResult::link`](super::ClassResult::link).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// By bin: bytes that a class handed over, or that arrived at a flow's destination (in the lab:
    /// payload).
    pub bytes: Vec<u64>,
    /// By bin: packets that passed; empty if they were not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<u64>,
    /// By bin: packets dropped; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<u64>,
    /// By bin: packets marked with "congestion experienced"; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<u64>,
    /// True if the delays are round trips, as for flows of requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub round_trips: bool,
    /// By bin, the mean delay: for a class the wait in the link, for a flow the time from source to
    /// destination, or the round trip.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_mean_ns: Vec<Option<u64>>,
    /// By bin, the median delay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_p50_ns: Vec<Option<u64>>,
    /// By bin, the 99th percentile of the delay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_p99_ns: Vec<Option<u64>>,
    /// The distribution of the delays from the warm-up on.
    #[serde(default)]
    pub delays: Delays,
}

/// A rate that adapts has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RateChange {
    /// The link, as in [`ClassResult::link`](super::ClassResult::link).
    pub link: String,
    /// When.
    pub at_ns: u64,
    /// The rate from then on.
    pub bit_s: u64,
    /// Why, in a word; `start` for the rate at the beginning.
    pub reason: String,
    /// Why, in a sentence with figures.
    pub text: String,
}

/// A distribution of delays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Delays {
    /// Number of delays.
    pub count: u64,
    /// Delays at [`QUANTILES`], by nearest rank; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ns: Vec<u64>,
}

/// How long it took a class with a guarantee to get it again after a time without packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reclaim {
    /// The class, as in [`SeriesRow::name`].
    pub class: String,
    /// When its first packet arrived.
    pub at_ns: u64,
    /// Time from then to the beginning of the first window in which it got 95 % of its guarantee;
    /// `None` if that did not happen while it was watched.
    pub within_ns: Option<u64>,
    /// Length of the windows.
    pub window_ns: u64,
}

impl Delays {
    /// The distribution of samples, whose order is changed.
    pub fn of(samples: &mut [Nanos]) -> Delays {
        samples.sort_unstable();
        let count = samples.len();
        let rank = |q: f64| ((count as f64 * q).ceil() as usize).clamp(1, count.max(1)) - 1;
        Delays { count: count as u64, ns: QUANTILES.iter().filter_map(|q| samples.get(rank(*q)).copied()).collect() }
    }

    /// The delay that this fraction of the packets does not exceed, for one of [`QUANTILES`].
    pub fn quantile(&self, at: f64) -> Option<u64> {
        let place = QUANTILES.iter().position(|q| *q == at)?;
        self.ns.get(place).copied()
    }
}

/// The list, or an empty one if all its numbers are 0.
pub(crate) fn unless_zero(list: Vec<u64>) -> Vec<u64> {
    if list.iter().any(|n| *n > 0) { list } else { Vec::new() }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_nearest_rank() {
        // The q-quantile of the numbers from 1 to 1000 is 1000 q; for q = 0 it is 1.
        let delays = Delays::of(&mut (1..=1000).rev().collect::<Vec<_>>());
        assert_eq!((delays.count, delays.ns.len()), (1000, QUANTILES.len()));
        assert_eq!(
            [0.0, 0.5, 0.9, 0.99, 0.999, 1.0].map(|q| delays.quantile(q)),
            [1, 500, 900, 990, 999, 1000].map(Some)
        );
        assert_eq!((delays.quantile(0.123), Delays::of(&mut []).quantile(0.5)), (None, None));
        assert_eq!(Delays::of(&mut [7]).ns, [7; QUANTILES.len()]);
        assert!(QUANTILES.is_sorted());
    }
}
