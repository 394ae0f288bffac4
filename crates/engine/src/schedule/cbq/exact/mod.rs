//! Exact CBQ: the promises that class-based queueing was designed for, kept to a packet
//! (docs/reference/cbq.md).
//!
//! Two criteria, as in HFSC (Stoica, Zhang and Ng 1997) with constant rates only:
//!
//! - *Guarantee*: every leaf has a clock that advances by the time its packet takes at the leaf's
//!   rate. While the clock is not ahead of the present, its packet is within guarantee; such
//!   packets go first, by priority, then by deadline. A leaf whose clock is ahead waits in a
//!   [`wheel`] and is never polled. While a leaf has packets its clock is not touched, so service
//!   that came late is repaid.
//! - *Excess*: the rest is divided along the tree by start-time fair queueing, a [`ring`] an inner
//!   class. In `excess priority` an inner class lends what it has left, the lowest level first, and
//!   its borrowers stand in trees of their own by priority.
//!
//! Every packet, guaranteed or not, advances the tags of all classes above it, so excess makes up
//! for what guarantees left unequal. No step looks at all classes: a packet costs its depth in the
//! tree and what its timer costs.

mod excess;
mod ready;
mod ring;
mod rows;
mod state;
mod tree;
mod wheel;
mod words;

use super::super::{Context, ROOT_SLOT, Scheduler, Slot};
use crate::prefetch::prefetch;
use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::{Nanos, Rate};
use ready::Ready;
use ring::Ring;
use rows::Rows;
use state::{AVAIL, BACKLOGGED, BORROW, CAP, FILED, NIL, NODE, READY, Records, ZERO, span};
use wheel::Wheel;
use words::{Excess, Words};

/// The caller's time 0 on the clocks here, so that a class can have been idle before it: a source
/// that is within its guarantee may begin with its burst at time 0.
const EPOCH: Nanos = 1 << 60;

/// Makes one.
pub fn build(context: &Context, settings: &Settings) -> Result<Box<dyn Scheduler>, SpecError> {
    Ok(Box::new(Exact::new(context, words::scheduler(settings)?)))
}

/// In place of a lender's number: the packet is within its class's guarantee.
const GUARANTEE: u32 = NIL;

/// The scheduler.
struct Exact {
    excess: Excess,
    link_rate: u64,
    mtu: u32,
    /// The present, from [`EPOCH`] on.
    now: Nanos,
    records: Records,
    /// Calendars of the branches.
    rings: Vec<Ring>,
    wheel: Wheel,
    ready: Ready,
    rows: Rows,
    /// The answer of `choose`, until something changes; [`NIL`] if there is none.
    chosen: Slot,
    /// When it was given.
    chosen_at: Nanos,
    /// The node whose bandwidth the chosen leaf takes, or [`GUARANTEE`].
    lender: u32,
    /// Leaves that have packets.
    busy: u32,
    /// The only one of them, where it came alone: it was not filed anywhere, as it will be gone
    /// before anybody asks. [`NIL`] if there is none, or it was filed since.
    alone: Slot,
    /// By which rule it goes: [`GUARANTEE`], or 0.
    alone_lender: u32,
    /// Counts changes of the tree; see [`Branch::open`](state::Branch::open).
    changes: u32,
    /// The branch from which the chosen leaf borrows, when that is not the root's.
    lending: u32,
    /// Leaves in use.
    leaves: u32,
    /// Levels of nodes are to be counted anew.
    levels_stale: bool,
    free: Free,
}

/// Records of classes that went.
#[derive(Default)]
struct Free {
    branches: Vec<u32>,
    nodes: Vec<u32>,
    caps: Vec<u32>,
    rings: Vec<u32>,
}

impl Exact {
    /// Makes timers that are due take effect.
    #[inline]
    fn advance(&mut self) {
        if self.wheel.is_due(self.now) {
            self.pop_timers();
        }
    }

