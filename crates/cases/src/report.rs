//! The rows about classes that `altq replay`, `altq sim` and `altq lab` print.

use altq_config::Link;
use altq_engine::account::Counters;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::statistics::Delay;

/// A class's row. The row of an inner class has the sums of the classes below it; the first row is
/// that of the link itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// The class above; `None` for the link.
    pub parent: Option<String>,
    /// Packets that arrived in the window.
    pub arrived_packets: u64,
    /// Their own bytes.
    pub arrived_bytes: u64,
    /// Packets handed to the wire in the window.
    pub sent_packets: u64,
    /// Their own bytes.
    pub sent_bytes: u64,
    /// Packets dropped in the window.
    pub dropped_packets: u64,
    /// Their own bytes.
    pub dropped_bytes: u64,
    /// Packets that still wait at the end of the run.
    pub queued_packets: u64,
    /// `sent_bytes` in bits over the window's length, rounded down.
    pub rate_bit_s: u64,
    /// Bytes sent in the window beyond the class's guarantee.
    pub borrowed_bytes: u64,
    /// The times from arrival to hand-over of the packets sent in the window.
    pub delay_ns: Delay,
}

/// Collects what happens to the packets of a link's classes within a window.
pub struct Collector {
    from: Nanos,
    to: Nanos,
    own: Vec<Own>,
    /// The engine's counters of borrowed bytes when the window opened, and in `closed` when it
    /// closed.
    opened: Option<Vec<u64>>,
    closed: Option<Vec<u64>>,
    /// When they are needed next; `Nanos::MAX` once both are there.
    due: Nanos,
}

#[derive(Default)]
struct Own {
    arrived: (u64, u64),
    sent: (u64, u64),
    dropped: (u64, u64),
    delays: Vec<u64>,
}

impl Collector {
    /// A collector for `classes` classes and the window [from, to).
    pub fn new(classes: usize, from: Nanos, to: Nanos) -> Collector {
        let own = std::iter::repeat_with(Own::default).take(classes).collect();
        Collector { from, to, own, opened: None, closed: None, due: from.min(to) }
    }

    #[inline]
    fn own(&mut self, at: Nanos, class: ClassId) -> Option<&mut Own> {
        if at < self.from || at >= self.to {
            return None;
        }
        let at = class as usize;
        if at >= self.own.len() {
            self.widen(at);
        }
        self.own.get_mut(at)
    }

    /// Makes room for a class that was added during the run.
    #[cold]
    fn widen(&mut self, class: usize) {
        self.own.resize_with(class + 1, Own::default);
    }

    /// Counts a packet that arrives.
    #[inline]
    pub fn arrived(&mut self, now: Nanos, class: ClassId, bytes: u32) {
        if let Some(own) = self.own(now, class) {
            own.arrived.0 += 1;
            own.arrived.1 += u64::from(bytes);
        }
    }

    /// Counts a packet that is handed over.
    #[inline]
    pub fn sent(&mut self, now: Nanos, class: ClassId, bytes: u32, arrived: Nanos) {
        if let Some(own) = self.own(now, class) {
            own.sent.0 += 1;
            own.sent.1 += u64::from(bytes);
            own.delays.push(now - arrived);
        }
    }

    /// Counts a packet that is dropped.
    #[inline]
    pub fn dropped(&mut self, now: Nanos, class: ClassId, bytes: u32) {
        if let Some(own) = self.own(now, class) {
            own.dropped.0 += 1;
            own.dropped.1 += u64::from(bytes);
        }
    }

