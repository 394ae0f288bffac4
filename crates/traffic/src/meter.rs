//! A flow's meter: senders and receivers count into it, other threads read it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use altq_cases::gaps::{GapSummary, Gaps};
use altq_dataplane::TcpInfo;
use altq_dataplane::sketch::Sketch;
use altq_engine::units::Nanos;

use crate::clock::Lateness;

/// How round trips and delays are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Every value with its time, so that any window can be evaluated afterwards. Memory grows with
    /// the run.
    All,
    /// As a histogram, in fixed memory.
    #[default]
    Distribution,
}

/// The meter of a flow.
#[derive(Debug)]
pub struct Meter {
    keep: Keep,
    /// The part of the run that the figures are about, in ns since its start.
    window: Range<Nanos>,
    received_bytes: AtomicU64,
    received: AtomicU64,
    window_bytes: AtomicU64,
    window_received: AtomicU64,
    sent: AtomicU64,
    next: AtomicU64,
    late: AtomicU64,
    again: AtomicU64,
    failed: AtomicU64,
    missing: AtomicU64,
    /// When the last payload arrived, in ns since the start of the run. It ends a transfer of given
    /// length.
    last: AtomicU64,
    samples: Mutex<Vec<(Nanos, Nanos)>>,
    times: Mutex<Times>,
    gaps: Mutex<Gaps>,
    transit: Mutex<Transit>,
    lateness: Mutex<Lateness>,
    connections: Mutex<BTreeMap<u32, TcpInfo>>,
}

/// Round trips, or one-way delays.
#[derive(Debug, Default)]
struct Times {
    window: Sketch,
    /// The times since the last call of [`Meter::recent`].
    recent: Sketch,
}

/// Variation of datagrams' transit times.
#[derive(Clone, Copy, Debug, Default)]
struct Transit {
    last: Option<i128>,
    /// Interarrival jitter (RFC 3550, 6.4.1), in ns.
    jitter: f64,
}

/// A reading of a [`Meter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Payload that the receiver has received, in bytes.
    pub bytes: u64,
    /// Datagrams received (each number once), transactions completed, or connections made and
    /// closed.
    pub received: u64,
    /// Datagrams or requests sent.
    pub sent: u64,
    /// The number after the highest of a datagram that arrived: as many were sent at least.
    pub next: u64,
    /// Datagrams that arrived after one with a higher number.
    pub reordered: u64,
    /// Datagrams that arrived a second time.
    pub duplicates: u64,
    /// Requests without an answer, or connections that could not be made.
    pub failed: u64,
    /// Datagrams with a number below the highest that has arrived, and which have not arrived.
    pub missing: u64,
    /// Payload received in the flow's window, in bytes.
    pub window_bytes: u64,
    /// The same as `received`, in the flow's window.
    pub window_received: u64,
    /// When the last payload arrived, in ns since the start of the run.
    pub last: Nanos,
}

/// What became of a source's datagrams between two readings:
/// `under_way_before + sent = received + lost + under_way`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// Datagrams that did not arrive though a later one did; all, if none ever arrived.
    pub lost: u64,
    /// Datagrams sent after the last that arrived, at the later reading. They are in a queue or on
    /// a link, or they are lost: the receiver cannot know yet.
    pub under_way: u64,
    /// The same at the earlier reading.
    pub under_way_before: u64,
}

impl Fates {
    /// Of those lost or received the part that is lost; `None` if there are none.
    pub fn loss(&self) -> Option<f64> {
        let ended = self.lost + self.received;
        (ended > 0).then(|| self.lost as f64 / ended as f64)
    }
}

impl Reading {
    /// What became of the datagrams since an earlier reading. A late datagram that arrives after
    /// all was counted as lost before.
    pub fn fates(&self, earlier: &Reading) -> Fates {
        let (sent, received) = (self.sent - earlier.sent, self.received - earlier.received);
        if self.next == 0 {
            let lost = self.sent.saturating_sub(self.received);
            return Fates { sent, received, lost, under_way: 0, under_way_before: earlier.sent };
        }
        let behind = |reading: &Reading| reading.sent.saturating_sub(reading.next);
        Fates {
            sent,
            received,
            lost: (self.next - earlier.next).saturating_sub(received),
            under_way: behind(self),
            under_way_before: behind(earlier),
        }
    }
}

