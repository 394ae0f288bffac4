//! What classes and flows did over time, in bins of a round width: for plots.

use altq_engine::units::Nanos;

/// A row of bins for a class or a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Own bytes that a class handed over, or that arrived at a flow's destination, by bin.
    pub bytes: Vec<u64>,
    /// Packets dropped, by bin.
    pub drops: Vec<u64>,
    /// How long packets waited in the link, or were on their way from source to destination, by bin of their end.
    pub delays: Vec<Vec<Nanos>>,
}

/// What is kept of one column of a run: its classes with packets of their own, and its flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The column's name.
    pub column: Option<String>,
    /// Width of a bin.
    pub bin: Nanos,
    /// How many there are.
    pub bins: usize,
    /// Classes of the links with a policy.
    pub classes: Vec<Row>,
    /// Flows.
    pub flows: Vec<Row>,
}

impl Series {
    /// For a run of this length: about a hundred bins, of 1, 2 or 5 times a power of ten.
    pub(super) fn new(column: Option<String>, duration: Nanos) -> Series {
        let bin = width(duration);
        Series { column, bin, bins: duration.div_ceil(bin) as usize, ..Series::default() }
    }

    /// The bin of a time.
    pub(super) fn at(&self, now: Nanos) -> usize {
        (now / self.bin.max(1)) as usize
    }
}

impl Row {
    /// One without anything in it.
    pub(super) fn new(name: &str, bins: usize) -> Row {
        Row { name: name.to_owned(), bytes: vec![0; bins], drops: vec![0; bins], delays: vec![Vec::new(); bins] }
    }

    pub(super) fn passed(&mut self, bin: usize, bytes: u32, delay: Nanos) {
        if let (Some(sum), Some(delays)) = (self.bytes.get_mut(bin), self.delays.get_mut(bin)) {
            *sum += u64::from(bytes);
            delays.push(delay);
        }
    }

    pub(super) fn dropped(&mut self, bin: usize) {
        if let Some(count) = self.drops.get_mut(bin) {
            *count += 1;
        }
    }
}

/// The least of 1, 2, 5 times a power of ten of which at most 120 cover the duration.
fn width(duration: Nanos) -> Nanos {
    let least = duration.div_ceil(120).max(1);
    let mut power: Nanos = 1;
    loop {
        for digit in [1, 2, 5] {
            let width = power.saturating_mul(digit);
            if width >= least {
                return width;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_round() {
        let second = 1_000_000_000;
        assert_eq!([width(12 * second), width(11 * second), width(second), width(1)], [100_000_000, 100_000_000, 10_000_000, 1]);
        assert_eq!(width(121 * second), 2 * second);
        assert!(width(u64::MAX) >= u64::MAX / 120);
    }
}
