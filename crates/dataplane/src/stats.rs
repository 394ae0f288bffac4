//! Snapshots of a link at intervals: its loop counts ([`Counts`]), another thread adds up
//! ([`Totals`]).

use altq_engine::account::{Counters, DropReason};
use altq_engine::sketch::{Packed, Sketch};
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, SECOND};
use altq_monitor::waited::Waited;

use crate::edge::EdgeCounters;
use crate::flows::Taken;

/// What a loop reports at intervals.
#[derive(Clone, Debug)]
pub enum Report {
    /// Its counts, not added up yet.
    Counts(Counts),
    /// A whole snapshot.
    Whole(Snapshot),
}

impl Report {
    /// The name of the loop's link.
    pub fn link(&self) -> &str {
        match self {
            Report::Counts(counts) => &counts.link,
            Report::Whole(snapshot) => &snapshot.link,
        }
    }
}

/// The counts of a loop: the figures of each class without those below it. Different classes may be
/// counted some turns of the loop apart.
#[derive(Clone, Debug)]
pub struct Counts {
    /// The link's name.
    pub link: String,
    /// When the count began, on the loop's clock.
    pub at: Nanos,
    /// When the loop began.
    pub began: Nanos,
    /// True for the last count of a loop.
    pub last: bool,
    /// False for a count between two snapshots, which is only for those who watch.
    pub shown: bool,
    /// By number, the classes.
    pub classes: Vec<Own>,
    /// Numbers whose classes were removed since the last count. Another class may have such a
    /// number now.
    pub removed: Vec<ClassId>,
    /// Packets and bytes dropped because no rule gave them a class.
    pub unclassified: (u64, u64),
    /// Counters of the edge.
    pub edge: EdgeCounters,
    /// Counters of the loop itself.
    pub work: Work,
    /// How late timers were since the last count.
    pub late: Packed,
    /// What the classes' flows have sent since the last count, if somebody watches.
    pub flows: Taken,
}

/// The figures of a class alone, without those below it. Counters are since the start.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// The class above; `None` for the root, and for a number without a class.
    pub parent: Option<ClassId>,
    /// Its counters.
    pub counters: Counters,
    /// What it and all classes below it have borrowed, if its scheduler counts that.
    pub borrowed: Option<u64>,
    /// Its drops by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// How often it was over its limit, if its scheduler counts that.
    pub overlimits: Option<u64>,
    /// The bytes that it has sent on an emulated wire.
    pub wire_bytes: Option<u64>,
    /// Waiting times of packets that left since the last count.
    pub sojourn: Packed,
    /// For how long packets have waited since then, as [`Backlog`](altq_monitor::promise::Backlog)
    /// counts it; 0 if nobody watches.
    pub backlogged: Nanos,
}

/// Adds up the counts of one link's loop.
#[derive(Debug, Default)]
pub struct Totals {
    /// Time of the last count.
    since: Option<Nanos>,
    /// By class: the bytes sent until then, own bytes and bytes on the wire, including those of all
    /// classes below.
    before: Vec<(u64, u64)>,
    /// By class: waiting times since the start, without those of classes below.
    waited: Vec<Packed>,
    /// By class: waiting times of counts that made no snapshot, and of classes removed before these
    /// counts.
    held: Vec<Packed>,
    /// By class: how many packets waited how long since the start, with those of classes below when
    /// they left.
    ranges: Vec<Waited>,
    removed: Vec<ClassId>,
    /// How late timers were in these counts.
    late: Packed,
    scratch: Sketch,
}

impl Totals {
    /// Takes a count that makes no snapshot: its waiting times go into the next snapshot.
    pub fn hold(&mut self, counts: &Counts) {
        self.held.resize_with(counts.classes.len().max(self.held.len()), Packed::default);
        for class in &counts.removed {
            if let Some(held) = self.held.get_mut(*class as usize) {
                *held = Packed::default();
            }
        }
        self.removed.extend(&counts.removed);
        let late = std::mem::take(&mut self.late);
        self.late = self.merged(&[&late, &counts.late]);
        for (own, held) in counts.classes.iter().zip(&mut self.held).filter(|(own, _)| own.sojourn.count() > 0) {
            self.scratch.clear();
            self.scratch.merge_packed(held);
            self.scratch.merge_packed(&own.sojourn);
            *held = self.scratch.packed();
        }
    }

    /// The values of several sketches in one.
    fn merged(&mut self, parts: &[&Packed]) -> Packed {
        self.scratch.clear();
        parts.iter().for_each(|part| self.scratch.merge_packed(part));
        self.scratch.packed()
    }