impl Meter {
    /// A meter. `window` is the part of the run that the figures are about, in ns from its start.
    pub fn new(keep: Keep, window: Range<Nanos>) -> Meter {
        Meter {
            keep,
            window,
            received_bytes: AtomicU64::default(),
            received: AtomicU64::default(),
            window_bytes: AtomicU64::default(),
            window_received: AtomicU64::default(),
            sent: AtomicU64::default(),
            next: AtomicU64::default(),
            late: AtomicU64::default(),
            again: AtomicU64::default(),
            failed: AtomicU64::default(),
            missing: AtomicU64::default(),
            last: AtomicU64::default(),
            samples: Mutex::default(),
            times: Mutex::default(),
            gaps: Mutex::default(),
            transit: Mutex::default(),
            lateness: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    /// The counters now.
    pub fn read(&self) -> Reading {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let next = of(&self.next);
        Reading {
            bytes: of(&self.received_bytes),
            received: of(&self.received),
            sent: of(&self.sent).max(next),
            next,
            reordered: of(&self.late),
            duplicates: of(&self.again),
            failed: of(&self.failed),
            missing: of(&self.missing),
            window_bytes: of(&self.window_bytes),
            window_received: of(&self.window_received),
            last: of(&self.last),
        }
    }

    /// The part of the run that the figures are about.
    pub fn window(&self) -> &Range<Nanos> {
        &self.window
    }

    /// The times measured between two moments of the run (ns since its start), sorted. Needs
    /// [`Keep::All`]; complete once the run is over.
    pub fn times(&self, from: Nanos, to: Nanos) -> Vec<Nanos> {
        let samples = locked(&self.samples);
        let mut times: Vec<Nanos> =
            samples.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, time)| *time).collect();
        times.sort_unstable();
        times
    }

    /// Calls `each` for every measured time, with the moment of the run at which it ended and the
    /// time. Needs [`Keep::All`]; complete once the run is over.
    pub fn each_time(&self, mut each: impl FnMut(Nanos, Nanos)) {
        locked(&self.samples).iter().for_each(|(at, time)| each(*at, *time));
    }

    /// The times measured in the window. Needs [`Keep::Distribution`].
    pub fn distribution(&self) -> Sketch {
        locked(&self.times).window.clone()
    }

    /// The times measured since the last call. Needs [`Keep::Distribution`].
    pub fn recent(&self) -> Sketch {
        std::mem::take(&mut locked(&self.times).recent)
    }

    /// Gaps between datagrams in the window.
    pub fn gaps(&self) -> Option<GapSummary> {
        locked(&self.gaps).summary()
    }

    /// Jitter of datagrams (RFC 3550, 6.4.1) in the window.
    pub fn jitter(&self) -> Option<Nanos> {
        let transit = locked(&self.transit);
        transit.last.map(|_| transit.jitter as Nanos)
    }

    /// How late the sender ran. Complete once the run is over.
    pub fn lateness(&self) -> Lateness {
        locked(&self.lateness).clone()
    }

    /// TCP_INFO of the sending connections, by number.
    pub fn connections(&self) -> BTreeMap<u32, TcpInfo> {
        locked(&self.connections).clone()
    }

