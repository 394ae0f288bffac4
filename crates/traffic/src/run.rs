//! The start of a run, and what the threads of a flow share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use altq_engine::drive::round_up;
use altq_engine::spec::Timer;
use altq_engine::units::Nanos;

use crate::clock;
use crate::error::Error;
use crate::meter::Meter;
use crate::socket::PATIENCE;

/// The start of a run, both as an `Instant` and as the value of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    instant: Instant,
    /// CLOCK_MONOTONIC at that moment, in ns. Time stamps in datagrams have this clock, so that two
    /// processes of a host agree.
    ns: Nanos,
}

impl Epoch {
    /// A run that starts after `lead`.
    pub fn after(lead: Duration) -> Epoch {
        // `Instant` is the same clock, but cannot be converted. It is read between two readings of
        // CLOCK_MONOTONIC; of 20 tries, the one with the closest two readings has the least error.
        let mut best = (Instant::now(), 0, u64::MAX);
        for _ in 0..20 {
            let (before, instant, after) = (clock::monotonic(), Instant::now(), clock::monotonic());
            let apart = after.saturating_sub(before);
            if apart < best.2 {
                best = (instant, before + apart / 2, apart);
            }
        }
        let (instant, ns, _) = best;
        Epoch { instant: instant + lead, ns: ns.saturating_add(lead.as_nanos() as u64) }
    }

    /// A run that starts at the first tick of a timer of CLOCK_MONOTONIC after `lead`. Timers that
    /// fire at ticks of that clock then fire at ticks of the run.
    pub fn on_tick(lead: Duration, timer: Timer) -> Epoch {
        let Epoch { instant, ns } = Epoch::after(lead);
        let more = round_up(ns, timer).unwrap_or(ns) - ns;
        Epoch { instant: instant + Duration::from_nanos(more), ns: ns + more }
    }

    /// The start.
    pub fn start(&self) -> Instant {
        self.instant
    }

    /// The moment that is `since` ns after the start.
    pub fn at(&self, since: Nanos) -> Instant {
        self.instant + Duration::from_nanos(since)
    }

    /// Nanoseconds from the start of the run to a moment; 0 before it.
    pub fn since(&self, moment: Instant) -> Nanos {
        moment.saturating_duration_since(self.instant).as_nanos() as u64
    }

    /// The value of CLOCK_MONOTONIC `since` ns after the start.
    pub fn stamp(&self, since: Nanos) -> Nanos {
        self.ns.saturating_add(since)
    }
}

/// What the threads of a flow share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The flow's meter.
    pub meter: Arc<Meter>,
    /// Set at the end of the run.
    pub stop: Arc<AtomicBool>,
    /// The start of the run.
    pub epoch: Epoch,
}

impl Shared {
    /// True if the run is over.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True if the run is over, or `end` has come.
    pub fn over(&self, end: Instant) -> bool {
        self.stopped() || Instant::now() >= end
    }

    /// Now, in ns since the start of the run.
    pub fn now(&self) -> Nanos {
        self.epoch.since(Instant::now())
    }

    /// Calls `work` in every span, with the span's beginning and end, and then waits for the end of
    /// the run. So a thread that ends before the run has failed.
    ///
    /// # Errors
    /// The first error of `work`.
    pub fn in_spans(
        &self,
        spans: &[(Instant, Instant)],
        mut work: impl FnMut(Instant, Instant) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (begin, end) in spans {
            if clock::sleep_unless(&self.stop, *begin) {
                work(*begin, *end)?;
            }
        }
        while !self.stopped() {
            std::thread::sleep(PATIENCE);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_begins_on_a_tick_of_the_kernels_clock() {
        let (tick, lead) = (7_000_000, Duration::from_millis(5));
        let before = clock::monotonic();
        let epoch = Epoch::on_tick(lead, Timer::Tick(tick));
        let after = clock::monotonic();
        let begin = epoch.stamp(0);
        assert!(begin.is_multiple_of(tick));
        assert!((before + 5_000_000..after + 5_000_000 + tick).contains(&begin));
        // Both forms of the clock have advanced by the same time.
        let left = epoch.start().saturating_duration_since(Instant::now()).as_nanos() as u64;
        assert!(begin.abs_diff(clock::monotonic() + left) < 4_000_000, "{begin} {left}");
    }
}
