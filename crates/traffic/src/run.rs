//! What the threads of a flow share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use altq_engine::units::Nanos;

use crate::clock;
use crate::error::Error;
use crate::meter::Meter;
use crate::socket::PATIENCE;

/// The start of a run, on the two faces of the kernel's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    instant: Instant,
    /// CLOCK_MONOTONIC then, in ns: what stamps in datagrams count from, so that two processes of
    /// one host agree.
    ns: Nanos,
}

impl Epoch {
    /// A run that starts after `lead`.
    pub fn after(lead: Duration) -> Epoch {
        // The two are one clock, read twice: a reading between two others that are close is off by
        // no more than these are apart.
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

    /// A run that starts after `lead` or, by less than `tick` ns, later, at a multiple of `tick` of
    /// CLOCK_MONOTONIC: timers that fire on ticks of that clock fire on ticks of the run.
    pub fn on_tick(lead: Duration, tick: Nanos) -> Epoch {
        let Epoch { instant, ns } = Epoch::after(lead);
        let more = ns.checked_next_multiple_of(tick).unwrap_or(ns) - ns;
        Epoch { instant: instant + Duration::from_nanos(more), ns: ns + more }
    }

    /// The moment at which it starts.
    pub fn start(&self) -> Instant {
        self.instant
    }

    /// A moment of the run.
    pub fn at(&self, since: Nanos) -> Instant {
        self.instant + Duration::from_nanos(since)
    }

    /// Nanoseconds from the start of the run to a moment; 0 before it.
    pub fn since(&self, moment: Instant) -> Nanos {
        moment.saturating_duration_since(self.instant).as_nanos() as u64
    }

    /// CLOCK_MONOTONIC at a moment of the run.
    pub fn stamp(&self, since: Nanos) -> Nanos {
        self.ns.saturating_add(since)
    }
}

/// What the threads of a flow share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// What they count.
    pub meter: Arc<Meter>,
    /// Set at the end of the run.
    pub stop: Arc<AtomicBool>,
    /// Its start.
    pub epoch: Epoch,
}

impl Shared {
    /// True at the end of the run.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True when a sender that sends until `end` is to stop.
    pub fn over(&self, end: Instant) -> bool {
        self.stopped() || Instant::now() >= end
    }

    /// Now, in ns since the start of the run.
    pub fn now(&self) -> Nanos {
        self.epoch.since(Instant::now())
    }

    /// Does `work` in every span, with the span's begin and end, then waits for the end of the run:
    /// a thread that is gone is one that failed.
    ///
    /// # Errors
    /// The first of `work`.
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
        let epoch = Epoch::on_tick(lead, tick);
        let after = clock::monotonic();
        let begin = epoch.stamp(0);
        assert!(begin.is_multiple_of(tick));
        assert!((before + 5_000_000..after + 5_000_000 + tick).contains(&begin));
        // Both faces of the clock have moved by the same.
        let left = epoch.start().saturating_duration_since(Instant::now()).as_nanos() as u64;
        assert!(begin.abs_diff(clock::monotonic() + left) < 4_000_000, "{begin} {left}");
    }
}
