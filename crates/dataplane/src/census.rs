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
    /// By class.
    waits: Vec<Waits>,
    /// Classes that were removed since the last count. Another class may have got the number.
    removed: Vec<ClassId>,
    /// The flows of these packets, if somebody watches.
    pub flows: Option<Flows>,
    /// Whether it is followed for how long packets wait: from the first count on, if somebody
    /// watches.
    followed: bool,
    /// How many counts there are for each one that is shown, and how many are left until the next
    /// one that is shown.
    each: u32,
    left: u32,
    begun: Option<Begun>,
}

/// What is kept of a class about waiting.
#[derive(Clone, Debug, Default)]
struct Waits {
    /// The times of packets that left since it was last counted.
    sojourn: Sketch,
    /// For how long it has had packets, without a break.
    backlog: Backlog,
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
        let waits = vec![Waits::default(); classes];
        Census { waits, removed: Vec::new(), flows: None, followed: false, each, left: each, begun: None }
    }

    /// Makes room for class numbers below `classes`.
    pub fn grow(&mut self, classes: usize) {
        self.waits.resize_with(classes.max(self.waits.len()), Waits::default);
        if let Some(flows) = &mut self.flows {
            flows.grow(classes);
        }
    }

    /// A packet of a class leaves now, after waiting for this time.
    #[inline]
    pub fn departed(&mut self, now: Nanos, class: ClassId, packet: &Packet, waited: Nanos) {
        if let Some(waits) = self.waits.get_mut(class as usize) {
            waits.sojourn.add(waited);
            if self.followed {
                waits.backlog.leaves(now, waited);
            }
        }
        if let Some(flows) = &mut self.flows {
            flows.departed(class, packet);
        }
    }

    /// A class was removed.
    pub fn removed(&mut self, class: ClassId) {
        if let Some(waits) = self.waits.get_mut(class as usize) {
            *waits = Waits::default();
        }
        if let Some(flows) = &mut self.flows {
            flows.removed(class);
        }
        self.removed.push(class);
    }

    /// Begins to count, unless a count is under way.
    pub fn begin(&mut self, at: Nanos) {
        if self.begun.is_some() {
            return;
        }
        self.followed |= self.flows.is_some();
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
            let counters = engine.own_counters(id);
            let (mut sojourn, mut backlogged) = Default::default();
            if let Some(waits) = self.waits.get_mut(class) {
                sojourn = waits.sojourn.packed();
                if all > KEPT && waits.sojourn.count() < FEW {
                    waits.sojourn = Sketch::default();
                } else {
                    waits.sojourn.clear();
                }
                if self.followed {
                    backlogged = waits.backlog.take(*at, counters.queued_packets > 0);
                }
            }
            classes.push(Own {
                parent: engine.parent(id),
                counters,
                borrowed: engine.borrowed(id),
                dropped: engine.drop_reasons(id).map(|(reason, packets, _)| (reason, packets)).collect(),
                overlimits: engine.scheduler_counter(id, &["over", "overlimits"]),
                wire_bytes: wire_bytes(id),
                sojourn,
                backlogged,
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
