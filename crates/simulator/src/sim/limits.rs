//! What ends a run before its time: someone else's wish, or a limit. A run that is ended has no
//! result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use altq_engine::units::Nanos;

use super::{Handled, SimError};

/// How many events are handled until a run looks at its stop flag again: some hundred microseconds.
const EVENTS_PER_LOOK: u64 = 1024;

/// What ends a run before its time. Nothing by default.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Set from outside, by another thread: the run ends with [`SimError::Stopped`] soon after.
    /// This is how a limit of real time is kept, because a run reads no clock.
    pub stop: Option<Arc<AtomicBool>>,
    /// The most events of a run of one column; with more it ends with [`SimError::TooManyEvents`],
    /// at the same event each time.
    pub events: Option<u64>,
    /// The longest duration of a case, in nanoseconds of virtual time; a longer one does not begin
    /// ([`SimError::TooLong`]).
    pub time: Option<Nanos>,
}

/// Keeps the limits of a run of one column.
#[derive(Debug)]
pub(super) struct Guard {
    limits: Limits,
    /// The number of events after which the limits are looked at again.
    next: u64,
}

impl Guard {
    /// Checks the limits before the first event of a run that takes `duration`.
    pub fn begin(limits: &Limits, duration: Nanos) -> Result<Guard, SimError> {
        match limits.time {
            Some(limit) if duration > limit => Err(SimError::TooLong { duration, limit }),
            _ => Ok(Guard { limits: limits.clone(), next: 0 }),
        }
    }

    /// Looks at the limits from time to time, before an event is handled. `handled`: how many were
    /// handled before it.
    #[inline(always)]
    pub fn check(&mut self, handled: u64, now: Nanos) -> Handled {
        if handled == self.next { self.look(handled, now) } else { Ok(()) }
    }

    #[cold]
    fn look(&mut self, handled: u64, now: Nanos) -> Handled {
        if self.limits.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Box::new(SimError::Stopped));
        }
        let most = self.limits.events.unwrap_or(u64::MAX);
        if handled >= most {
            return Err(Box::new(SimError::TooManyEvents { limit: most, at: now }));
        }
        self.next = handled.saturating_add(EVENTS_PER_LOOK).min(most);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of events that are handled before the run ends, out of 5,000.
    fn handled(limits: &Limits, stop_at: Option<u64>) -> u64 {
        let mut guard = Guard::begin(limits, 10).unwrap();
        for event in 0..5_000 {
            if stop_at == Some(event) {
                limits.stop.as_ref().unwrap().store(true, Ordering::Relaxed);
            }
            if guard.check(event, event).is_err() {
                return event;
            }
        }
        5_000
    }

    #[test]
    fn events_are_counted_exactly_and_the_flag_is_seen_soon() {
        assert_eq!(handled(&Limits::default(), None), 5_000);
        for limit in [0, 1, 1023, 1024, 1025, 4_999, 5_000] {
            assert_eq!(handled(&Limits { events: Some(limit), ..Limits::default() }, None), limit);
        }
        let stop = Limits { stop: Some(Arc::default()), ..Limits::default() };
        let seen = handled(&stop, Some(1_500));
        assert!((1_500..1_500 + EVENTS_PER_LOOK).contains(&seen), "{seen}");
        assert_eq!(handled(&stop, None), 0, "a flag that is set already lets nothing begin");
    }

    #[test]
    fn a_case_that_takes_too_long_does_not_begin() {
        let limits = Limits { time: Some(9), ..Limits::default() };
        assert!(matches!(Guard::begin(&limits, 10), Err(SimError::TooLong { duration: 10, limit: 9 })));
        assert!(Guard::begin(&limits, 9).is_ok());
    }
}
