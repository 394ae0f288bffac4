//! What a link does to a packet after its last bit has left: propagation, jitter, loss, reordering.

use altq_cases::case::{Loss, Way};
use altq_cases::random::Random;
use altq_engine::units::Nanos;

/// One direction of a link's medium.
#[derive(Clone, Debug)]
pub struct Flight {
    way: Way,
    random: Random,
    /// Gilbert and Elliott: whether the medium is in its bad state.
    bad: bool,
    /// When the last packet arrives that may not be overtaken.
    last: Nanos,
    /// Whether anything is drawn.
    plain: bool,
    /// Packets lost on the way.
    pub lost: u64,
}

impl Flight {
    /// As the case says; `random`: a stream of its own.
    pub fn new(way: Way, random: Random) -> Flight {
        let plain = way.jitter == 0 && way.loss == Loss::None && way.reorder == 0.0;
        Flight { way, random, bad: false, last: 0, plain, lost: 0 }
    }

    /// When a packet arrives whose last bit leaves at `end`; `None` if it is lost.
    #[inline]
    pub fn launch(&mut self, end: Nanos) -> Option<Nanos> {
        if self.plain {
            return Some(end.saturating_add(self.way.delay));
        }
        self.drawn(end)
    }

    fn drawn(&mut self, end: Nanos) -> Option<Nanos> {
        if self.loses() {
            self.lost += 1;
            return None;
        }
        let mut at = end.saturating_add(self.way.delay);
        if self.way.jitter > 0 {
            at = at.saturating_add(self.random.up_to(self.way.jitter));
        }
        if self.way.reorder > 0.0 && self.random.chance(self.way.reorder) {
            // Held back: those behind it may go past.
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
            // Elliott 1963: the state moves, then the packet is lost with the state's probability.
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
        // Packets 100 µs apart and 50 µs of jitter: none meets another, so what is drawn shows.
        let way = Way { delay: 7_000, jitter: 50_000, keep_order: true, ..Way::default() };
        let extra: Vec<u64> =
            arrivals(way.clone()).iter().zip(0..).map(|(at, k): (_, u64)| at.unwrap() - k * 100_000 - 7_000).collect();
        assert!(extra.iter().all(|e| *e <= 50_000));
        // Uniform over 0…J: mean J/2 with a deviation of J/sqrt(12 n); five of them. A quarter lies
        // below J/4.
        let mean = extra.iter().sum::<u64>() as f64 / N as f64;
        assert!((mean - 25_000.0).abs() < 5.0 * 50_000.0 / (12.0 * N as f64).sqrt(), "{mean}");
        let quarter = extra.iter().filter(|e| **e < 12_500).count() as f64 / N as f64;
        assert!((quarter - 0.25).abs() < 5.0 * (0.25 * 0.75 / N as f64).sqrt(), "{quarter}");
        // Three times the gap: without order some overtake, with it none does.
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
        // Bad one time in enter/(enter+leave) = 1/21; the length of a run of losses has the mean
        // 1/leave = 5.
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
