//! Excess: which classes can take the bandwidth that others leave, and which of them does.
//!
//! A leaf *can take* excess while it has packets, borrows, and no ceiling of its own stops it. A
//! branch can take excess while one of its children can and no cap stops it. Each branch and each
//! calendar counts its children that can; the counts are exact at all times. A child that can take
//! excess again starts at the present of its calendar, so it claims nothing for the time before.

use super::Exact;
use super::state::{
    AVAIL, BACKLOGGED, BORROW, BRANCH, CAP, Cap, IN_LENDERS, LINKED, NIL, NODE, ZERO, calendar, cost, span,
};
use super::words::Excess;
use crate::units::SECOND;

/// The root's branch in `excess share`, which has one band: the first branch that is made.
const ROOT_BRANCH: u32 = 0;

impl Exact {
    /// A leaf has packets. If it borrows and no ceiling stops it, it can take excess from now on.
    #[inline]
    pub(super) fn enable_leaf(&mut self, slot: u32) {
        let leaf = &mut self.records.leaves[slot as usize];
        if leaf.flags & (BACKLOGGED | BORROW | AVAIL) != BACKLOGGED | BORROW {
            return;
        }
        let cap = leaf.cap;
        if cap != NIL {
            if self.cap_stops(cap) {
                return;
            }
            self.grant_cap_burst(cap);
        }
        self.offer_leaf(slot);
    }

    /// Whether a leaf that has packets can always take excess, because all classes on its way to
    /// the root borrow and none has a cap. Only in `excess share`.
    #[inline]
    pub(super) fn can_take_alone(&mut self, slot: u32) -> bool {
        let leaf = &self.records.leaves[slot as usize];
        self.excess == Excess::Share && leaf.has(BORROW) && leaf.cap == NIL && self.is_open(leaf.branch)
    }

    /// Whether every class from a branch up to the root borrows and has no cap.
    #[inline]
    fn is_open(&mut self, branch: u32) -> bool {
        let open = self.records.branches[branch as usize].open;
        if open >> 1 == self.changes & u32::MAX >> 1 { open & 1 != 0 } else { self.find_open(branch) }
    }

    fn find_open(&mut self, branch: u32) -> bool {
        let (mut at, mut open) = (branch, true);
        loop {
            let b = &self.records.branches[at as usize];
            let words = &self.records.nodes[b.node as usize].words;
            open &= b.cap == NIL && (b.up == NIL || words.borrow || words.rate > 0);
            if b.up == NIL || !open {
                break;
            }
            at = b.up;
        }
        self.records.branches[branch as usize].open = self.changes << 1 | u32::from(open);
        open
    }

    fn offer_leaf(&mut self, slot: u32) {
        let branch = self.records.leaves[slot as usize].branch;
        self.enable_child(slot, branch);
        self.enable_branch(branch);
    }

    /// Marks a child as one that can take, links it in its calendar, and counts it above.
    #[inline]
    fn enable_child(&mut self, id: u32, above: u32) {
        let (tag, nspb, zero) = if id & BRANCH == 0 {
            let leaf = &mut self.records.leaves[id as usize];
            (leaf.start, leaf.nspb, leaf.has(ZERO))
        } else {
            let branch = &mut self.records.branches[(id & !BRANCH) as usize];
            (branch.start, branch.nspb, branch.flags & ZERO != 0)
        };
        self.records.branches[above as usize].avail += 1;
        let calendar = &mut self.calendars[calendar(above, zero) as usize];
        let tag = tag.max(calendar.present(&mut self.records));
        calendar.avail += 1;
        if id & BRANCH == 0 {
            self.records.leaves[id as usize].start = tag;
        } else {
            self.records.branches[(id & !BRANCH) as usize].start = tag;
        }
        let flags = self.records.flags(id);
        let linked = *flags & LINKED != 0;
        *flags |= AVAIL | LINKED;
        if !linked {
            calendar.admit(&mut self.records, nspb);
            calendar.insert(&mut self.records, id);
        }
    }

    /// A branch has one more child that can take excess. If it is the first, the branch can too,
    /// and so on upwards.
    #[inline]
    fn enable_branch(&mut self, mut branch: u32) {
        loop {
            let b = &self.records.branches[branch as usize];
            if b.avail > 1 {
                return;
            }
            let (node, up) = (b.node, b.up);
            let n = &mut self.records.nodes[node as usize];
            n.live += 1;
            let (cap, first) = (n.cap, n.live == 1);
            if self.excess == Excess::Priority {
                self.enable_lender(node, branch);
            }
            if up == NIL || !self.is_offered_above(node) {
                return;
            }
            if cap != NIL && first {
                self.grant_cap_burst(cap);
            }
            self.enable_child(branch | BRANCH, up);
            branch = up;
        }
    }

