//! When a UDP source sends: the patterns of case files.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A source's packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Timetable {
    /// Sizes at layer 3, in bytes; of several each packet's is drawn with equal chance.
    pub sizes: Vec<u32>,
    /// When they are sent.
    pub pattern: Pattern,
    /// Of what is drawn.
    pub seed: u64,
    /// True: `every` in the pattern is per bit of packet, not per packet.
    pub per_bit: bool,
}

/// When packets are sent; times in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One every so often.
    Constant {
        /// From one to the next.
        every: f64,
    },
    /// At exponential intervals.
    Poisson {
        /// Their mean.
        every: f64,
    },
    /// Constant for a while, silent for a while.
    OnOff {
        /// From one to the next while on.
        every: f64,
        /// How long on.
        on: f64,
        /// How long off.
        off: f64,
        /// True: lengths are drawn from exponential distributions with these means.
        random: bool,
    },
    /// Several at once.
    Bursts {
        /// How many.
        packets: u32,
        /// From the start of one burst to the start of the next.
        every: f64,
    },
}

impl Timetable {
    /// Its packets from the beginning.
    pub fn start(&self) -> Departures<'_> {
        Departures { table: self, random: Pcg32::seed_from_u64(self.seed), next: 0.0, off_at: f64::INFINITY, in_burst: 0 }
    }
}

/// The packets of a timetable, one after the other.
pub struct Departures<'a> {
    table: &'a Timetable,
    random: Pcg32,
    /// When the next packet is due, from the start of the span.
    next: f64,
    /// When the source falls silent.
    off_at: f64,
    in_burst: u32,
}

impl Departures<'_> {
    /// A span begins: times count from here.
    pub fn span(&mut self) {
        (self.next, self.in_burst) = (0.0, 0);
        self.off_at = match self.table.pattern {
            Pattern::OnOff { on, random, .. } => self.length(on, random),
            _ => f64::INFINITY,
        };
    }

    /// The next packet: when, in ns from the start of the span, and its size.
    pub fn next(&mut self) -> (u64, u32) {
        let sizes = &self.table.sizes;
        let size = match sizes.len() {
            0 => 0,
            1 => sizes[0],
            n => sizes[((u64::from(self.random.next_u32()) * n as u64) >> 32) as usize],
        };
        let scale = if self.table.per_bit { f64::from(size) * 8.0 } else { 1.0 };
        let mut due = self.next;
        match self.table.pattern {
            Pattern::Constant { every } => self.next += every * scale,
            Pattern::Poisson { every } => {
                due += self.length(every * scale, true);
                self.next = due;
            }
            Pattern::OnOff { every, on, off, random } => {
                if due >= self.off_at {
                    due = self.off_at + self.length(off, random);
                    self.off_at = due + self.length(on, random);
                }
                self.next = due + every * scale;
            }
            Pattern::Bursts { packets, every } => {
                self.in_burst += 1;
                if self.in_burst >= packets {
                    self.in_burst = 0;
                    self.next += every;
                }
            }
        }
        (due as u64, size)
    }

    /// A length, or one drawn from the exponential distribution with this mean.
    fn length(&mut self, mean: f64, random: bool) -> f64 {
        if !random {
            return mean;
        }
        // (0, 1]: never the logarithm of 0.
        let uniform = (f64::from(self.random.next_u32()) + 1.0) / 4_294_967_296.0;
        -uniform.ln() * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(pattern: Pattern, sizes: &[u32], per_bit: bool) -> Timetable {
        Timetable { sizes: sizes.to_vec(), pattern, seed: 7, per_bit }
    }

    #[test]
    fn constant_rate_carries_the_fraction() {
        // 1000 bytes at 3 Mbit/s: 2,666,666 2/3 ns; the fourth is due after exactly 8 ms.
        let table = table(Pattern::Constant { every: 1e9 / 3e6 }, &[1000], true);
        let mut departures = table.start();
        departures.span();
        let times: Vec<u64> = (0..4).map(|_| departures.next().0).collect();
        assert_eq!(times[..3], [0, 2_666_666, 5_333_333]);
        assert!((7_999_999..=8_000_000).contains(&times[3]));
    }

    #[test]
    fn bursts_and_silences() {
        let bursts = table(Pattern::Bursts { packets: 3, every: 1e6 }, &[100], false);
        let mut departures = bursts.start();
        departures.span();
        assert_eq!((0..7).map(|_| departures.next().0).collect::<Vec<_>>(), [0, 0, 0, 1_000_000, 1_000_000, 1_000_000, 2_000_000]);
        let pattern = Pattern::OnOff { every: 10.0, on: 25.0, off: 100.0, random: false };
        let on_off = table(pattern, &[100], false);
        let mut departures = on_off.start();
        departures.span();
        assert_eq!((0..7).map(|_| departures.next().0).collect::<Vec<_>>(), [0, 10, 20, 125, 135, 145, 250]);
    }

    #[test]
    fn poisson_has_its_mean() {
        let poisson = table(Pattern::Poisson { every: 1000.0 }, &[100], false);
        let mut departures = poisson.start();
        departures.span();
        let last = (0..100_000).map(|_| departures.next().0).last().unwrap_or(0);
        // The mean of 10^5 exponential intervals is within 1.3 % of theirs (four standard deviations).
        assert!((last as f64 / 1e8 - 1.0).abs() < 0.013, "{last}");
    }
}
