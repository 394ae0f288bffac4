//! Exact CBQ: the promises that class-based queueing was designed for, kept to a packet
//! (docs/reference/cbq.md).
//!
//! Two criteria, as in HFSC (Stoica, Zhang and Ng 1997) with constant rates only:
//!
//! - *Guarantee*: every leaf has a clock that advances by the time its packet takes at the leaf's
//!   rate. While the clock is not ahead of the present, its packet is within guarantee; such
//!   packets go first, by priority, then by deadline. A leaf whose clock is ahead waits in a
//!   [timing wheel](timing_wheel) and is never polled. While a leaf has packets its clock is not
//!   touched, so service that came late is repaid.
//! - *Excess*: the rest is divided along the tree by start-time fair queueing, a [`calendar`] an
//!   inner class. With `excess priority` inner classes lend what they have left, the lowest level
//!   first, and the classes that borrow stand in a tree for each priority.
//!
//! With `excess share` every packet, guaranteed or not, advances the tags of its leaf and of all
//! classes above it, so excess makes up for what guarantees left unequal. The work for a packet
//! grows with its depth in the tree and not with the number of classes.

mod calendar;
mod caps;
mod departures;
mod excess;
mod lenders;
mod owed;
mod ready;
mod state;
mod timing_wheel;
mod tree;
mod words;

use super::super::{Context, ROOT_SLOT, Scheduler, Slot};
use crate::prefetch::prefetch;
use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::{Nanos, Rate};
use calendar::Calendar;
use lenders::Lenders;
pub use owed::stall;
use ready::Ready;
use state::{AVAIL, BACKLOGGED, CAP, FILED, NIL, NODE, READY, Records, ZERO, span};
use timing_wheel::TimingWheel;
use words::{Excess, Words};

/// The caller's time 0 on the clocks of this scheduler. So a class counts as idle before that time,
/// and may begin with its burst at time 0.
const EPOCH: Nanos = 1 << 60;

/// Makes one.
pub fn build(context: &Context, settings: &Settings) -> Result<Box<dyn Scheduler>, SpecError> {
    Ok(Box::new(Exact::new(context, words::scheduler(settings)?)))
}

/// Stands in place of a lender's number if the packet is within its class's guarantee.
const GUARANTEE: u32 = NIL;

/// The scheduler.
struct Exact {
    excess: Excess,
    link_rate: u64,
    mtu: u32,
    /// The largest packet, bytes on the wire.
    packet: u32,
    /// The scheduler is inside a class.
    nested: bool,
    /// How much of a stall is made up for, ns.
    stall: u64,
    /// Sums over the leaves of each priority.
    levels: [owed::Level; 8],
    /// The present: [`EPOCH`] and the caller's time.
    now: Nanos,
    records: Records,
    /// Two calendars for each branch; see [`calendar`](state::calendar).
    calendars: Vec<Calendar>,
    wheel: TimingWheel,
    ready: Ready,
    lenders: Lenders,
    /// The answer of `choose`, until something changes; [`NIL`] if there is none.
    chosen: Slot,
    /// When it was given.
    chosen_at: Nanos,
    /// The node whose bandwidth the chosen leaf takes, or [`GUARANTEE`].
    lender: u32,
    /// The number of leaves that have packets.
    busy: u32,
    /// A leaf that became backlogged while no other was. It is not filed anywhere, as its packet is
    /// usually sent before another leaf has one. [`NIL`] if there is none, or it has been filed
    /// since.
    alone: Slot,
    /// The lender of its packet: [`GUARANTEE`], or 0 for the root.
    alone_lender: u32,
    /// Counts changes of the tree; see [`Branch::open`](state::Branch::open).
    changes: u32,
    /// The branch from which the chosen leaf borrows, when that is not the root's.
    lending: u32,
    /// Leaves in use.
    leaf_count: u32,
    /// Levels of nodes must be counted again.
    levels_stale: bool,
    free: Free,
}

/// Records of removed classes, to be used again.
#[derive(Default)]
struct Free {
    branches: Vec<u32>,
    nodes: Vec<u32>,
    caps: Vec<u32>,
}

impl Exact {
    /// Makes timers that are due take effect.
    #[inline]
    fn advance(&mut self) {
        if self.wheel.is_due(self.now) {
            self.pop_timers();
        }
    }

    #[inline(never)]
    fn pop_timers(&mut self) {
        loop {
            let mut id = self.wheel.take(&mut self.records, self.now);
            if id == NIL {
                return;
            }
            while id != NIL {
                id = if id & (CAP | NODE) == 0 { self.pop_leaf(id) } else { self.pop_inner(id) };
            }
        }
    }