    /// Whether a node's branches may be offered to the one above.
    #[inline]
    fn is_offered_above(&mut self, node: u32) -> bool {
        let n = &self.records.nodes[node as usize];
        // In `excess share` a class without `borrow` takes part up to its own rate, which its cap
        // enforces. In `excess priority` its children get only what it lends itself.
        let may = n.words.borrow || self.excess == Excess::Share && n.words.rate > 0;
        let cap = n.cap;
        may && (cap == NIL || !self.cap_stops(cap))
    }

    /// A leaf cannot take excess any more.
    #[inline]
    pub(super) fn disable_leaf(&mut self, slot: u32) {
        let leaf = &mut self.records.leaves[slot as usize];
        if leaf.has(AVAIL) {
            leaf.flags &= !AVAIL;
            let (branch, zero) = (leaf.branch, leaf.has(ZERO));
            self.disable_child(branch, zero);
        }
    }

    /// A branch has one child fewer that can take excess.
    #[inline]
    fn disable_child(&mut self, mut branch: u32, mut zero: bool) {
        loop {
            let b = &mut self.records.branches[branch as usize];
            b.avail -= 1;
            self.calendars[calendar(branch, zero) as usize].avail -= 1;
            if b.avail > 0 {
                return;
            }
            self.records.nodes[b.node as usize].live -= 1;
            if b.flags & AVAIL == 0 {
                return;
            }
            b.flags &= !AVAIL;
            zero = b.flags & ZERO != 0;
            branch = b.up;
        }
    }

    /// Takes a node's branches out of the tree above, because a cap stops it or it gets another
    /// parent.
    pub(super) fn disable_node(&mut self, node: u32) {
        for branch in self.records.nodes[node as usize].branches {
            if branch != NIL {
                let b = &mut self.records.branches[branch as usize];
                if b.flags & AVAIL != 0 {
                    b.flags &= !AVAIL;
                    let (up, zero) = (b.up, b.flags & ZERO != 0);
                    self.disable_child(up, zero);
                }
            }
        }
    }

    /// Offers a node's branches to the tree above again.
    pub(super) fn enable_node(&mut self, node: u32) {
        if !self.is_offered_above(node) {
            return;
        }
        for branch in self.records.nodes[node as usize].branches {
            if branch != NIL {
                let b = &self.records.branches[branch as usize];
                if b.avail > 0 && b.flags & AVAIL == 0 && b.up != NIL {
                    let up = b.up;
                    self.enable_child(branch | BRANCH, up);
                    self.enable_branch(up);
                }
            }
        }
    }

    // ------------------------------------------------------------------ caps

    /// Whether a cap's clock is ahead of the present. If so it is in the wheel.
    #[inline]
    fn cap_stops(&mut self, at: u32) -> bool {
        let cap = &mut self.records.caps[at as usize];
        if cap.opens > self.now && !cap.parked {
            cap.parked = true;
            self.wheel.file(&mut self.records, at | CAP, self.now);
            return true;
        }
        cap.parked
    }

    /// Something below a cap has packets again. The idle time before has earned the cap's burst and
    /// no more.
    fn grant_cap_burst(&mut self, cap: u32) {
        let now = self.now;
        let cap = &mut self.records.caps[cap as usize];
        cap.opens = cap.opens.max(now.saturating_sub(cap.burst));
        cap.lag = if cap.owed { SECOND.max(cap.burst) } else { cap.burst };
    }

    /// Counts a packet against a cap.
    #[inline(never)]
    pub(super) fn charge_cap(&mut self, at: u32, len: u32) {
        let now = self.now;
        let Cap { opens, lag, nspb, owed, .. } = self.records.caps[at as usize];
        let opens = if owed { self.bound_inner(opens, lag, nspb) } else { opens.max(now.saturating_sub(lag)) };
        let cap = &mut self.records.caps[at as usize];
        cap.opens = opens.saturating_add(cost(cap.nspb, len, &mut cap.rem));
        if cap.opens > now && !cap.parked {
            cap.parked = true;
            let owner = cap.owner;
            self.wheel.file(&mut self.records, at | CAP, self.now);
            if owner & NODE == 0 {
                self.disable_leaf(owner);
            } else {
                self.disable_node(owner & !NODE);
            }
        }
    }

