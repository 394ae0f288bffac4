//! How long all packets of a class have waited since the start: a histogram of few ranges, for
//! collectors that keep one value of each range for every time they ask.

use altq_engine::sketch::Packed;
use altq_engine::units::{Nanos, SECOND};

const MS: Nanos = 1_000_000;

/// The upper bounds of the ranges but for the last one, which has none. Waits are known within
/// 1/32: one of just less than a bound, or just more, may be on its other side.
pub const BOUNDS: [Nanos; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    MS,
    5 * MS / 2,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    SECOND,
    5 * SECOND / 2,
    5 * SECOND,
    10 * SECOND,
];

/// How many packets waited how long. Until the first packet it takes no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waited(Option<Box<Ranges>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges {
    /// By range of [`BOUNDS`].
    counts: [u64; BOUNDS.len()],
    /// All packets, those of the last range too.
    count: u64,
    sum: u128,
}

impl Waited {
    /// Adds the packets of an interval.
    pub fn add(&mut self, interval: &Packed) {
        if interval.count() > 0 {
            let ranges = self.0.get_or_insert_default();
            interval.divide(&BOUNDS, &mut ranges.counts);
            ranges.count += interval.count();
            ranges.sum += interval.sum();
        }
    }

    /// By range, how many packets waited so long. The ranges follow one another, the last one has
    /// those that waited longer than all of [`BOUNDS`]. Times are known within 1/32.
    pub fn counts(&self) -> [u64; BOUNDS.len() + 1] {
        let mut all = [0; BOUNDS.len() + 1];
        if let Some(ranges) = &self.0 {
            all[..BOUNDS.len()].copy_from_slice(&ranges.counts);
            all[BOUNDS.len()] = ranges.count - ranges.counts.iter().sum::<u64>();
        }
        all
    }

    /// For how long all packets together have waited, in ns.
    pub fn sum(&self) -> u128 {
        self.0.as_ref().map_or(0, |ranges| ranges.sum)
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::sketch::Sketch;

    use super::*;

    #[test]
    fn each_packet_is_in_the_range_of_its_wait() {
        let mut waited = Waited::default();
        assert_eq!((waited.counts(), waited.sum()), ([0; 20], 0));
        waited.add(&Packed::default());
        assert_eq!(waited, Waited::default());
        let mut expected = [0; 20];
        let mut sum = 0;
        // Far enough from the bounds on both sides, in two intervals.
        for interval in 1..3 {
            let mut sketch = Sketch::default();
            for (range, bound) in BOUNDS.into_iter().enumerate() {
                for (value, place) in [(bound * 15 / 16, range), (bound * 17 / 16, range + 1)] {
                    for _ in 0..interval {
                        sketch.add(value);
                        expected[place] += 1;
                        sum += u128::from(value);
                    }
                }
            }
            waited.add(&sketch.packed());
        }
        assert_eq!((waited.counts(), waited.sum()), (expected, sum));
    }

    #[test]
    fn a_wait_of_hours_is_in_the_last_range() {
        let (mut waited, mut sketch) = (Waited::default(), Sketch::default());
        sketch.add(u64::MAX);
        sketch.add(0);
        waited.add(&sketch.packed());
        assert_eq!((waited.counts()[0], waited.counts()[19], waited.sum()), (1, 1, u128::from(u64::MAX)));
    }
}