    /// A leaf's timer was taken out of the wheel. Returns the timer behind it.
    #[inline(always)]
    fn pop_leaf(&mut self, slot: u32) -> u32 {
        let Records { leaves, slip, .. } = &mut self.records;
        let leaf = &mut leaves[slot as usize];
        let next = leaf.timer_next;
        let due = leaf.eligible.saturating_add(slip[usize::from(leaf.priority) % 8]);
        if due > self.now {
            leaf.timer_next = self.wheel.place(slot, due, self.now);
        } else {
            leaf.flags &= !FILED;
            if leaf.has(BACKLOGGED) {
                self.make_ready(slot, due);
            }
        }
        next
    }

    /// The same for the timer of a cap or a node.
    fn pop_inner(&mut self, id: u32) -> u32 {
        let next = self.records.timer_next(id);
        if self.records.due(id) > self.now {
            self.wheel.file(&mut self.records, id, self.now);
        } else if id & CAP != 0 {
            self.release_cap(id & !CAP);
        } else {
            self.release_node(id & !NODE);
        }
        next
    }

    /// Puts a leaf whose packet is within guarantee since `due` into the ready queue, by its
    /// deadline.
    #[inline(always)]
    fn make_ready(&mut self, slot: u32, due: u64) {
        let leaf = &mut self.records.leaves[slot as usize];
        leaf.flags |= READY;
        let (priority, deadline) = (leaf.priority, due.saturating_add(span(leaf.nspb, leaf.len)));
        self.ready.push(&mut self.records.leaves, priority, deadline, slot);
    }

    /// Files a leaf that has packets by its guarantee clock: into the ready queue, or into the
    /// timing wheel. Does nothing if it is filed already.
    #[inline]
    fn file_guarantee(&mut self, slot: u32) {
        let Records { leaves, slip, .. } = &mut self.records;
        let leaf = &mut leaves[slot as usize];
        if leaf.flags & (BACKLOGGED | FILED | READY | ZERO) != BACKLOGGED {
            return;
        }
        let due = leaf.eligible.saturating_add(slip[usize::from(leaf.priority) % 8]);
        if due <= self.now {
            self.make_ready(slot, due);
        } else {
            leaf.flags |= FILED;
            leaf.timer_next = self.wheel.place(slot, due, self.now);
        }
    }

    /// A leaf has no packets any more.
    #[inline]
    fn empty(&mut self, slot: u32) {
        let leaf = &mut self.records.leaves[slot as usize];
        if leaf.has(BACKLOGGED) {
            leaf.flags &= !BACKLOGGED;
            self.busy -= 1;
            if leaf.has(AVAIL) {
                self.disable_leaf(slot);
            }
        }
        if self.alone == slot {
            self.alone = NIL;
        }
    }

    /// Files the leaf that was [alone](Exact::alone) like any other.
    fn file_alone(&mut self) {
        let slot = std::mem::replace(&mut self.alone, NIL);
        if slot != NIL {
            self.file_guarantee(slot);
            if self.alone_lender != GUARANTEE {
                self.enable_leaf(slot);
            }
        }
    }

    /// Prepares for a change of the tree or of a rate.
    fn before_change(&mut self, now: Nanos) {
        self.update_now(now);
        self.file_alone();
        self.changes = self.changes.wrapping_add(1);
    }

    /// The leaf that sends now, and the class that lends, or [`GUARANTEE`].
    #[inline(always)]
    fn choose_now(&mut self) -> Option<(Slot, u32)> {
        if self.alone != NIL {
            if self.alone_lender == GUARANTEE
                || self.records.leaf_due(&self.records.leaves[self.alone as usize]) > self.now
            {
                self.advance();
                return Some((self.alone, self.alone_lender));
            }
            self.file_alone();
        }
        self.advance();
        // docs/reference/cbq.md rule 8: excess never goes before a packet within guarantee.
        if let Some(slot) = self.ready.front(&mut self.records) {
            return Some((slot, GUARANTEE));
        }
        if self.levels_stale {
            self.count_levels();
        }
        self.choose_excess()
    }

    #[inline]
    fn update_now(&mut self, now: Nanos) {
        self.now = self.now.max(now.saturating_add(EPOCH));
        self.chosen = NIL;
    }
}

impl Scheduler for Exact {
    fn add(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        let words = Words::read(settings, self.mtu)?;
        self.before_change(now);
        self.add_class(slot, parent, words);
        Ok(())
    }

    fn change(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot == ROOT_SLOT {
            let excess = words::scheduler(settings)?;
            if excess != self.excess {
                self.before_change(now);
                self.set_excess(excess);
            }
            return Ok(());
        }
        let words = Words::read(settings, self.mtu)?;
        if self.has_words(slot, parent, &words) {
            return Ok(());
        }
        self.before_change(now);
        self.change_class(slot, parent, words);
        Ok(())
    }

    fn remove(&mut self, now: Nanos, slot: Slot) {
        self.before_change(now);
        self.remove_class(slot);
    }

