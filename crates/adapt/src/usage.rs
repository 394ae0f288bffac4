//! How much a link sends, and whether packets wait in it.

use std::collections::VecDeque;

use altq_engine::units::{Nanos, Rate, SECOND};

use crate::Load;

/// The time over which the sent rate is measured: ten readings, one each [`TICK`](crate::TICK). It
/// is so long that a burst does not look like a rate.
const WINDOW: Nanos = 500_000_000;

/// Readings closer together than this are left out, so that there are at most a few dozen.
const LEAST: Nanos = 10_000_000;

/// The last readings of a link's load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    readings: VecDeque<Load>,
}

impl Usage {
    /// Takes a reading.
    pub fn read(&mut self, load: Load) {
        if let Some(last) = self.readings.back() {
            if load.sent_bytes < last.sent_bytes {
                self.readings.clear();
            } else if load.at < last.at.saturating_add(LEAST) {
                return;
            }
        }
        self.readings.push_back(load);
        // Of the readings that are at least a window old only the newest is kept: it is the first
        // one.
        while self.readings.get(1).is_some_and(|second| second.at.saturating_add(WINDOW) <= load.at) {
            self.readings.pop_front();
        }
    }

    /// Forgets all readings.
    pub fn clear(&mut self) {
        self.readings.clear();
    }

    /// The rate that was sent over the window; 0 while there are fewer than two readings.
    pub fn sent(&self) -> Rate {
        let (Some(first), Some(last)) = (self.readings.front(), self.readings.back()) else { return Rate::ZERO };
        let time = u128::from(last.at - first.at);
        let bits = u128::from(last.sent_bytes - first.sent_bytes) * 8 * u128::from(SECOND);
        Rate::bit_s(bits.checked_div(time).map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// True if packets waited at more than half of the readings.
    pub fn backlogged(&self) -> bool {
        self.readings.iter().filter(|reading| reading.backlogged).count() * 2 > self.readings.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(at_ms: u64, sent_bytes: u64, backlogged: bool) -> Load {
        Load { at: at_ms * 1_000_000, sent_bytes, backlogged }
    }

    #[test]
    fn rates_over_half_a_second() {
        let mut usage = Usage::default();
        assert_eq!((usage.sent(), usage.backlogged()), (Rate::ZERO, false));
        usage.read(load(0, 1_000, true));
        assert_eq!(usage.sent(), Rate::ZERO);
        // 62,500 bytes in 500 ms are 1 Mbit/s.
        usage.read(load(250, 1_000, true));
        usage.read(load(500, 63_500, false));
        assert_eq!((usage.sent(), usage.backlogged()), (Rate::mbit_s(1), true));
        // From 250 ms on: twice 62,500 bytes in 500 ms.
        usage.read(load(750, 126_000, false));
        assert_eq!((usage.sent(), usage.backlogged()), (Rate::mbit_s(2), false));
        // A reading that comes too soon is left out; a link that began anew has only one reading.
        usage.read(load(755, 999_999, true));
        assert_eq!(usage.sent(), Rate::mbit_s(2));
        usage.read(load(800, 10, true));
        assert_eq!((usage.sent(), usage.backlogged()), (Rate::ZERO, true));
    }
}
