//! Keeping time, and knowing when it was not kept.
//!
//! A figure taken while the host could not keep time says nothing about the policy. So every thread
//! that has a schedule measures how late it ran, a metronome measures the host itself, and a run in
//! which either went beyond its bound is marked invalid, with the reason.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::error::{Doing, Error};

/// How late something ran against its schedule: a histogram in powers of two.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// `buckets[i]` counts what was late by less than 2^i µs, and not less than half of it.
    buckets: [u64; 32],
    count: u64,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { buckets: [0; 32], count: 0, max: Duration::ZERO }
    }
}

impl Lateness {
    /// Notes one event that was due at `due` and came at `now`.
    pub fn note(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_duration_since(due);
        let bits = 128 - late.as_micros().leading_zeros();
        self.buckets[(bits as usize).min(31)] += 1;
        self.count += 1;
        self.max = self.max.max(late);
    }

    /// An upper bound of the given per mille of events: at least so many were not later than this.
    fn per_mille(&self, share: u64) -> Duration {
        let wanted = (self.count * share).div_ceil(1000);
        let mut seen = 0;
        for (bits, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(1 << bits).min(self.max);
            }
        }
        self.max
    }

    /// What of this went beyond `bound`, as a reason for an invalid run.
    pub fn broken(&self, bound: Bound) -> Option<String> {
        let p99 = self.per_mille(990);
        if p99 > bound.p99 {
            return Some(format!("one time in a hundred it ran more than {p99:?} late (at most {:?})", bound.p99));
        }
        (self.max > bound.max).then(|| format!("it once ran {:?} late (at most {:?})", self.max, bound.max))
    }
}

/// How late is too late.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// 99 of 100 events must not be later.
    pub p99: Duration,
    /// No event may be.
    pub max: Duration,
}

/// The bound for the host and for sources with a schedule. A class that is late by 10 ms is repaid
/// (docs/reference/cbq.md rule 12: service that came late is owed while there is a backlog), and
/// its queue holds more than that; beyond, queues run dry or over for reasons that are not the
/// policy's.
pub const BOUND: Bound = Bound { p99: Duration::from_millis(10), max: Duration::from_millis(100) };

/// Share of the processors' time that the hypervisor may take from a host whose figures are to be
/// trusted.
pub const STOLEN: f64 = 0.05;

/// Sleeps until a moment; returns at once when it has passed.
pub fn sleep_until(moment: Instant) {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left);
    }
}

/// Sleeps until a moment or until `stop`, whichever comes first; false when it was `stop`.
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
    // Without it timers are a little later: the lateness that is measured anyway tells.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// CLOCK_MONOTONIC in ns: the same for all processes of a host.
pub fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// What names this host's monotonic clock: the kernel's boot, and the time namespace. Empty where
/// that cannot be told.
pub fn identity() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    if boot.is_empty() { String::new() } else { format!("{} {}", boot.trim(), space.display()) }
}

/// Beats every 2 ms until told to stop, and says how late the beats were: what any thread on this
/// host had to bear.
pub fn metronome(stop: &AtomicBool) -> Lateness {
    precise();
    let mut lateness = Lateness::default();
    let mut beat = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        beat += Duration::from_millis(2);
        sleep_until(beat);
        let now = Instant::now();
        lateness.note(beat, now);
        // Beats that were slept over are one lateness, not many.
        beat = beat.max(now - Duration::from_millis(2));
    }
    lateness
}

/// Processor time of the whole machine, from /proc/stat.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    busy: u64,
    stolen: u64,
    total: u64,
}

impl Processors {
    /// The figures since boot.
    ///
    /// # Errors
    /// Where /proc is not mounted, or is none of Linux.
    pub fn now() -> Result<Processors, Error> {
        let text = fs::read_to_string("/proc/stat").doing(|| "reading /proc/stat")?;
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

    /// Share of the time that was busy, and that the hypervisor gave to others, from `earlier` to
    /// this.
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
            lateness.note(start, start + Duration::from_micros(700));
        }
        for _ in 0..10 {
            lateness.note(start, start + Duration::from_millis(30));
        }
        let p99 = lateness.per_mille(990);
        assert!(p99 >= Duration::from_micros(700) && p99 <= Duration::from_micros(1400), "{p99:?}");
        assert_eq!(lateness.max, Duration::from_millis(30));
        assert!(lateness.broken(BOUND).is_none());
        lateness.note(start, start + Duration::from_millis(31));
        assert!(lateness.broken(BOUND).is_some_and(|reason| reason.contains("one time in a hundred")));
        let mut once = Lateness::default();
        for _ in 0..999 {
            once.note(start, start);
        }
        once.note(start, start + Duration::from_millis(101));
        assert!(once.broken(BOUND).is_some_and(|reason| reason.contains("once")));
    }
}