    fn pop_timers(&mut self) {
        while let Some(id) = self.wheel.pop(&mut self.records, self.now) {
            if id & CAP != 0 {
                self.release_cap(id & !CAP);
            } else if id & NODE != 0 {
                self.release_node(id & !NODE);
            } else {
                let line = &mut self.records.lines[id as usize];
                line.flags &= !FILED;
                if line.has(BACKLOGGED) {
                    self.make_ready(id);
                }
            }
        }
    }

    #[inline]
    fn make_ready(&mut self, slot: u32) {
        let Records { lines, slip, .. } = &mut self.records;
        let line = &mut lines[slot as usize];
        line.flags |= READY;
        let slip = slip[usize::from(line.priority) % 8];
        let deadline = line.e.saturating_add(slip).saturating_add(span(line.nspb, line.len));
        let priority = line.priority;
        self.ready.push(&mut self.records, priority, deadline, slot);
    }

    /// Puts a leaf where its guarantee clock says, if it has packets and is not there yet.
    #[inline]
    fn file_guarantee(&mut self, slot: u32) {
        let line = &self.records.lines[slot as usize];
        if line.flags & (BACKLOGGED | FILED | READY | ZERO) != BACKLOGGED {
            return;
        }
        let due = self.records.leaf_due(line);
        if due <= self.now {
            self.make_ready(slot);
        } else {
            self.records.lines[slot as usize].flags |= FILED;
            self.wheel.file_at(&mut self.records, slot, due, self.now);
        }
    }

    #[inline]
    fn empty(&mut self, slot: u32) {
        let line = &mut self.records.lines[slot as usize];
        if line.has(BACKLOGGED) {
            line.flags &= !BACKLOGGED;
            self.busy -= 1;
            if line.has(AVAIL) {
                self.leaf_down(slot);
            }
        }
        if self.alone == slot {
            self.alone = NIL;
        }
    }

    /// Files the leaf that came alone as if it had not.
    fn settle(&mut self) {
        let slot = std::mem::replace(&mut self.alone, NIL);
        if slot != NIL {
            self.file_guarantee(slot);
            if self.alone_lender != GUARANTEE {
                self.leaf_up(slot);
            }
        }
    }

    /// Something other than a packet's coming or going is about to happen.
    fn before_change(&mut self, now: Nanos) {
        self.touch(now);
        self.settle();
        self.changes = self.changes.wrapping_add(1);
    }

