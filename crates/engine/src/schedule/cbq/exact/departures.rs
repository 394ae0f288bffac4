//! Departures: what is counted when a packet has left. There is a function for each case, so that
//! none asks again what the choice has found out: whether the packet was within guarantee, and
//! whether its leaf was the only one with packets.
//!
//! A child that is served beyond its guarantee stands at the front of its calendar and moves on in
//! it at once. A child that is served within its guarantee may stand anywhere; the calendar moves
//! it when it comes to the front.

use super::state::{AVAIL, BORROW, BRANCH, NIL, NODE, READY, cost, span};
use super::words::Excess;
use super::{Exact, GUARANTEE};
use crate::units::SECOND;

/// How far a child's tag may be behind its calendar's present, in ns of virtual time. A tag falls
/// behind while the wire is slower than the link's rate and guarantees take more than their part.
/// Up to a second of that is made up for (docs/reference/cbq.md rule 14).
const LAG: u64 = SECOND;

/// A tag beyond which virtual time is set back to 0. In ns that is 146 years, but the virtual time
/// of a class of 1 bit/s that is alone on 10 Gbit/s gets there in less than a second.
const REBASE_AT: u64 = 1 << 62;

impl Exact {
    /// A packet within guarantee was sent in `excess share`.
    #[inline(always)]
    pub(super) fn sent_guaranteed(&mut self, slot: u32, len: u32, next: Option<u32>) {
        self.ready.pop(&mut self.records);
        self.charge_guaranteed(slot, len);
        self.file_next(slot, next, true);
    }

    /// A packet beyond guarantees was sent in `excess share`. It counts in the tags and caps from
    /// the leaf to the root.
    #[inline(always)]
    pub(super) fn sent_excess(&mut self, slot: u32, len: u32, next: Option<u32>) {
        let leaf = &mut self.records.leaves[slot as usize];
        let time = cost(leaf.nspb, len, &mut leaf.rem);
        let (mut branch, mut cap, mut home) = (leaf.branch, leaf.cap, leaf.home());
        let mut tag = self.calendars[home as usize].serve_front(leaf.start, time, LAG);
        leaf.start = tag;
        match next {
            Some(next) => {
                leaf.len = next;
                self.calendars[home as usize].move_on(&mut self.records, slot, tag);
            }
            None => self.empty(slot),
        }
        loop {
            if tag > REBASE_AT {
                self.rebase(home);
            }
            if cap != NIL {
                self.charge_cap(cap, len);
            }
            let b = &mut self.records.branches[branch as usize];
            if b.up == NIL {
                return;
            }
            let time = cost(b.nspb, len, &mut b.rem);
            let child = branch | BRANCH;
            (home, branch, cap) = (b.home, b.up, b.cap);
            let calendar = &mut self.calendars[home as usize];
            tag = calendar.serve_front(b.start, time, LAG);
            b.start = tag;
            if b.flags & AVAIL != 0 {
                calendar.move_on(&mut self.records, child, tag);
            }
        }
    }

    /// A packet was sent of the leaf that is [alone](Exact::alone).
    #[inline(always)]
    pub(super) fn sent_alone(&mut self, slot: u32, len: u32, next: Option<u32>, lender: u32) {
        if self.excess == Excess::Priority {
            self.charge_lent(slot, len, lender);
        } else if lender == GUARANTEE {
            self.charge_guaranteed(slot, len);
        } else {
            self.charge_alone(slot, len);
        }
        self.alone = NIL;
        self.file_next(slot, next, lender == GUARANTEE);
    }

    /// A packet was sent in `excess priority`.
    pub(super) fn sent_lent(&mut self, slot: u32, len: u32, next: Option<u32>, lender: u32) {
        if lender == GUARANTEE {
            self.ready.pop(&mut self.records);
            self.charge_lent(slot, len, lender);
            return self.file_next(slot, next, true);
        }
        if lender > 0 {
            self.lenders.rotate(&mut self.records, self.lending);
        }
        self.charge_lent(slot, len, lender);
        match next {
            Some(next) => self.records.leaves[slot as usize].len = next,
            None => self.empty(slot),
        }
    }

    /// The end of a departure of a leaf that is not filed by its guarantee clock: it is filed for
    /// its next packet. The last one was within guarantee, or not.
    #[inline(always)]
    fn file_next(&mut self, slot: u32, next: Option<u32>, guaranteed: bool) {
        let Some(next) = next else { return self.empty(slot) };
        let leaf = &mut self.records.leaves[slot as usize];
        leaf.len = next;
        let linked = leaf.flags & (BORROW | AVAIL) != BORROW;
        self.file_guarantee(slot);
        // A leaf within guarantee goes before all excess: whether it can take excess matters only
        // once that packet has gone.
        if !linked && (!guaranteed || !self.records.leaves[slot as usize].has(READY)) {
            self.enable_leaf(slot);
        }
    }