    /// True if the window opens or closes at `now`. Before anything else happens then,
    /// [`note_counters`](Collector::note_counters) must be given the engine's counters.
    #[inline]
    pub fn needs_counters(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// Keeps the engine's counters at the opening and the closing of the window.
    pub fn note_counters(&mut self, now: Nanos, counters: &[Counters]) {
        let borrowed = || counters.iter().map(|c| c.borrowed_bytes).collect::<Vec<_>>();
        if self.opened.is_none() && now >= self.from {
            self.opened = Some(borrowed());
        }
        if self.closed.is_none() && now >= self.to {
            self.closed = Some(borrowed());
        }
        let due = |noted: &Option<_>, at| if noted.is_none() { at } else { Nanos::MAX };
        self.due = due(&self.opened, self.from).min(due(&self.closed, self.to));
    }

    /// The rows. `end`: the end of the window if it is still open. `counters` are the engine's at
    /// the end of the run; `names` holds the name and the parent of each class.
    pub fn rows(self, names: &[(String, Option<ClassId>)], counters: &[Counters], end: Nanos) -> Vec<ClassReport> {
        let window = end.min(self.to).saturating_sub(self.from);
        let last: Vec<u64> = counters.iter().map(|c| c.borrowed_bytes).collect();
        let opened = self.opened.unwrap_or_else(|| last.clone());
        let closed = self.closed.unwrap_or(last);
        let mut own = self.own;
        own.resize_with(names.len().max(own.len()), Own::default);
        let parent = |id: usize| names.get(id).and_then(|(_, parent)| *parent);
        // By row, the classes whose packets count for it: the class and all below it. They are
        // found by going from each class up to the root.
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); names.len()];
        for id in 0..names.len() {
            let mut at = Some(id);
            while let Some(above) = at {
                below[above].push(id);
                at = parent(above).map(|p| p as usize);
            }
        }
        // By class, the figures of its own delays.
        let mut alone: Vec<Option<Delay>> = vec![None; own.len()];
        let mut rows = Vec::with_capacity(names.len());
        for (id, (name, above)) in names.iter().enumerate() {
            let sum = |what: fn(&Own) -> (u64, u64)| {
                below[id].iter().map(|c| what(&own[*c])).fold((0, 0), |a: (u64, u64), b| (a.0 + b.0, a.1 + b.1))
            };
            let (arrived, sent, dropped) = (sum(|o| o.arrived), sum(|o| o.sent), sum(|o| o.dropped));
            let mut with_delays = below[id].iter().copied().filter(|class| !own[*class].delays.is_empty());
            let delay_ns = match (with_delays.next(), with_delays.next()) {
                (None, _) => Delay::default(),
                // Often it is the same class as in the row above, or that of the row itself.
                (Some(class), None) => *alone[class].get_or_insert_with(|| Delay::of(&mut own[class].delays)),
                (Some(_), Some(_)) => {
                    let mut delays: Vec<u64> = Vec::with_capacity(sent.0 as usize);
                    for class in &below[id] {
                        delays.extend_from_slice(&own[*class].delays);
                    }
                    Delay::of(&mut delays)
                }
            };
            let at = |counts: &[u64]| counts.get(id).copied().unwrap_or(0);
            rows.push(ClassReport {
                name: name.clone(),
                parent: above.and_then(|above| names.get(above as usize)).map(|(name, _)| name.clone()),
                arrived_packets: arrived.0,
                arrived_bytes: arrived.1,
                sent_packets: sent.0,
                sent_bytes: sent.1,
                dropped_packets: dropped.0,
                dropped_bytes: dropped.1,
                queued_packets: counters.get(id).map_or(0, |c| c.queued_packets),
                rate_bit_s: rate(sent.1, window),
                borrowed_bytes: at(&closed).saturating_sub(at(&opened)),
                delay_ns,
            });
        }
        rows
    }
}

/// Bytes in a time, as bit/s rounded down; 0 if the time is 0.
pub fn rate(bytes: u64, span: Nanos) -> u64 {
    if span == 0 {
        return 0;
    }
    u64::try_from(u128::from(bytes) * 8 * u128::from(SECOND) / u128::from(span)).unwrap_or(u64::MAX)
}

/// Name and parent of each class of a link, by number, as [`Collector::rows`] needs them.
pub fn names(link: &Link) -> Vec<(String, Option<ClassId>)> {
    link.classes
        .iter()
        .zip(&link.spec.classes)
        .enumerate()
        .map(|(id, (class, spec))| (class.name.clone(), (id as ClassId != ROOT).then_some(spec.parent)))
        .collect()
}
