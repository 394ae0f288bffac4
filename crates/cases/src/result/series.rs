//! What a result keeps for plots: classes and flows over time, how long packets took, how fast
//! classes came back.

use altq_engine::units::Nanos;
use serde::{Deserialize, Serialize};

/// Where [`Delays::ns`] are quantiles: dense enough to draw a distribution, and P50, P90, P99,
/// P99.9 are among them.
pub const QUANTILES: [f64; 34] = [
    0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9,
    0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999, 0.9999, 1.0,
];

/// One run (a column, a row) over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSeries {
    /// The column, where the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The row, where the case has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// Width of a bin; the first begins at 0, the last may be cut by the run's end.
    pub bin_ns: u64,
    /// Classes that had packets of their own.
    pub classes: Vec<SeriesRow>,
    /// Flows.
    pub flows: Vec<SeriesRow>,
    /// Times that classes with a guarantee came back after they had had nothing to send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reclaims: Vec<Reclaim>,
    /// Classes and flows that were not kept, as there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// A class or a flow over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesRow {
    /// Its name; of a class behind its link's and a slash where several links have one of that
    /// name.
    pub name: String,
    /// Own bytes that a class handed over, or that arrived at a flow's destination (in the lab:
    /// payload), by bin.
    pub bytes: Vec<u64>,
    /// Packets that passed, by bin; empty where they were not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<u64>,
    /// Packets dropped, by bin; empty where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<u64>,
    /// Packets marked with congestion experienced, by bin; empty where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<u64>,
    /// The delays are round trips: of flows of requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub round_trips: bool,
    /// Mean by bin of the delays: of a class the wait in the link, of a flow the time from source
    /// to destination, or the round trip.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_mean_ns: Vec<Option<u64>>,
    /// Their median.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_p50_ns: Vec<Option<u64>>,
    /// Their 99th percentile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_p99_ns: Vec<Option<u64>>,
    /// The same from the warm-up on, as a distribution.
    #[serde(default)]
    pub delays: Delays,
}

/// A distribution of delays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delays {
    /// Of how many.
    pub count: u64,
    /// By nearest rank, at [`QUANTILES`]; empty where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ns: Vec<u64>,
}

/// A class with a guarantee came back: how long until it had its share again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaim {
    /// The class.
    pub class: String,
    /// When its first packet came.
    pub at_ns: u64,
    /// From then until the begin of the first window in which it got 95 % of its guarantee; `None`:
    /// not while it was watched.
    pub within_ns: Option<u64>,
    /// Length of the windows.
    pub window_ns: u64,
}

impl Delays {
    /// Of samples, whose order is lost.
    pub fn of(samples: &mut [Nanos]) -> Delays {
        samples.sort_unstable();
        let count = samples.len();
        let rank = |q: f64| ((count as f64 * q).ceil() as usize).clamp(1, count.max(1)) - 1;
        Delays { count: count as u64, ns: QUANTILES.iter().filter_map(|q| samples.get(rank(*q)).copied()).collect() }
    }

    /// The delay that this part of the packets does not exceed, for one of [`QUANTILES`].
    pub fn quantile(&self, at: f64) -> Option<u64> {
        let place = QUANTILES.iter().position(|q| *q == at)?;
        self.ns.get(place).copied()
    }
}

/// Empty if nothing in it counts.
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
        // Of 1 to 1000: the q-th is 1000 q, the least is 1.
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
