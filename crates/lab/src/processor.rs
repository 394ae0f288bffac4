//! Whether altq's loop got a processor when it wanted one.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::thread::Pid;

/// The loop is judged in steps of this length or a little more.
const STEP: Duration = Duration::from_millis(500);

/// A loop that runs, or waits for a processor, for at least this share of a step has no time left.
const WANTED: f64 = 0.9;

/// A loop that waits for a processor for at least this share of a step shares it with the hosts. A
/// loop with a processor of its own waits for none, even if it never sleeps.
const WAITED: f64 = 0.1;

/// What a thread has had of the processors since it began (`schedstat` of proc(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// For how long it ran.
    pub ran: Duration,
    /// For how long it could have run, and waited for a processor.
    pub waited: Duration,
}

impl Scheduled {
    /// That of a thread of this process; `None` if the thread has ended, or the kernel does not
    /// count this.
    fn of(thread: Pid) -> Option<Scheduled> {
        Scheduled::read(&fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?)
    }

    fn read(text: &str) -> Option<Scheduled> {
        let mut figures = text.split_whitespace().map(|word| word.parse().ok().map(Duration::from_nanos));
        let (ran, waited) = (figures.next()??, figures.next()??);
        // Without CONFIG_SCHED_INFO all figures are 0.
        (ran > Duration::ZERO).then_some(Scheduled { ran, waited })
    }
}

/// The threads of the loops, by the names of their links.
#[derive(Debug, Default)]
pub struct Threads(Mutex<HashMap<String, Pid>>);

impl Threads {
    /// Notes that the calling thread runs the loop of this link.
    pub fn runs(&self, link: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(link.into(), rustix::thread::gettid());
    }

    /// What the loop of this link has had so far, if it is known.
    pub fn scheduled(&self, link: &str) -> Option<Scheduled> {
        let thread = *self.0.lock().unwrap_or_else(PoisonError::into_inner).get(link)?;
        Scheduled::of(thread)
    }
}

/// The share of the time between `from` and `to` in which the loop had no time left and waited for
/// a processor, of looks in order of time.
pub fn held(looks: impl Iterator<Item = (Duration, Scheduled)>, from: Duration, to: Duration) -> f64 {
    let (mut before, mut held): (Option<(Duration, Scheduled)>, _) = (None, Duration::ZERO);
    for (at, now) in looks.skip_while(|(at, _)| *at < from).take_while(|(at, _)| *at <= to) {
        let Some((then, had)) = before else {
            before = Some((at, now));
            continue;
        };
        let step = at.saturating_sub(then);
        if step < STEP {
            continue;
        }
        let share = |of: Duration| of.as_secs_f64() / step.as_secs_f64();
        let (ran, waited) = (share(now.ran.saturating_sub(had.ran)), share(now.waited.saturating_sub(had.waited)));
        if ran + waited >= WANTED && waited >= WAITED {
            held += step;
        }
        before = Some((at, now));
    }
    held.as_secs_f64() / to.saturating_sub(from).as_secs_f64().max(f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_read() {
        let ns = Duration::from_nanos;
        assert_eq!(Scheduled::read("5 7 1\n"), Some(Scheduled { ran: ns(5), waited: ns(7) }));
        for none in ["0 0 0\n", "", "5", "5 x 1", "-5 7 1"] {
            assert_eq!(Scheduled::read(none), None, "{none}");
        }
        let threads = Threads::default();
        assert_eq!(threads.scheduled("wan"), None);
        threads.runs("wan");
        // Some kernels do not count it.
        if let Some(before) = threads.scheduled("wan") {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(20) {}
            let after = threads.scheduled("wan").unwrap();
            assert!(after.ran + after.waited > before.ran + before.waited, "{before:?} {after:?}");
        }
    }

    /// Ten seconds, looked at each 10 ms. The loop sleeps for three quarters of the first four
    /// seconds, has a processor of its own in the next three, and shares one in the last three.
    #[test]
    fn a_loop_is_held_while_it_has_no_time_left_and_waits() {
        let mut had = Scheduled::default();
        let looks: Vec<_> = (0..=1000)
            .map(|n| {
                let at = Duration::from_millis(10 * n);
                let look = (at, had);
                let (ran, waited) = match n {
                    0..400 => (1500, 1000),
                    400..700 => (10_000, 0),
                    _ => (6500, 3200),
                };
                had.ran += Duration::from_micros(ran);
                had.waited += Duration::from_micros(waited);
                look
            })
            .collect();
        let share = |from, to| held(looks.iter().copied(), Duration::from_secs(from), Duration::from_secs(to));
        assert_eq!((share(0, 7), share(0, 10), share(7, 10)), (0.0, 0.3, 1.0));
        assert_eq!(held(std::iter::empty(), Duration::ZERO, Duration::from_secs(1)), 0.0);
    }
}
