//! Measures how late threads run, and whether a run can be trusted.
//!
//! Figures that were measured while the host did not keep time say nothing about the policy. So
//! every thread with a schedule measures how late it runs, a metronome measures the same for the
//! host, and a run in which either was later than its bound is marked invalid, with the reason.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::error::{Doing, Error};

/// How late events were compared with their schedule: as much as it takes to check [`BOUND`].
#[derive(Clone, Debug, Default)]
pub struct Lateness {
    count: u64,
    /// How many were later than the bound for 99 of 100.
    over: u64,
    max: Duration,
}

impl Lateness {
    /// Counts an event that was due at `due` and happened at `now`.
    pub fn note(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_duration_since(due);
        self.count += 1;
        self.over += u64::from(late > BOUND.p99);
        self.max = self.max.max(late);
    }

    /// Adds the events of another thread.
    pub fn merge(&mut self, other: &Lateness) {
        self.count += other.count;
        self.over += other.over;
        self.max = self.max.max(other.max);
    }

    /// The reason why a run is invalid, if it was later than [`BOUND`].
    pub fn broken(&self) -> Option<String> {
        if self.over * 100 > self.count {
            let (part, p99) = (100.0 * self.over as f64 / self.count as f64, BOUND.p99);
            return Some(format!("it ran more than {p99:?} late {part:.1} times in a hundred (at most once)"));
        }
        (self.max > BOUND.max).then(|| format!("it once ran {:?} late (at most {:?})", self.max, BOUND.max))
    }
}

/// A bound for lateness.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// 99 of 100 events must not be later than this.
    pub p99: Duration,
    /// No event may be later than this.
    pub max: Duration,
}

/// The bound for the host and for sources with a schedule. A lateness of 10 ms does not change
/// shares: exact CBQ makes up for service that came late while there is a backlog
/// (docs/reference/cbq.md rule 12), and queues hold more than 10 ms of traffic. With more lateness
/// queues would run empty or full because of the host, not because of the policy.
pub const BOUND: Bound = Bound { p99: Duration::from_millis(10), max: Duration::from_millis(100) };

/// Share of the processors' time that the hypervisor may take before figures cannot be trusted.
pub const STOLEN: f64 = 0.05;

/// Sleeps until a moment; returns at once if it has passed.
pub fn sleep_until(moment: Instant) {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left);
    }
}

/// Sleeps until a moment, or until `stop` is set; false in the second case.
pub fn sleep_unless(stop: &AtomicBool, moment: Instant) -> bool {
    while !stop.load(Ordering::Relaxed) {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(Duration::from_millis(20)));
    }
    false
}

/// Makes the calling thread's timers fire when they are due, instead of up to 50 µs later.
pub fn precise() {
    // If this fails, timers are up to 50 µs late, and the measured lateness includes that.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// CLOCK_MONOTONIC in ns: the same for all processes of a host.
pub fn monotonic() -> u64 {
    read(rustix::time::ClockId::Monotonic)
}

/// The clock of the day, in ns since 1970.
pub fn of_the_day() -> u64 {
    read(rustix::time::ClockId::Realtime)
}

fn read(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Identifies this host's monotonic clock: the kernel's boot id and the time namespace. Empty if
/// the kernel does not report them.
pub fn identity() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    if boot.is_empty() { String::new() } else { format!("{} {}", boot.trim(), space.display()) }
}

/// Wakes up every 2 ms until `stop` is set, and returns how late it was. Any thread of this host
/// may have been as late.
pub fn metronome(stop: &AtomicBool) -> Lateness {
    precise();
    let mut lateness = Lateness::default();
    let mut beat = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        beat += Duration::from_millis(2);
        sleep_until(beat);
        let now = Instant::now();
        lateness.note(beat, now);
        // Several missed beats count as one late event.
        beat = beat.max(now - Duration::from_millis(2));
    }
    lateness
}

/// Time of all processors since boot, from /proc/stat.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    busy: u64,
    stolen: u64,
    total: u64,
}

impl Processors {
    /// Reads /proc/stat.
    ///
    /// # Errors
    /// If /proc/stat cannot be read, or has another form.
    pub fn now() -> Result<Processors, Error> {
        Processors::of(&fs::read_to_string("/proc/stat").doing(|| "reading /proc/stat")?)
    }

    /// The same of a text that was read before.
    ///
    /// # Errors
    /// If it has another form.
    pub fn of(text: &str) -> Result<Processors, Error> {
        // proc(5): cpu user nice system idle iowait irq softirq steal guest guest_nice; guest is
        // within user.
        let fields: Vec<u64> = text
            .lines()
            .next()
            .unwrap_or("")
            .split_whitespace()
            .skip(1)
            .take(8)
            .filter_map(|word| word.parse().ok())
            .collect();
        let [user, nice, system, idle, iowait, irq, softirq, stolen] = fields[..] else {
            return Err(Error::Unsupported("/proc/stat does not begin with eight figures of the processors".into()));
        };
        let busy = user + nice + system + irq + softirq;
        Ok(Processors { busy, stolen, total: busy + idle + iowait + stolen })
    }

    /// Between `earlier` and this: the share of the time in which the processors were busy, and the
    /// share that the hypervisor gave to other machines.
    pub fn since(&self, earlier: &Processors) -> (f64, f64) {
        let total = self.total.saturating_sub(earlier.total).max(1) as f64;
        (
            self.busy.saturating_sub(earlier.busy) as f64 / total,
            self.stolen.saturating_sub(earlier.stolen) as f64 / total,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_bounds_hold() {
        let start = Instant::now();
        let mut lateness = Lateness::default();
        for _ in 0..990 {
            lateness.note(start, start + Duration::from_millis(10));
        }
        for _ in 0..10 {
            lateness.note(start, start + Duration::from_millis(30));
        }
        assert_eq!(lateness.max, Duration::from_millis(30));
        assert!(lateness.broken().is_none());
        lateness.note(start, start + Duration::from_micros(10_001));
        assert!(lateness.broken().is_some_and(|reason| reason.contains("1.1 times in a hundred")));
        // Of several threads each one counts.
        let mut all = Lateness::default();
        all.merge(&lateness);
        all.note(start, start);
        assert!(all.broken().is_some() && all.count == 1002);
        let mut once = Lateness::default();
        for _ in 0..999 {
            once.note(start, start);
        }
        once.note(start, start + Duration::from_millis(101));
        assert!(once.broken().is_some_and(|reason| reason.contains("once")));
    }
}