    /// Counts payload that arrived at `now`.
    pub fn arrived(&self, now: Nanos, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last.fetch_max(now, Ordering::Relaxed);
        if self.window.contains(&now) {
            self.window_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a datagram, an answer, or a connection.
    pub fn completed(&self, now: Nanos) {
        self.received.fetch_add(1, Ordering::Relaxed);
        if self.window.contains(&now) {
            self.window_received.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts several datagrams, with `bytes` of payload in all.
    pub fn came(&self, now: Nanos, count: u64, bytes: u64) {
        self.arrived(now, bytes);
        self.received.fetch_add(count, Ordering::Relaxed);
        if self.window.contains(&now) {
            self.window_received.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Sets the number of datagrams or requests sent in all.
    pub fn sent(&self, count: u64) {
        self.sent.store(count, Ordering::Relaxed);
    }

    /// Counts a datagram or request of one of several senders.
    pub fn sent_one(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a datagram arrived whose number is the highest yet.
    pub(crate) fn reached(&self, number: u64) {
        self.next.fetch_max(number + 1, Ordering::Relaxed);
    }

    pub(crate) fn reordered(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn duplicated(&self) {
        self.again.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of datagrams that are missing so far.
    pub(crate) fn missing(&self, count: u64) {
        self.missing.store(count, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a round trip or delay that ended at `now`.
    pub(crate) fn took(&self, now: Nanos, time: Nanos) {
        match self.keep {
            Keep::All => locked(&self.samples).push((now, time)),
            Keep::Distribution => {
                let mut times = locked(&self.times);
                times.recent.add(time);
                if self.window.contains(&now) {
                    times.window.add(time);
                }
            }
        }
    }

    /// Adds a datagram's arrival, for the gaps between datagrams.
    pub(crate) fn spaced(&self, now: Nanos) {
        if self.window.contains(&now) {
            locked(&self.gaps).arrived(now);
        }
    }

    /// Adds a datagram's transit time, for jitter. A constant difference between the clocks of both
    /// ends cancels out.
    pub(crate) fn transit(&self, now: Nanos, transit: i128) {
        if !self.window.contains(&now) {
            return;
        }
        let mut state = locked(&self.transit);
        if let Some(last) = state.last.replace(transit) {
            // RFC 3550, 6.4.1: J += (|D| - J) / 16.
            let jitter = state.jitter;
            state.jitter += ((transit - last).unsigned_abs() as f64 - jitter) / 16.0;
        }
    }

    /// Adds how late a thread of the flow ran; there may be several.
    pub(crate) fn note_lateness(&self, lateness: &Lateness) {
        locked(&self.lateness).merge(lateness);
    }

    pub(crate) fn note_connection(&self, stream: u32, info: TcpInfo) {
        locked(&self.connections).insert(stream, info);
    }
}

/// Locks a mutex. The counters of a thread that panicked can still be read.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_window() {
        let meter = Meter::new(Keep::Distribution, 100..200);
        for (now, took) in [(50, 5), (100, 7), (199, 9), (200, 11)] {
            meter.arrived(now, 1000);
            meter.completed(now);
            meter.took(now, took);
            meter.spaced(now);
        }
        let reading = meter.read();
        assert_eq!((reading.bytes, reading.received, reading.last), (4000, 4, 200));
        assert_eq!((reading.window_bytes, reading.window_received), (2000, 2));
        assert_eq!((meter.distribution().count(), meter.distribution().max()), (2, 9));
        assert_eq!((meter.recent().count(), meter.recent().count()), (4, 0));
        assert_eq!(meter.gaps().map(|gaps| (gaps.count, gaps.mean_ns)), Some((1, 99)));
    }

    #[test]
    fn what_is_under_way_is_not_lost() {
        let meter = Meter::new(Keep::Distribution, 0..100);
        let arrive = |number| {
            meter.reached(number);
            meter.completed(1);
        };
        // Of 10 datagrams the numbers 0, 1 and 3 have arrived, then of 30 also 4 to 19 and 22.
        meter.sent(10);
        [0, 1, 3].into_iter().for_each(arrive);
        let earlier = meter.read();
        meter.sent(30);
        (4..20).chain([22]).for_each(arrive);
        let fates = meter.read().fates(&earlier);
        assert_eq!(fates, Fates { sent: 20, received: 17, lost: 2, under_way: 7, under_way_before: 6 });
        assert_eq!(fates.loss(), Some(2.0 / 19.0));
        let whole = meter.read().fates(&Reading::default());
        assert_eq!(whole, Fates { sent: 30, received: 20, lost: 3, under_way: 7, under_way_before: 0 });
        for fates in [fates, whole] {
            assert_eq!(fates.under_way_before + fates.sent, fates.received + fates.lost + fates.under_way);
        }
        // Where nothing arrives, all is lost.
        let meter = Meter::new(Keep::Distribution, 0..100);
        meter.sent(5);
        let fates = meter.read().fates(&Reading::default());
        assert_eq!((fates.lost, fates.under_way, fates.loss()), (5, 0, Some(1.0)));
    }

    #[test]
    fn jitter_follows_the_rfc() {
        let meter = Meter::new(Keep::Distribution, 0..100);
        // Transit times 0, 160, 0: D is 160 twice. By hand: J = 10, then 10 + 150/16 = 19.375.
        [0, 160, 0].into_iter().for_each(|transit| meter.transit(1, transit));
        assert_eq!(meter.jitter(), Some(19));
        // A difference between the two clocks changes nothing.
        let meter = Meter::new(Keep::Distribution, 0..100);
        [-7_000_000, -6_999_840, -7_000_000].into_iter().for_each(|transit| meter.transit(1, transit));
        assert_eq!(meter.jitter(), Some(19));
    }
}