    /// A cap's clock is not ahead of the present any more.
    pub(super) fn release_cap(&mut self, at: u32) {
        let now = self.now;
        let cap = &mut self.records.caps[at as usize];
        cap.parked = false;
        // By how much a coarse timer is late is made up for (docs/reference/cbq.md rule 12). Time
        // lost to other classes is not, unless the limit is a guarantee too.
        if !cap.owed {
            cap.lag = now.saturating_sub(cap.opens).min(SECOND).saturating_add(cap.burst);
        }
        let owner = cap.owner;
        if owner & NODE != 0 {
            self.enable_node(owner & !NODE);
        } else if self.records.leaves[owner as usize].flags & (BACKLOGGED | BORROW | AVAIL) == BACKLOGGED | BORROW {
            self.offer_leaf(owner);
        }
    }

    // ------------------------------------------------------------------ lenders

    /// A branch of a node can take excess now. The node lends to it from its own rate if it has
    /// credit.
    fn enable_lender(&mut self, node: u32, branch: u32) {
        let n = &mut self.records.nodes[node as usize];
        if n.parent == NIL || n.nspb == 0 {
            return;
        }
        if n.live == 1 {
            // Idle time earns a burst and no more. A node that was not idle keeps all its credit.
            let burst = span(n.nspb, n.words.burst);
            n.underlimit = n.underlimit.max(self.now.saturating_sub(burst));
        }
        if n.underlimit <= self.now {
            self.push_lender(branch);
        } else if !n.filed {
            n.filed = true;
            self.wheel.file(&mut self.records, node | NODE, self.now);
        }
    }

    /// A node has credit again.
    pub(super) fn release_node(&mut self, node: u32) {
        let n = &mut self.records.nodes[node as usize];
        n.filed = false;
        self.offer(node);
    }

    /// Puts a node's branches into the list of lenders of its level, or the node into the timing
    /// wheel until it has credit.
    pub(super) fn offer(&mut self, node: u32) {
        let n = &mut self.records.nodes[node as usize];
        if n.parent == NIL || n.nspb == 0 || n.live == 0 || self.excess == Excess::Share {
            return;
        }
        if n.underlimit > self.now {
            if !n.filed {
                n.filed = true;
                self.wheel.file(&mut self.records, node | NODE, self.now);
            }
            return;
        }
        for branch in n.branches {
            if branch != NIL && self.records.branches[branch as usize].avail > 0 {
                self.push_lender(branch);
            }
        }
    }

    fn push_lender(&mut self, branch: u32) {
        let b = &self.records.branches[branch as usize];
        if b.flags & IN_LENDERS == 0 {
            let level = self.records.nodes[b.node as usize].level;
            self.lenders.push(&mut self.records, level, branch);
        }
    }

    // ------------------------------------------------------------------ choice

    /// The leaf that sends the next packet beyond guarantees, and the node that lends for it.
    #[inline(always)]
    pub(super) fn choose_excess(&mut self) -> Option<(u32, u32)> {
        let now = self.now;
        if self.excess == Excess::Priority {
            if let Some(branch) = self.lenders.front(&mut self.records, now) {
                self.lending = branch;
                let lender = self.records.branches[branch as usize].node;
                return Some((self.descend(branch)?, lender));
            }
            let root = self.records.nodes[0].branches;
            let branch = root.into_iter().rev().find(|b| *b != NIL && self.records.branches[*b as usize].avail > 0)?;
            return Some((self.descend(branch)?, 0));
        }
        if self.records.branches[ROOT_BRANCH as usize].avail == 0 {
            return None;
        }
        Some((self.descend(ROOT_BRANCH)?, 0))
    }

    /// Goes down from a branch, at each level to the child with the least start tag, to a leaf.
    #[inline]
    fn descend(&mut self, mut branch: u32) -> Option<u32> {
        loop {
            // docs/reference/cbq.md rule 6: rate 0 only when no sibling with a rate can take it.
            let zero = self.calendars[calendar(branch, false) as usize].avail == 0;
            let id = self.calendars[calendar(branch, zero) as usize].front(&mut self.records)?;
            if id & BRANCH == 0 {
                return Some(id);
            }
            branch = id & !BRANCH;
        }
    }
}
