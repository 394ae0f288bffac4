//! A histogram of times in fixed memory, which can be merged: buckets whose width grows with the
//! value, as in an HDR histogram.

use crate::units::Nanos;

/// Number of bits below the leading one that select a bucket. With 5, percentiles are within 1/32
/// of the true value.
const BITS: u32 = 5;
/// The highest leading bit: buckets reach up to 2^41 ns, 36 minutes. Longer times count in the last
/// bucket.
const TOP_BIT: u32 = 40;
const BUCKETS: usize = buckets(BITS);

/// A distribution of times.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    /// Allocated with the first value, so that classes without packets cost nothing.
    counts: Option<Box<[u32; BUCKETS]>>,
    count: u64,
    sum: u128,
    max: Nanos,
}

/// A sketch that stores only the buckets with values: for keeping many sketches of few values each,
/// and, with the feature `serde`, for sending them to where they are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Packed {
    /// Buckets with values, and their counts.
    counts: Box<[(u16, u32)]>,
    count: u64,
    sum: u128,
    max: Nanos,
}

impl Packed {
    /// Bytes of memory held, without the struct itself.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.counts)
    }

    /// True if its figures can belong together. To be asked of one that came from elsewhere: sums
    /// of such sketches do not overflow.
    pub fn is_sound(&self) -> bool {
        let ascending = self.counts.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let known = self.counts.last().is_none_or(|(at, _)| usize::from(*at) < BUCKETS);
        let counted: u64 = self.counts.iter().map(|(_, count)| u64::from(*count)).sum();
        let most = u128::from(self.count) * u128::from(self.max);
        ascending && known && counted <= self.count && self.count < 1 << 53 && self.sum <= most
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact maximum; 0 without values.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The sum of the values.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Adds to `counts` how many values are at most the first of `bounds`, how many of the others
    /// are at most the second, and so on; those above all bounds are not counted. Bounds ascend.
    /// Values are known within 1/32.
    pub fn divide(&self, bounds: &[Nanos], counts: &mut [u64]) {
        let mut range = 0;
        for (at, count) in &self.counts {
            let value = middle(usize::from(*at)).min(self.max);
            while bounds.get(range).is_some_and(|bound| *bound < value) {
                range += 1;
            }
            let (Some(_), Some(counted)) = (bounds.get(range), counts.get_mut(range)) else { return };
            *counted += u64::from(*count);
        }
    }

    /// As [`Sketch::percentile`].
    pub fn percentile(&self, per_cent: f64) -> Nanos {
        let counts = self.counts.iter().map(|(at, count)| (usize::from(*at), *count));
        nearest(counts, per_cent, self.count, self.max)
    }
}

/// The percentile by nearest rank of `count` values in buckets.
fn nearest(buckets: impl Iterator<Item = (usize, u32)>, per_cent: f64, count: u64, max: Nanos) -> Nanos {
    let rank = ((count as f64 * per_cent / 100.0).ceil() as u64).clamp(1, count.max(1));
    let mut seen = 0;
    for (at, count) in buckets {
        seen += u64::from(count);
        if seen >= rank {
            return middle(at).min(max);
        }
    }
    max
}

impl Sketch {
    /// A packed copy.
    pub fn packed(&self) -> Packed {
        let counts = self.counts.iter().flat_map(|counts| counts.iter().enumerate());
        let held = counts.filter(|(_, count)| **count > 0).map(|(at, count)| (at as u16, *count));
        Packed { counts: held.collect(), count: self.count, sum: self.sum, max: self.max }
    }