    /// Who goes now, and on what.
    #[inline(always)]
    fn choose_now(&mut self) -> Option<(Slot, u32)> {
        if self.alone != NIL {
            if self.alone_lender == GUARANTEE
                || self.records.leaf_due(&self.records.lines[self.alone as usize]) > self.now
            {
                self.advance();
                return Some((self.alone, self.alone_lender));
            }
            self.settle();
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
    fn touch(&mut self, now: Nanos) {
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
            self.before_change(now);
            self.set_excess(excess);
            return Ok(());
        }
        let words = Words::read(settings, self.mtu)?;
        self.before_change(now);
        self.change_class(slot, parent, words);
        Ok(())
    }

    fn remove(&mut self, now: Nanos, slot: Slot) {
        self.before_change(now);
        self.remove_class(slot);
    }

    fn set_rate(&mut self, now: Nanos, rate: Rate, link_rate: Rate) {
        self.before_change(now);
        self.link_rate = link_rate.as_bit_s();
        self.set_root_rate(rate.as_bit_s());
    }

    #[inline]
    fn queued(&mut self, now: Nanos, slot: Slot, len: u32, first: bool) {
        if !first {
            return;
        }
        self.touch(now);
        if self.alone != NIL {
            self.settle();
        }
        let line = &mut self.records.lines[slot as usize];
        line.len = len;
        if line.has(BACKLOGGED) {
            return;
        }
        line.flags |= BACKLOGGED;
        self.busy += 1;
        let alone = self.busy == 1 && !line.has(READY);
        if line.has(ZERO) {
            if alone && self.may_take(slot) {
                (self.alone, self.alone_lender) = (slot, 0);
            } else {
                self.leaf_up(slot);
            }
            return;
        }
        // Idleness earns the burst and no more (docs/reference/cbq.md rule 10). A clock that is
        // ahead stays there.
        let slip = self.records.slip[usize::from(line.priority) % 8];
        let credit = span(line.nspb, line.burst);
        line.e = line.e.max(self.now.saturating_sub(slip).saturating_sub(credit));
        if alone {
            let guaranteed = line.e.saturating_add(slip) <= self.now;
            if guaranteed && !line.has(FILED) || !guaranteed && self.may_take(slot) {
                (self.alone, self.alone_lender) = (slot, if guaranteed { GUARANTEE } else { 0 });
                return;
            }
        }
        self.file_guarantee(slot);
        // Who is within guarantee goes before all excess: whether he takes some shows when that
        // packet has gone.
        if !self.records.lines[slot as usize].has(READY) {
            self.leaf_up(slot);
        }
    }

    fn head_lost(&mut self, now: Nanos, slot: Slot, next: Option<u32>) {
        self.touch(now);
        match next {
            Some(len) => self.records.lines[slot as usize].len = len,
            None => self.empty(slot),
        }
    }

    #[inline]
    fn choose(&mut self, now: Nanos) -> Option<Slot> {
        if self.chosen != NIL && self.chosen_at == now {
            return Some(self.chosen);
        }
        self.touch(now);
        let (slot, lender) = self.choose_now()?;
        (self.chosen, self.chosen_at, self.lender) = (slot, now, lender);
        Some(slot)
    }

    #[inline]
    fn sent(&mut self, now: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        let lender = if self.chosen == slot { self.lender } else { 0 };
        self.touch(now);
        let guaranteed = lender == GUARANTEE;
        let alone = self.alone == slot;
        if guaranteed && !alone {
            self.ready.pop(&mut self.records);
        }
        match (self.excess, guaranteed) {
            (Excess::Share, true) => self.charge::<true>(slot, len),
            (Excess::Share, false) if alone => self.charge_alone(slot, len),
            (Excess::Share, false) => self.charge::<false>(slot, len),
            (Excess::Priority, _) => {
                if !guaranteed && lender > 0 {
                    self.rows.turn(&mut self.records, self.lending);
                }
                self.charge_lent(slot, len, lender);
            }
        }
        let Some(next) = next else {
            self.empty(slot);
            return !guaranteed;
        };
        let line = &mut self.records.lines[slot as usize];
        line.len = next;
        if alone | guaranteed {
            let linked = line.flags & (BORROW | AVAIL) != BORROW;
            self.alone = NIL;
            self.file_guarantee(slot);
            if !linked && (!guaranteed || !self.records.lines[slot as usize].has(READY)) {
                self.leaf_up(slot);
            }
        }
        !guaranteed
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        let now = self.now - EPOCH;
        if self.choose(now).is_some() {
            return Some(now);
        }
        let next = self.wheel.next(&mut self.records, |records, id| {
            // A dead entry was dropped: whoever it was may be filed again.
            if id & CAP != 0 {
                records.caps[(id & !CAP) as usize].parked = false;
            } else if id & NODE != 0 {
                records.nodes[(id & !NODE) as usize].filed = false;
            } else {
                records.lines[id as usize].flags &= !FILED;
            }
        })?;
        Some(next.saturating_sub(EPOCH))
    }

    #[inline]
    fn fetch(&self, slot: Slot) {
        prefetch(&self.records.lines, slot as usize);
    }

    #[inline]
    fn likely_next(&self, slot: Slot) -> [Slot; 2] {
        let lines = &self.records.lines;
        if let Some(first) = self.ready.first() {
            return [first, lines.get(first as usize).map_or(NIL, |line| line.timer_next)];
        }
        // Behind it in its ring, if that is a leaf.
        let behind = |slot: u32| lines.get(slot as usize).map_or(NIL, |line| line.ring_next);
        let next = behind(slot);
        [next, behind(next)]
    }

    fn memory(&self) -> usize {
        self.records_memory()
            + self.rings.iter().map(Ring::memory).sum::<usize>()
            + self.rings.capacity() * size_of::<Ring>()
            + self.wheel.memory()
            + self.ready.memory()
            + self.rows.memory()
    }
}

/// Largest number of slots that the engine may use.
const _: () = assert!(NODE < CAP && NIL > NODE);
