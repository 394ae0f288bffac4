//! A rate limit that several threads share.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use altq_engine::units::Rate;

use crate::clock;

/// How much unused time a burst may make up for.
const BURST: Duration = Duration::from_millis(20);

/// A rate limit.
#[derive(Debug)]
pub struct Throttle {
    rate: Rate,
    /// The time at which all bytes taken so far are within the rate; and true if a thread ever had
    /// to wait.
    state: Mutex<(Instant, bool)>,
}

impl Throttle {
    /// A limit of `rate`, above 0.
    pub fn new(rate: Rate) -> Throttle {
        Throttle { rate, state: Mutex::new((Instant::now(), false)) }
    }

    /// How many bytes to take at once: those of 10 ms, so that no thread waits long for another,
    /// and at most `most`.
    pub fn portion(&self, most: usize) -> usize {
        usize::try_from(self.rate.as_bit_s() / 800).unwrap_or(most).clamp(1448.min(most), most)
    }

    /// Takes bytes, and waits until they are within the rate, or until `stop` is set; false in the
    /// second case.
    pub fn take(&self, bytes: usize, stop: &AtomicBool) -> bool {
        let time = Duration::from_nanos(self.rate.time_for(bytes as u64));
        let until = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let from = state.0.max(now.checked_sub(BURST).unwrap_or(now));
            state.0 = from + time;
            state.1 |= from > now;
            from
        };
        clock::sleep_unless(stop, until)
    }

    /// True if a thread ever had to wait.
    pub fn held(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_and_one_burst() {
        let throttle = Throttle::new(Rate::mbit_s(8));
        let begin = Instant::now();
        for _ in 0..20 {
            assert!(throttle.take(5_000, &AtomicBool::new(false)));
        }
        // The last one waits for the nineteen before it: 95 ms minus the burst of 20 ms.
        assert!(begin.elapsed() >= Duration::from_millis(74), "{:?}", begin.elapsed());
        assert!(throttle.held());
        assert_eq!(throttle.portion(1 << 17), 10_000);
        // A second of the rate, of which nobody has to wait for the end.
        let begin = Instant::now();
        assert!(throttle.take(1_000_000, &AtomicBool::new(false)));
        assert!(!throttle.take(1, &AtomicBool::new(true)) && begin.elapsed() < Duration::from_millis(500));
    }
}