    /// Adds all values of a packed sketch.
    pub fn merge_packed(&mut self, other: &Packed) {
        if other.count == 0 {
            return;
        }
        let ours = self.counts.get_or_insert_with(|| Box::new([0; BUCKETS]));
        for (at, count) in &other.counts {
            if let Some(our) = ours.get_mut(usize::from(*at)) {
                *our = our.saturating_add(*count);
            }
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: Nanos) {
        let counts = self.counts.get_or_insert_with(|| Box::new([0; BUCKETS]));
        if let Some(count) = counts.get_mut(bucket::<BITS>(value)) {
            *count = count.saturating_add(1);
        }
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of another sketch.
    pub fn merge(&mut self, other: &Sketch) {
        let Some(theirs) = &other.counts else { return };
        let ours = self.counts.get_or_insert_with(|| Box::new([0; BUCKETS]));
        for (our, their) in ours.iter_mut().zip(theirs.iter()) {
            *our = our.saturating_add(*their);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Removes all values; the memory stays allocated.
    pub fn clear(&mut self) {
        if let Some(counts) = &mut self.counts {
            counts.fill(0);
        }
        (self.count, self.sum, self.max) = (0, 0, 0);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact maximum; 0 without values.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The mean, rounded down; 0 without values.
    pub fn mean(&self) -> Nanos {
        if self.count == 0 { 0 } else { (self.sum / u128::from(self.count)) as Nanos }
    }

    /// The percentile (0 to 100) by nearest rank, within 1/32 of the true value; 0 without values.
    pub fn percentile(&self, per_cent: f64) -> Nanos {
        let Some(counts) = &self.counts else { return 0 };
        nearest(counts.iter().copied().enumerate(), per_cent, self.count, self.max)
    }
}

/// Number of buckets if `bits` bits below the leading one select a bucket.
pub const fn buckets(bits: u32) -> usize {
    (TOP_BIT - bits + 2) as usize * (1 << bits)
}

/// The bucket of a value, less than [`buckets`] of the same number of bits. Values of 2^41 ns and
/// more are in the last bucket.
#[inline]
pub fn bucket<const BITS: u32>(value: Nanos) -> usize {
    let sub = 1 << BITS;
    if value < sub as u64 {
        return value as usize;
    }
    let top = value.ilog2();
    if top > TOP_BIT {
        return buckets(BITS) - 1;
    }
    (top - BITS + 1) as usize * sub + ((value >> (top - BITS)) as usize & (sub - 1))
}

/// The middle of a sketch's bucket.
fn middle(at: usize) -> Nanos {
    let sub = 1 << BITS;
    if at < sub {
        return at as Nanos;
    }
    let shift = (at / sub - 1) as u32;
    let low = ((sub + at % sub) as Nanos) << shift;
    low + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thirty_second() {
        let mut sketch = Sketch::default();
        let mut values: Vec<u64> = (0..10_000u64).map(|i| i * i * 37 % 1_000_003 * (1 + i % 977)).collect();
        values.iter().for_each(|v| sketch.add(*v));
        values.sort_unstable();
        for per_cent in [0.0, 1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let rank = ((values.len() as f64 * per_cent / 100.0).ceil() as usize).clamp(1, values.len());
            let (exact, got) = (values[rank - 1] as f64, sketch.percentile(per_cent) as f64);
            assert!((got - exact).abs() <= exact / 32.0 + 1.0, "{per_cent}: {got} for {exact}");
        }
        assert_eq!(sketch.max(), values[values.len() - 1]);
        assert_eq!(sketch.mean(), values.iter().sum::<u64>() / 10_000);
    }

    #[test]
    fn buckets_hold_their_own_middle_and_everything_has_one() {
        for at in 0..BUCKETS {
            assert_eq!(bucket::<BITS>(middle(at)), at);
        }
        for value in [0, 1, 31, 32, 33, 63, 64, u64::MAX, 1 << 40, (1 << 41) - 1, 1 << 41] {
            assert!(bucket::<BITS>(value) < BUCKETS);
        }
    }

    #[test]
    fn merging_is_adding() {
        let (mut a, mut b, mut both) = (Sketch::default(), Sketch::default(), Sketch::default());
        for value in 0..1000u64 {
            if value % 3 == 0 {
                a.add(value * 1000)
            } else {
                b.add(value * 1000)
            }
            both.add(value * 1000);
        }
        let mut packed = Sketch::default();
        packed.merge_packed(&a.packed());
        packed.merge_packed(&b.packed());
        packed.merge_packed(&Sketch::default().packed());
        let sound = Packed { counts: Box::new([(3, 1), (9, 2)]), count: 3, sum: 21, max: 9 };
        assert!(sound.is_sound() && Packed::default().is_sound() && a.packed().is_sound());
        for wrong in [
            Packed { counts: Box::new([(9, 1), (3, 2)]), ..sound.clone() },
            Packed { counts: Box::new([(u16::MAX, 1)]), ..sound.clone() },
            Packed { count: 2, ..sound.clone() },
            Packed { count: u64::MAX, ..sound.clone() },
            Packed { sum: 28, ..sound.clone() },
        ] {
            assert!(!wrong.is_sound(), "{wrong:?}");
        }
        a.merge(&b);
        for sum in [&a, &packed] {
            for per_cent in [1.0, 50.0, 99.0] {
                assert_eq!(sum.percentile(per_cent), both.percentile(per_cent));
            }
            assert_eq!((sum.count(), sum.mean(), sum.max()), (both.count(), both.mean(), both.max()));
        }
        a.clear();
        assert_eq!((a.count(), a.percentile(50.0)), (0, 0));
    }
}