    /// Adds the times that were kept to those of a count.
    fn release(&mut self, counts: &mut Counts) {
        if self.late.count() > 0 {
            let late = std::mem::take(&mut self.late);
            counts.late = self.merged(&[&late, &counts.late]);
        }
        for class in &counts.removed {
            if let Some(held) = self.held.get_mut(*class as usize) {
                *held = Packed::default();
            }
        }
        counts.removed.append(&mut self.removed);
        let held = std::mem::take(&mut self.held);
        for (own, held) in counts.classes.iter_mut().zip(held).filter(|(_, held)| held.count() > 0) {
            self.scratch.clear();
            self.scratch.merge_packed(&held);
            self.scratch.merge_packed(&own.sojourn);
            own.sojourn = self.scratch.packed();
        }
    }

    /// Makes a snapshot of a report.
    pub fn sum(&mut self, report: Report) -> Snapshot {
        match report {
            Report::Counts(counts) => self.add_up(counts),
            Report::Whole(snapshot) => snapshot,
        }
    }

    fn add_up(&mut self, mut counts: Counts) -> Snapshot {
        self.release(&mut counts);
        let count = counts.classes.len();
        self.before.resize(count.max(self.before.len()), (0, 0));
        self.waited.resize_with(count.max(self.waited.len()), Packed::default);
        self.ranges.resize_with(count.max(self.ranges.len()), Waited::default);
        for class in counts.removed {
            if let Some(ranges) = self.ranges.get_mut(class as usize) {
                *ranges = Waited::default();
            }
            if let (Some(before), Some(waited)) =
                (self.before.get_mut(class as usize), self.waited.get_mut(class as usize))
            {
                (*before, *waited) = ((0, 0), Packed::default());
            }
        }
        let since = self.since.replace(counts.at).unwrap_or(counts.began);
        let time = u128::from(counts.at.saturating_sub(since));
        let parents: Vec<Option<ClassId>> = counts.classes.iter().map(|own| own.parent).collect();
        let mut classes: Vec<ClassStat> = Vec::with_capacity(count);
        let mut borrowed: Vec<Option<u64>> = Vec::with_capacity(count);
        for (own, waited) in counts.classes.into_iter().zip(&mut self.waited) {
            if own.sojourn.count() > 0 {
                self.scratch.clear();
                self.scratch.merge_packed(waited);
                self.scratch.merge_packed(&own.sojourn);
                *waited = self.scratch.packed();
            }
            borrowed.push(own.borrowed);
            classes.push(ClassStat {
                counters: own.counters,
                dropped: own.dropped,
                overlimits: own.overlimits,
                wire_bytes: own.wire_bytes.unwrap_or(own.counters.sent_wire_bytes),
                sojourn: own.sojourn,
                sojourn_total: waited.clone(),
                ..ClassStat::default()
            });
        }
        add_to_parents(&mut classes, &parents);
        let rate = |now: u64, before: u64| {
            let bits = u128::from(now.saturating_sub(before)) * 8 * u128::from(SECOND);
            bits.checked_div(time).unwrap_or(0) as u64
        };
        for (class, ranges) in classes.iter_mut().zip(&mut self.ranges) {
            ranges.add(&class.sojourn);
            class.waited = ranges.clone();
        }
        for ((class, before), borrowed) in classes.iter_mut().zip(&mut self.before).zip(borrowed) {
            let now = (class.counters.sent_bytes, class.counters.sent_wire_bytes);
            (class.rate_bit_s, class.wire_bit_s) = (rate(now.0, before.0), rate(now.1, before.1));
            *before = now;
            class.counters.borrowed_bytes = borrowed.unwrap_or(class.counters.borrowed_bytes);
        }
        Snapshot {
            link: counts.link,
            at: counts.at,
            began: counts.began,
            since,
            last: counts.last,
            classes,
            unclassified: counts.unclassified,
            edge: counts.edge,
            work: counts.work,
            late: counts.late,
        }
    }
}

