//! What happens to a packet on a link's medium after its last bit has left: propagation delay,
//! jitter, loss and reordering.

use altq_cases::case::{Loss, Way};
use altq_cases::random::Random;
use altq_engine::units::Nanos;

/// One direction of a link's medium.
#[derive(Clone, Debug)]
pub struct Flight {
    way: Way,
    random: Random,
    /// True if the medium is in the bad state of the model of Gilbert and Elliott.
    bad: bool,
    /// The arrival time of the last packet; later ones must not overtake it.
    last: Nanos,
    /// True if there is only a fixed delay: no jitter, loss or reordering.
    fixed: bool,
    /// Number of packets lost.
    pub lost: u64,
}

impl Flight {
    /// The medium of one direction of a link. `random`: random numbers that nothing else uses.
    pub fn new(way: Way, random: Random) -> Flight {
        let fixed = way.jitter == 0 && way.loss == Loss::None && way.reorder == 0.0;
        Flight { way, random, bad: false, last: 0, fixed, lost: 0 }
    }

    /// True if no packet is lost.
    pub fn is_lossless(&self) -> bool {
        self.way.loss == Loss::None
    }

    /// When a packet arrives whose last bit leaves at `end`; `None` if it is lost.
    #[inline]
    pub fn launch(&mut self, end: Nanos) -> Option<Nanos> {
        if self.fixed {
            return Some(end.saturating_add(self.way.delay));
        }
        self.draw_arrival(end)
    }

    fn draw_arrival(&mut self, end: Nanos) -> Option<Nanos> {
        if self.loses() {
            self.lost += 1;
            return None;
        }
        let mut at = end.saturating_add(self.way.delay);
        if self.way.jitter > 0 {
            at = at.saturating_add(self.random.up_to(self.way.jitter));
        }
        if self.way.reorder > 0.0 && self.random.chance(self.way.reorder) {
            // The packet is held back, so later ones may overtake it.
            return Some(at.saturating_add(self.way.reorder_delay));
        }
        if self.way.keep_order {
            at = at.max(self.last);
            self.last = at;
        }
        Some(at)
    }

    fn loses(&mut self) -> bool {
        match self.way.loss {
            Loss::None => false,
            Loss::Random(share) => self.random.chance(share),
            // The state may change first; then the packet is lost with the state's probability
            // (Elliott, "Estimates of Error Rates for Codes on Burst-Noise Channels", 1963).
            Loss::Bursts { enter, leave, good, bad } => {
                let moves = if self.bad { leave } else { enter };
                if self.random.chance(moves) {
                    self.bad = !self.bad;
                }
                let share = if self.bad { bad } else { good };
                self.random.chance(share)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u64 = 100_000;

    fn arrivals(way: Way) -> Vec<Option<Nanos>> {
        let mut flight = Flight::new(way, Random::new(11, 5));
        (0..N).map(|k| flight.launch(k * 100_000)).collect()
    }

    #[test]
    fn jitter_is_uniform_and_keeps_the_order() {
        // Packets are 100 µs apart and jitter is at most 50 µs, so none overtakes another, and the
        // arrival times show the random values.
        let way = Way { delay: 7_000, jitter: 50_000, keep_order: true, ..Way::default() };
        let extra: Vec<u64> =
            arrivals(way.clone()).iter().zip(0..).map(|(at, k): (_, u64)| at.unwrap() - k * 100_000 - 7_000).collect();
        assert!(extra.iter().all(|e| *e <= 50_000));
        // For a uniform distribution from 0 to J the mean of n values is J/2 with a standard
        // deviation of J/sqrt(12 n); five of these are allowed. A quarter of the values is below
        // J/4.
        let mean = extra.iter().sum::<u64>() as f64 / N as f64;
        assert!((mean - 25_000.0).abs() < 5.0 * 50_000.0 / (12.0 * N as f64).sqrt(), "{mean}");
        let quarter = extra.iter().filter(|e| **e < 12_500).count() as f64 / N as f64;
        assert!((quarter - 0.25).abs() < 5.0 * (0.25 * 0.75 / N as f64).sqrt(), "{quarter}");
        // With a jitter of three times the gap some packets overtake others, unless the order is
        // kept.
        let wide = Way { jitter: 300_000, ..way };
        assert!(arrivals(wide.clone()).windows(2).all(|w| w[0] <= w[1]));
        let free = Way { keep_order: false, ..wide };
        assert!(arrivals(free).windows(2).any(|w| w[0] > w[1]));
    }

    #[test]
    fn loss_has_its_share() {
        let way = Way { loss: Loss::Random(0.01), ..Way::default() };
        let lost = arrivals(way).iter().filter(|at| at.is_none()).count() as f64;
        assert!((lost / N as f64 - 0.01).abs() < 5.0 * (0.01 * 0.99 / N as f64).sqrt(), "{lost}");
        // The medium is in the bad state for enter/(enter + leave) = 1/21 of the packets. Losses in
        // a row have a mean length of 1/leave = 5.
        let way = Way { loss: Loss::Bursts { enter: 0.01, leave: 0.2, good: 0.0, bad: 1.0 }, ..Way::default() };
        let list = arrivals(way);
        let lost = list.iter().filter(|at| at.is_none()).count() as f64;
        let runs = list.windows(2).filter(|w| w[0].is_some() && w[1].is_none()).count() as f64;
        assert!((lost / N as f64 * 21.0 - 1.0).abs() < 0.15, "{lost}");
        assert!((lost / runs - 5.0).abs() < 0.5, "{}", lost / runs);
    }

    #[test]
    fn some_are_held_back() {
        let way = Way { delay: 1_000, reorder: 0.02, reorder_delay: 250_000, keep_order: true, ..Way::default() };
        let late = arrivals(way).into_iter().zip(0..).filter(|(at, k): &(Option<Nanos>, u64)| {
            let extra = at.unwrap() - k * 100_000 - 1_000;
            assert!(extra == 0 || extra == 250_000);
            extra > 0
        });
        let share = late.count() as f64 / N as f64;
        assert!((share - 0.02).abs() < 5.0 * (0.02 * 0.98 / N as f64).sqrt(), "{share}");
    }
}