    fn set_rate(&mut self, now: Nanos, rate: Rate, link_rate: Rate) {
        if self.link_rate == link_rate.as_bit_s() && self.records.nodes[0].words.rate == rate.as_bit_s() {
            return;
        }
        self.before_change(now);
        self.link_rate = link_rate.as_bit_s();
        self.stall = owed::stall(self.nested, rate.as_bit_s(), self.packet);
        self.set_root_rate(rate.as_bit_s());
    }

    #[inline]
    fn queued(&mut self, now: Nanos, slot: Slot, len: u32, first: bool) {
        if !first {
            return;
        }
        self.update_now(now);
        if self.alone != NIL {
            self.file_alone();
        }
        let leaf = &mut self.records.leaves[slot as usize];
        leaf.len = len;
        if leaf.has(BACKLOGGED) {
            return;
        }
        leaf.flags |= BACKLOGGED;
        self.busy += 1;
        let alone = self.busy == 1 && !leaf.has(READY);
        if leaf.has(ZERO) {
            if alone && self.can_take_alone(slot) {
                (self.alone, self.alone_lender) = (slot, 0);
            } else {
                self.enable_leaf(slot);
            }
            return;
        }
        // Idleness earns the burst and no more (docs/reference/cbq.md rule 10). A clock that is
        // ahead stays there.
        let slip = self.records.slip[usize::from(leaf.priority) % 8];
        let credit = span(leaf.nspb, leaf.burst);
        leaf.eligible = leaf.eligible.max(self.now.saturating_sub(slip).saturating_sub(credit));
        if alone {
            let guaranteed = leaf.eligible.saturating_add(slip) <= self.now;
            if guaranteed && !leaf.has(FILED) || !guaranteed && self.can_take_alone(slot) {
                (self.alone, self.alone_lender) = (slot, if guaranteed { GUARANTEE } else { 0 });
                return;
            }
        }
        self.file_guarantee(slot);
        // A leaf within guarantee goes before all excess. Whether it can take excess matters only
        // once that packet has gone.
        if !self.records.leaves[slot as usize].has(READY) {
            self.enable_leaf(slot);
        }
    }

    fn head_lost(&mut self, now: Nanos, slot: Slot, next: Option<u32>) {
        self.update_now(now);
        match next {
            Some(len) => self.records.leaves[slot as usize].len = len,
            None => self.empty(slot),
        }
    }

    #[inline(always)]
    fn choose(&mut self, now: Nanos) -> Option<Slot> {
        if self.chosen != NIL && self.chosen_at == now {
            return Some(self.chosen);
        }
        self.update_now(now);
        let (slot, lender) = self.choose_now()?;
        (self.chosen, self.chosen_at, self.lender) = (slot, now, lender);
        Some(slot)
    }

    #[inline(always)]
    fn sent(&mut self, now: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        let lender = if self.chosen == slot { self.lender } else { 0 };
        self.update_now(now);
        if self.alone == slot {
            self.sent_alone(slot, len, next, lender);
        } else if self.excess == Excess::Priority {
            self.sent_lent(slot, len, next, lender);
        } else if lender == GUARANTEE {
            self.sent_guaranteed(slot, len, next);
        } else {
            self.sent_excess(slot, len, next);
        }
        lender != GUARANTEE
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        let now = self.now - EPOCH;
        if self.choose(now).is_some() {
            return Some(now);
        }
        let next = self.wheel.next(&mut self.records, |records, id| {
            // A void entry was removed: its leaf or node may be filed again.
            if id & CAP != 0 {
                records.caps[(id & !CAP) as usize].parked = false;
            } else if id & NODE != 0 {
                records.nodes[(id & !NODE) as usize].filed = false;
            } else {
                records.leaves[id as usize].flags &= !FILED;
            }
        })?;
        Some(next.saturating_sub(EPOCH))
    }

    #[inline]
    fn fetch(&self, slot: Slot) {
        prefetch(&self.records.leaves, slot as usize);
    }

    #[inline]
    fn likely_next(&mut self, slot: Slot) -> [Slot; 2] {
        let leaves = &self.records.leaves;
        if let Some(first) = self.ready.first() {
            return [first, leaves.get(first as usize).map_or(NIL, |leaf| leaf.timer_next)];
        }
        // Who is at the front of its calendar now, and who stands behind, if those are leaves.
        let calendar = leaves.get(slot as usize).and_then(|leaf| self.calendars.get(leaf.home() as usize));
        let next = calendar.map_or(NIL, Calendar::likely_front);
        [next, leaves.get(next as usize).map_or(NIL, |leaf| leaf.calendar_next)]
    }

    fn memory(&self) -> usize {
        self.records_memory()
            + self.calendars.iter().map(Calendar::memory).sum::<usize>()
            + self.calendars.capacity() * size_of::<Calendar>()
            + self.wheel.memory()
            + self.ready.memory()
            + self.lenders.memory()
    }
}

// Slots are less than [`NODE`], which marks other timers as [`CAP`] does; [`NIL`] is no slot.
const _: () = assert!(NODE < CAP && NIL > NODE);