    /// Counts a packet within guarantee in `excess share`. It advances the tags too, from the leaf
    /// to the root.
    #[inline(always)]
    fn charge_guaranteed(&mut self, slot: u32, len: u32) {
        self.bound_owed(slot);
        let leaf = &mut self.records.leaves[slot as usize];
        // The guarantee clock and the tag advance by the same: a class that gets just its guarantee
        // moves 1 ns of virtual time in 1 ns.
        let time = cost(leaf.nspb, len, &mut leaf.rem);
        leaf.eligible = leaf.eligible.saturating_add(time);
        let (mut branch, mut cap, mut home) = (leaf.branch, leaf.cap, leaf.home());
        let mut tag = self.calendars[home as usize].serve_early(leaf.start, time, LAG, leaf.has(AVAIL));
        leaf.start = tag;
        loop {
            if tag > REBASE_AT {
                self.rebase(home);
            }
            if cap != NIL {
                self.charge_cap(cap, len);
            }
            let b = &mut self.records.branches[branch as usize];
            if b.up == NIL {
                return;
            }
            let time = cost(b.nspb, len, &mut b.rem);
            (home, branch, cap) = (b.home, b.up, b.cap);
            tag = self.calendars[home as usize].serve_early(b.start, time, LAG, b.flags & AVAIL != 0);
            b.start = tag;
        }
    }

    /// Counts a packet beyond guarantees of a leaf that is [alone](Exact::alone). The leaf, and
    /// each branch above it, starts at the present of its calendar and is charged at once.
    #[inline(always)]
    fn charge_alone(&mut self, slot: u32, len: u32) {
        let leaf = &mut self.records.leaves[slot as usize];
        let time = cost(leaf.nspb, len, &mut leaf.rem);
        let (mut branch, mut home) = (leaf.branch, leaf.home());
        leaf.start = self.calendars[home as usize].serve_alone(leaf.start, time);
        let mut far = leaf.start > REBASE_AT;
        loop {
            if far {
                self.rebase(home);
            }
            let b = &mut self.records.branches[branch as usize];
            if b.up == NIL {
                return;
            }
            let time = cost(b.nspb, len, &mut b.rem);
            (home, branch) = (b.home, b.up);
            b.start = self.calendars[home as usize].serve_alone(b.start, time);
            far = b.start > REBASE_AT;
        }
    }

    /// Counts a packet in `excess priority`. A packet within guarantee is charged to the credit of
    /// all nodes above. A packet beyond guarantee advances the tags below its lender, and is
    /// charged to the credit of the lender and of all above it.
    #[inline(never)]
    fn charge_lent(&mut self, slot: u32, len: u32, lender: u32) {
        let guaranteed = lender == GUARANTEE;
        if guaranteed {
            self.bound_owed(slot);
        }
        let leaf = &mut self.records.leaves[slot as usize];
        let time = cost(leaf.nspb, len, &mut leaf.rem);
        let (mut branch, cap) = (leaf.branch, leaf.cap);
        if guaranteed {
            leaf.eligible = leaf.eligible.saturating_add(time);
        } else {
            let home = leaf.home();
            leaf.start = self.calendars[home as usize].serve_front(leaf.start, time, LAG);
            let tag = leaf.start;
            self.calendars[home as usize].move_on(&mut self.records, slot, tag);
            if tag > REBASE_AT {
                self.rebase(home);
            }
        }
        if cap != NIL {
            self.charge_cap(cap, len);
        }
        let mut lends = guaranteed;
        loop {
            let b = &mut self.records.branches[branch as usize];
            let (node, up, cap) = (b.node, b.up, b.cap);
            if up == NIL {
                return;
            }
            lends |= lender == node;
            if !lends {
                let time = cost(b.nspb, len, &mut b.rem);
                let home = b.home;
                b.start = self.calendars[home as usize].serve_front(b.start, time, LAG);
                let tag = b.start;
                self.calendars[home as usize].move_on(&mut self.records, branch | BRANCH, tag);
                if tag > REBASE_AT {
                    self.rebase(home);
                }
            }
            if cap != NIL {
                self.charge_cap(cap, len);
            }
            // Nodes between the leaf and the lender are not charged.
            if lends {
                self.charge_lender(node, len);
            }
            branch = up;
        }
    }

    fn charge_lender(&mut self, node: u32, len: u32) {
        let now = self.now;
        let n = &mut self.records.nodes[node as usize];
        if n.nspb == 0 {
            return;
        }
        // While something below waits, credit that was not used is kept; after idle time there is a
        // burst of it.
        let burst = span(n.nspb, n.words.burst);
        let (clock, nspb) = (n.underlimit, n.nspb);
        let clock = if n.live > 0 {
            self.bound_inner(clock, burst.max(SECOND), nspb)
        } else {
            clock.max(now.saturating_sub(burst))
        };
        let n = &mut self.records.nodes[node as usize];
        n.underlimit = clock.saturating_add(cost(n.nspb, len, &mut n.rem));
        if n.underlimit > now && n.live > 0 && !n.filed {
            n.filed = true;
            self.wheel.file(&mut self.records, node | NODE, self.now);
        }
    }
}
