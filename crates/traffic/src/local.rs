//! Tells a program that sends from the queue's host, at once and for every packet, whether the
//! queue dropped a packet because of it (ENOBUFS of 4.4BSD).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What happened to a program's packets at the queue. The queue's side adds one packet after
/// another, and the program waits for the result of its own.
#[derive(Debug, Default)]
pub struct SendResults {
    counts: Mutex<SendCounts>,
    noted: Condvar,
}

/// What has happened to a program's packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Packets that arrived at the queue.
    pub packets: u64,
    /// Packets because of which a packet was dropped.
    pub refused: u64,
}

impl SendResults {
    fn lock(&self) -> MutexGuard<'_, SendCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one packet, which was put into the queue or refused.
    pub fn note(&self, refused: bool) {
        let mut counts = self.lock();
        counts.packets += 1;
        counts.refused += u64::from(refused);
        drop(counts);
        self.noted.notify_one();
    }

    /// The counts so far.
    pub fn counts(&self) -> SendCounts {
        *self.lock()
    }

    /// Waits until `packets` packets have been counted, but no longer than `at_most`. Returns the
    /// counts.
    pub fn wait(&self, packets: u64, at_most: Duration) -> SendCounts {
        let until = Instant::now() + at_most;
        let mut counts = self.lock();
        while counts.packets < packets {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            counts = self.noted.wait_timeout(counts, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_for_its_packet_and_no_longer_than_it_may() {
        let results = SendResults::default();
        assert_eq!(results.wait(1, Duration::from_millis(1)), SendCounts::default());
        std::thread::scope(|scope| {
            let counts = scope.spawn(|| results.wait(2, Duration::from_secs(60)));
            results.note(false);
            results.note(true);
            assert_eq!(counts.join().unwrap(), SendCounts { packets: 2, refused: 1 });
        });
    }
}
