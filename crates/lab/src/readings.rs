//! Readings of a link's counters over a run, and windows of them.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use altq_dataplane::sketch::{Packed, Sketch};
use altq_dataplane::stats::{ClassStat, Snapshot};

use super::processor::{self, Scheduled};
use super::trust::Empty;

/// A reading, and when it was received.
pub struct Seen {
    /// The counters, without the sketches of waiting times.
    pub snapshot: Snapshot,
    /// The waiting times of the packets that each class sent since the last reading.
    pub sojourns: Vec<Packed>,
    /// What the loop has had of the processors.
    pub scheduled: Option<Scheduled>,
    pub came: Instant,
}

/// All readings of a link over a run.
pub struct Readings {
    /// In order of time, each with its time since the start of the run.
    readings: Vec<(Duration, Snapshot)>,
    /// For each reading and class, the waiting times of the packets sent since the last reading.
    sojourns: Vec<Vec<Packed>>,
    /// What the loop had had of the processors, for each reading; `None` if the kernel does not
    /// count it.
    scheduled: Vec<Option<Scheduled>>,
}

impl Readings {
    /// Of readings that were received; `epoch` is the start of the run.
    pub fn new(own: Vec<Seen>, epoch: Instant) -> Readings {
        // The loop has its own clock, and a reading is received a little after it was taken. The
        // reading with the least delay tells how the two clocks differ.
        let zero = own.iter().filter_map(|seen| seen.came.checked_sub(Duration::from_nanos(seen.snapshot.at))).min();
        let since = |at: u64| {
            zero.map_or(Duration::ZERO, |zero| (zero + Duration::from_nanos(at)).saturating_duration_since(epoch))
        };
        let scheduled = own.iter().map(|seen| seen.scheduled).collect();
        let split = own.into_iter().map(|seen| ((since(seen.snapshot.at), seen.snapshot), seen.sojourns));
        let (readings, sojourns) = split.unzip();
        Readings { readings, sojourns, scheduled }
    }

    /// The reading nearest to a moment.
    fn nearest(&self, moment: Duration) -> Option<usize> {
        let after = self.readings.partition_point(|(at, _)| *at < moment);
        let distance = |at: usize| self.readings.get(at).map(|(time, _)| time.abs_diff(moment));
        [after.checked_sub(1), Some(after)]
            .into_iter()
            .flatten()
            .filter(|at| distance(*at).is_some())
            .min_by_key(|at| distance(*at))
    }

    /// What the link did in a window; the window's ends are moved to the nearest readings.
    pub fn window(&self, from: Duration, to: Duration) -> Option<Window<'_>> {
        let (first, last) = (self.nearest(from)?, self.nearest(to)?);
        if first >= last {
            return None;
        }
        Some(Window { readings: self.readings.get(first..=last)?, sojourns: self.sojourns.get(first..=last)? })
    }

    /// How often between two times the class had no packets queued.
    pub fn empty(&self, class: usize, from: Duration, to: Duration) -> Empty {
        let seen = self.readings.iter().filter_map(|(at, reading)| {
            let counters = &reading.classes.get(class)?.counters;
            Some((*at, counters.queued_packets, counters.dropped_packets + counters.marked_packets))
        });
        Empty::of(seen, from, to)
    }

    /// The share of the time between two times in which the loop had no time left and waited for a
    /// processor. `None` if the kernel does not count that.
    pub fn held(&self, from: Duration, to: Duration) -> Option<f64> {
        self.scheduled.iter().flatten().next()?;
        let looks = self.readings.iter().zip(&self.scheduled);
        Some(processor::held(looks.filter_map(|((at, _), had)| Some((*at, (*had)?))), from, to))
    }

    /// The time from the beginning of the window to the beginning of the first span of length
    /// `over` in which the class had `level` or more, in charged bytes.
    pub fn reached(&self, class: usize, window: (Duration, Duration), level: u64, over: Duration) -> Option<Duration> {
        let bytes = |at: usize| Some(self.readings.get(at)?.1.classes.get(class)?.counters.sent_wire_bytes);
        let within =
            |at: &usize| self.readings.get(*at).is_some_and(|(time, _)| *time >= window.0 && *time + over <= window.1);
        let begins = (0..self.readings.len()).filter(within);
        let enough = |begin: &usize| {
            let from = self.readings.get(*begin)?.0;
            let end = self.nearest(from + over).filter(|end| end > begin)?;
            let time = self.readings.get(end)?.0.checked_sub(from)?;
            let rate = altq_cases::report::rate(bytes(end)?.checked_sub(bytes(*begin)?)?, time.as_nanos() as u64);
            (rate >= level).then_some(from)
        };
        let first = begins.into_iter().find_map(|begin| enough(&begin))?;
        first.checked_sub(window.0)
    }

    /// The last reading.
    pub fn last(&self) -> Option<&Snapshot> {
        self.readings.last().map(|(_, snapshot)| snapshot)
    }
}

/// The readings of a window.
pub struct Window<'a> {
    readings: &'a [(Duration, Snapshot)],
    sojourns: &'a [Vec<Packed>],
}

impl<'a> Window<'a> {
    /// The window's length, by the loop's clock.
    pub fn length(&self) -> Duration {
        match (self.readings.first(), self.readings.last()) {
            (Some((_, first)), Some((_, last))) => Duration::from_nanos(last.at.saturating_sub(first.at)),
            _ => Duration::ZERO,
        }
    }

    /// The state of a class at the beginning and at the end of the window. A class that was added
    /// in between has zeros at the beginning.
    pub fn edges(&self, class: usize) -> Option<(&'a ClassStat, &'a ClassStat)> {
        static NOTHING: LazyLock<ClassStat> = LazyLock::new(ClassStat::default);
        let (_, first) = self.readings.first()?;
        let (_, last) = self.readings.last()?;
        Some((first.classes.get(class).unwrap_or(&NOTHING), last.classes.get(class)?))
    }

    /// Packets waiting in the class, on average over the readings.
    pub fn queued(&self, class: usize) -> Option<f64> {
        let queued =
            self.readings.iter().filter_map(|(_, reading)| Some(reading.classes.get(class)?.counters.queued_packets));
        let (sum, count) = queued.fold((0, 0u32), |(sum, count), queued| (sum + queued, count + 1));
        (count > 0).then(|| sum as f64 / f64::from(count))
    }

    /// The longest time between two readings. The loop is asked for its counters all the time, and
    /// answers between packets.
    pub fn longest(&self) -> Option<Duration> {
        let times = self.readings.iter().zip(self.readings.iter().skip(1));
        times.map(|((_, one), (_, next))| Duration::from_nanos(next.at.saturating_sub(one.at))).max()
    }

    /// The waiting times of the packets that the class sent in the window.
    pub fn sojourn(&self, class: usize) -> Sketch {
        let mut sum = Sketch::default();
        self.sojourns.iter().skip(1).filter_map(|classes| classes.get(class)).for_each(|own| sum.merge_packed(own));
        sum
    }

    /// Frames lost outside the engine's queues in the window, and those that came in.
    pub fn outside(&self) -> (u64, u64) {
        match (self.readings.first(), self.readings.last()) {
            (Some((_, first)), Some((_, last))) => (
                last.edge.dropped().saturating_sub(first.edge.dropped()),
                last.edge.received.saturating_sub(first.edge.received),
            ),
            _ => (0, 0),
        }
    }
}
