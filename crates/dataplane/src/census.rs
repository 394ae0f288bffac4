//! Counting the classes of a link a few at a time, between packets.
//!
//! A walk over 100,000 classes takes tens of milliseconds, in which no packet would leave. So a
//! loop counts only [`PIECE`] classes in each of its turns. Another thread adds the counts up
//! ([`Totals`](crate::stats::Totals)).

use altq_engine::Engine;
use altq_engine::packet::Packet;
use altq_engine::sketch::Sketch;
use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;
use altq_monitor::FlowCounters;
use altq_monitor::promise::Backlog;

use crate::flows::{Flows, Taken};
use crate::stats::Own;

/// How many classes are counted in one turn of a loop. That takes about as long as two batches of
/// packets.
pub const PIECE: usize = 256;

/// With more classes than this, the [`Sketch`] (5 KB) of a class that has sent few packets is
/// freed.
const KEPT: usize = 4096;
/// Few packets.
const FEW: u64 = 256;

/// The waiting times of the packets that leave, and the count that is under way.
pub struct Census {
    /// By class, the times of packets that left since it was last counted.
    sojourn: Vec<Sketch>,
    /// Classes that were removed since the last count. Another class may have got the number.
    removed: Vec<ClassId>,
    /// The flows of these packets, if somebody watches.
    pub flows: Option<Flows>,
    /// By class, for how long packets wait, if somebody watches: from the first count on.
    backlogs: Vec<Backlog>,
    /// How many counts there are for each one that is shown, and how many are left until the next
    /// one that is shown.
    each: u32,
    left: u32,
    begun: Option<Begun>,
}

/// A count that is under way.
struct Begun {
    at: Nanos,
    shown: bool,
    /// What was counted so far.
    classes: Vec<Own>,
    flows: Vec<(ClassId, FlowCounters)>,
}

/// All classes, counted.
pub struct Counted {
    /// When the count began.
    pub at: Nanos,
    /// By number, the classes.
    pub classes: Vec<Own>,
    /// Numbers whose classes were removed since the last count.
    pub removed: Vec<ClassId>,
    /// Whether this count is shown in a snapshot, or is only for those who watch.
    pub shown: bool,
    /// What the classes' flows have sent.
    pub flows: Taken,
}

impl Census {
    /// A census of so many classes. One of `each` counts is shown in a snapshot.
    pub fn new(classes: usize, each: u32) -> Census {
        let sojourn = vec![Sketch::default(); classes];
        Census { sojourn, removed: Vec::new(), flows: None, backlogs: Vec::new(), each, left: each, begun: None }
    }

    /// Makes room for class numbers below `classes`.
    pub fn grow(&mut self, classes: usize) {
        self.sojourn.resize_with(classes.max(self.sojourn.len()), Sketch::default);
        if let Some(flows) = &mut self.flows {
            flows.grow(classes);
        }
    }

    /// A packet of a class leaves now, after waiting for this time.
    #[inline]
    pub fn departed(&mut self, now: Nanos, class: ClassId, packet: &Packet, waited: Nanos) {
        if let Some(sojourn) = self.sojourn.get_mut(class as usize) {
            sojourn.add(waited);
        }
        if let Some(flows) = &mut self.flows {
            flows.departed(class, packet);
            if let Some(backlog) = self.backlogs.get_mut(class as usize) {
                backlog.leaves(now, waited);
            }
        }
    }

    /// A class was removed.
    pub fn removed(&mut self, class: ClassId) {
        if let Some(sojourn) = self.sojourn.get_mut(class as usize) {
            *sojourn = Sketch::default();
        }
        if let Some(flows) = &mut self.flows {
            flows.removed(class);
        }
        if let Some(backlog) = self.backlogs.get_mut(class as usize) {
            *backlog = Backlog::default();
        }
        self.removed.push(class);
    }

    /// Begins to count, unless a count is under way.
    pub fn begin(&mut self, at: Nanos) {
        if self.begun.is_some() {
            return;
        }
        if self.flows.is_some() {
            self.backlogs.resize_with(self.sojourn.len(), Backlog::default);
        }
        self.left = self.left.saturating_sub(1);
        let shown = self.left == 0;
        if shown {
            self.left = self.each;
        }
        self.begun = Some(Begun { at, shown, classes: Vec::new(), flows: Vec::new() });
    }

    /// Whether a count is under way.
    pub fn under_way(&self) -> bool {
        self.begun.is_some()
    }

    /// Counts the next classes, at most so many. Returns all counts when the last class is counted.
    /// `wire_bytes` returns what a class has sent on an emulated wire.
    pub fn count(
        &mut self,
        engine: &Engine,
        wire_bytes: impl Fn(ClassId) -> Option<u64>,
        most: usize,
    ) -> Option<Counted> {
        // Counters come back soon after they are handed over, and are needed before the next count.
        if let Some(watched) = &mut self.flows {
            watched.take_back();
        }
        let Begun { at, classes, flows, .. } = self.begun.as_mut()?;
        let all = engine.numbers();
        classes.reserve_exact(all.saturating_sub(classes.len()));
        for class in classes.len()..all.min(classes.len().saturating_add(most)) {
            let id = class as ClassId;
            if let Some(taken) = self.flows.as_mut().and_then(|watched| watched.take(id)) {
                flows.push((id, taken));
            }
            let sojourn = self.sojourn.get_mut(class).map(|sojourn| {
                let packed = sojourn.packed();
                if all > KEPT && sojourn.count() < FEW {
                    *sojourn = Sketch::default();
                } else {
                    sojourn.clear();
                }
                packed
            });
            let counters = engine.own_counters(id);
            let backlog = self.backlogs.get_mut(class);
            classes.push(Own {
                parent: engine.parent(id),
                counters,
                borrowed: engine.borrowed(id),
                dropped: engine.drop_reasons(id).map(|(reason, packets, _)| (reason, packets)).collect(),
                overlimits: engine.scheduler_counter(id, &["over", "overlimits"]),
                wire_bytes: wire_bytes(id),
                sojourn: sojourn.unwrap_or_default(),
                backlogged: backlog.map_or(0, |backlog| backlog.take(*at, counters.queued_packets > 0)),
            });
        }
        if classes.len() < all {
            return None;
        }
        let Begun { at, shown, classes, flows } = self.begun.take()?;
        let flows = self.flows.as_ref().map(|watched| watched.hand_over(flows)).unwrap_or_default();
        Some(Counted { at, classes, removed: std::mem::take(&mut self.removed), shown, flows })
    }
}