/// Adds the figures of each class to those of the one above it, from the lowest classes on.
fn add_to_parents(classes: &mut [ClassStat], parents: &[Option<ClassId>]) {
    // For each class, how many classes directly below it have not been added yet.
    let mut waiting = vec![0u32; classes.len()];
    for parent in parents.iter().flatten() {
        if let Some(waiting) = waiting.get_mut(*parent as usize) {
            *waiting += 1;
        }
    }
    // The waiting times of classes with others below them, until all of these are added.
    let mut sums: Vec<Option<Box<[Sketch; 2]>>> = waiting.iter().map(|_| None).collect();
    for first in 0..classes.len() {
        let mut at = first;
        while waiting.get(at) == Some(&0) {
            // So that it is not added again.
            waiting[at] = u32::MAX;
            if let Some(sums) = sums[at].take() {
                let class = &mut classes[at];
                let [mut recent, mut total] = *sums;
                recent.merge_packed(&class.sojourn);
                total.merge_packed(&class.sojourn_total);
                (class.sojourn, class.sojourn_total) = (recent.packed(), total.packed());
            }
            let Some(parent) = parents[at].map(|parent| parent as usize).filter(|parent| *parent < classes.len())
            else {
                break;
            };
            if parent != at {
                let sums = sums[parent].get_or_insert_default();
                sums[0].merge_packed(&classes[at].sojourn);
                sums[1].merge_packed(&classes[at].sojourn_total);
                let below = std::mem::take(&mut classes[at].dropped);
                let (counters, wire) = (classes[at].counters, classes[at].wire_bytes);
                let above = &mut classes[parent];
                above.counters += counters;
                above.wire_bytes += wire;
                for (reason, packets) in &below {
                    match above.dropped.iter_mut().find(|(of, _)| of == reason) {
                        Some(entry) => entry.1 += packets,
                        None => above.dropped.push((*reason, *packets)),
                    }
                }
                classes[at].dropped = below;
            }
            waiting[parent] = waiting[parent].saturating_sub(1);
            at = parent;
        }
    }
}

/// The state of a link at one moment. All counters are since the start; a rate follows from the
/// difference of two snapshots.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The link's name.
    pub link: String,
    /// Time of the snapshot, on the loop's clock (CLOCK_MONOTONIC on real interfaces).
    pub at: Nanos,
    /// Time at which the loop began.
    pub began: Nanos,
    /// Time of the previous snapshot.
    pub since: Nanos,
    /// True for the last snapshot of a loop.
    pub last: bool,
    /// Its classes, in the policy's order; the first is the root.
    pub classes: Vec<ClassStat>,
    /// Packets and bytes (layer 3) dropped because no rule gave them a class. The root's drops
    /// include them.
    pub unclassified: (u64, u64),
    /// Counters of the edge, outside the engine.
    pub edge: EdgeCounters,
    /// Counters of the loop itself.
    pub work: Work,
    /// How late its timers were since the snapshot before.
    pub late: Packed,
}

/// The state of a class at one moment, with all classes below it.
#[derive(Clone, Debug, Default)]
pub struct ClassStat {
    /// Its counters.
    pub counters: Counters,
    /// Its drops by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// Rate since the snapshot before, of layer 3 bytes, in bit/s.
    pub rate_bit_s: u64,
    /// Rate since the snapshot before, of charged bytes, in bit/s.
    pub wire_bit_s: u64,
    /// Bytes that it has sent on the wire: those that the link charged or, on an emulated host,
    /// those of the host's wire.
    pub wire_bytes: u64,
    /// How often it was over its limit, if its scheduler counts that.
    pub overlimits: Option<u64>,
    /// Time in the queue of packets that left since the snapshot before.
    pub sojourn: Packed,
    /// The same since the start, of classes that are there now.
    pub sojourn_total: Packed,
    /// How many packets waited how long since the start: its own, and those that left classes below
    /// it while they were there.
    pub waited: Waited,
}

/// Counters of a loop: super-packets, iterations, lateness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Super-packets received.
    pub supers: u64,
    /// Super-packets that were cut.
    pub cut: u64,
    /// Parts that they were cut into.
    pub parts: u64,
    /// Super-packets that were sent whole because there was no slot to cut them.
    pub uncut: u64,
    /// Iterations of the loop.
    pub turns: u64,
    /// How often it slept and was woken: by a frame, by a timer or by a device with room.
    pub waits: u64,
    /// How often it was woken by a timer.
    pub timers: u64,
    /// The sum of how late these timers were, in ns.
    pub late: Nanos,
    /// The most that a timer was late, in ns.
    pub latest: Nanos,
    /// Calls that received at least one frame.
    pub receives: u64,
    /// Calls that sent frames.
    pub sends: u64,
    /// Changes that the engine refused.
    pub unchanged: u64,
}

impl Snapshot {
    /// The rate in bit/s (layer 3) at which a class has sent since an earlier snapshot; 0 if no
    /// time has passed.
    pub fn rate_since(&self, earlier: &Snapshot, class: usize) -> u64 {
        let sent = |snapshot: &Snapshot| snapshot.classes.get(class).map_or(0, |class| class.counters.sent_bytes);
        let time = u128::from(self.at.saturating_sub(earlier.at));
        let bits = u128::from(sent(self).saturating_sub(sent(earlier))) * 8 * 1_000_000_000;
        bits.checked_div(time).unwrap_or(0) as u64
    }
}
