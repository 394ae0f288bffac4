//! Excess: who can take what others leave, and who does.
//!
//! A leaf *can take* excess while it has packets, borrows, and no ceiling of its own stops it; a
//! branch while a child can and no cap stops it. The counts along the tree are exact at all times,
//! so that coming back from idleness is seen when it happens: who comes back starts at the present
//! of its ring and claims nothing for the time in which it could not take.

use super::state::{
    AVAIL, BACKLOGGED, BORROW, BRANCH, CAP, IN_ROW, LINKED, Line, NIL, NODE, Records, ZERO, cost, span,
};
use super::words::Excess;
use super::{Exact, GUARANTEE};
use crate::units::SECOND;

/// How far a child's tag may lie behind its ring's present, in ns of virtual time: what guarantees
/// took from it while the wire was slower than the link's rate is made good for one second's worth
/// (docs/reference/cbq.md rule 14).
const LAG: u64 = SECOND;

impl Exact {
    /// A leaf has packets, and may be one that takes excess from now on.
    #[inline]
    pub(super) fn leaf_up(&mut self, slot: u32) {
        let line = &mut self.records.lines[slot as usize];
        if line.flags & (BACKLOGGED | BORROW | AVAIL) != BACKLOGGED | BORROW {
            return;
        }
        let cap = line.cap;
        if cap != NIL {
            if self.cap_stops(cap) {
                return;
            }
            self.wake_cap(cap);
        }
        self.leaf_in(slot);
    }

    /// Whether a leaf that has packets can take excess all the way up, for no cap stands on it.
    /// Only in `excess share`.
    #[inline]
    pub(super) fn may_take(&mut self, slot: u32) -> bool {
        let line = &self.records.lines[slot as usize];
        self.excess == Excess::Share && line.has(BORROW) && line.cap == NIL && self.is_open(line.branch)
    }

    /// Whether what a branch has to offer always reaches the root: all from it upwards borrow, and
    /// have no cap.
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

    fn leaf_in(&mut self, slot: u32) {
        let branch = self.records.lines[slot as usize].branch;
        self.child_up(slot, branch);
        self.branch_up(branch);
    }

    /// Marks a child as one that can take, links it in its ring, and counts it above.
    #[inline]
    fn child_up(&mut self, id: u32, above: u32) {
        let (tag, nspb, zero) = if id & BRANCH == 0 {
            let line = &mut self.records.lines[id as usize];
            (line.s, line.nspb, line.has(ZERO))
        } else {
            let branch = &mut self.records.branches[(id & !BRANCH) as usize];
            (branch.s, branch.nspb, branch.flags & ZERO != 0)
        };
        let above = &mut self.records.branches[above as usize];
        above.avail += 1;
        let ring = &mut self.rings[above.rings[usize::from(zero)] as usize];
        let tag = tag.max(ring.present(&mut self.records));
        ring.avail += 1;
        if id & BRANCH == 0 {
            self.records.lines[id as usize].s = tag;
        } else {
            self.records.branches[(id & !BRANCH) as usize].s = tag;
        }
        let flags = self.records.flags(id);
        let linked = *flags & LINKED != 0;
        *flags |= AVAIL | LINKED;
        if !linked {
            ring.admit(&mut self.records, nspb);
            ring.insert(&mut self.records, id);
        }
    }

    /// A branch has got a child that can take. What that changes goes up the tree.
    #[inline]
    fn branch_up(&mut self, mut branch: u32) {
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
                self.lender_up(node, branch);
            }
            if up == NIL || !self.climbs(node) {
                return;
            }
            if cap != NIL && first {
                self.wake_cap(cap);
            }
            self.child_up(branch | BRANCH, up);
            branch = up;
        }
    }

    /// Whether a node's branches may be offered to the one above.
    #[inline]
    fn climbs(&mut self, node: u32) -> bool {
        let n = &self.records.nodes[node as usize];
        // Without borrow: up to its own rate, which its cap sees to, or by its own lending only.
        let may = n.words.borrow || self.excess == Excess::Share && n.words.rate > 0;
        let cap = n.cap;
        may && (cap == NIL || !self.cap_stops(cap))
    }

    /// A leaf can take no more.
    #[inline]
    pub(super) fn leaf_down(&mut self, slot: u32) {
        let line = &mut self.records.lines[slot as usize];
        if line.has(AVAIL) {
            line.flags &= !AVAIL;
            let (branch, zero) = (line.branch, line.has(ZERO));
            self.child_down(branch, zero);
        }
    }

    /// A branch has lost a child that could take.
    #[inline]
    fn child_down(&mut self, mut branch: u32, mut zero: bool) {
        loop {
            let b = &mut self.records.branches[branch as usize];
            b.avail -= 1;
            self.rings[b.rings[usize::from(zero)] as usize].avail -= 1;
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

    /// Takes a node's branches from the tree above: a cap stops it, or its place changes.
    pub(super) fn node_down(&mut self, node: u32) {
        for branch in self.records.nodes[node as usize].branches {
            if branch != NIL {
                let b = &mut self.records.branches[branch as usize];
                if b.flags & AVAIL != 0 {
                    b.flags &= !AVAIL;
                    let (up, zero) = (b.up, b.flags & ZERO != 0);
                    self.child_down(up, zero);
                }
            }
        }
    }

    /// Offers a node's branches to the tree above again.
    pub(super) fn node_up(&mut self, node: u32) {
        if !self.climbs(node) {
            return;
        }
        for branch in self.records.nodes[node as usize].branches {
            if branch != NIL {
                let b = &self.records.branches[branch as usize];
                if b.avail > 0 && b.flags & AVAIL == 0 && b.up != NIL {
                    let up = b.up;
                    self.child_up(branch | BRANCH, up);
                    self.branch_up(up);
                }
            }
        }
    }

    // ------------------------------------------------------------------ caps

    /// Whether a cap's clock is ahead of the present. If so it is in the wheel.
    #[inline]
    fn cap_stops(&mut self, at: u32) -> bool {
        let cap = &mut self.records.caps[at as usize];
        if cap.x > self.now && !cap.parked {
            cap.parked = true;
            self.wheel.file(&mut self.records, at | CAP, self.now);
            return true;
        }
        cap.parked
    }

    /// What is below a cap comes back from idleness: that earned its burst and no more.
    fn wake_cap(&mut self, cap: u32) {
        let now = self.now;
        let cap = &mut self.records.caps[cap as usize];
        cap.x = cap.x.max(now.saturating_sub(cap.burst));
        cap.lag = if cap.owed { SECOND.max(cap.burst) } else { cap.burst };
    }

    /// Counts a packet against a cap.
    #[inline]
    fn charge_cap(&mut self, at: u32, len: u32) {
        let now = self.now;
        let cap = &mut self.records.caps[at as usize];
        cap.x = cap.x.max(now.saturating_sub(cap.lag));
        cap.x = cap.x.saturating_add(cost(cap.nspb, len, &mut cap.rem));
        if cap.x > now && !cap.parked {
            cap.parked = true;
            let owner = cap.owner;
            self.wheel.file(&mut self.records, at | CAP, self.now);
            if owner & NODE == 0 {
                self.leaf_down(owner);
            } else {
                self.node_down(owner & !NODE);
            }
        }
    }

    /// A cap's time has come.
    pub(super) fn release_cap(&mut self, at: u32) {
        let now = self.now;
        let cap = &mut self.records.caps[at as usize];
        cap.parked = false;
        // Called late, by a coarse timer: that much is made up for (docs/reference/cbq.md rule 12).
        // Time lost in competition is not, unless the limit is a guarantee too.
        if !cap.owed {
            cap.lag = now.saturating_sub(cap.x).min(SECOND).saturating_add(cap.burst);
        }
        let owner = cap.owner;
        if owner & NODE != 0 {
            self.node_up(owner & !NODE);
        } else if self.records.lines[owner as usize].flags & (BACKLOGGED | BORROW | AVAIL) == BACKLOGGED | BORROW {
            self.leaf_in(owner);
        }
    }

    // ------------------------------------------------------------------ lenders of
    // `excess priority`

    /// A branch of a node can take: the node may have something of its own to lend.
    fn lender_up(&mut self, node: u32, branch: u32) {
        let n = &mut self.records.nodes[node as usize];
        if n.parent == NIL || n.nspb == 0 {
            return;
        }
        if n.live == 1 {
            // Idleness earns a burst; who is not idle is owed what came late.
            let burst = span(n.nspb, n.words.burst);
            n.u = n.u.max(self.now.saturating_sub(burst));
        }
        if n.u <= self.now {
            self.push_row(branch);
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

    /// Puts a node's branches in their rows, or the node in the wheel until it has credit.
    pub(super) fn offer(&mut self, node: u32) {
        let n = &mut self.records.nodes[node as usize];
        if n.parent == NIL || n.nspb == 0 || n.live == 0 || self.excess == Excess::Share {
            return;
        }
        if n.u > self.now {
            if !n.filed {
                n.filed = true;
                self.wheel.file(&mut self.records, node | NODE, self.now);
            }
            return;
        }
        for branch in n.branches {
            if branch != NIL && self.records.branches[branch as usize].avail > 0 {
                self.push_row(branch);
            }
        }
    }

    fn push_row(&mut self, branch: u32) {
        let b = &self.records.branches[branch as usize];
        if b.flags & IN_ROW == 0 {
            let level = self.records.nodes[b.node as usize].level;
            self.rows.push(&mut self.records, level, branch);
        }
    }

    // ------------------------------------------------------------------ choice

    /// Who takes the next packet beyond guarantees, and whose bandwidth it is.
    #[inline]
    pub(super) fn choose_excess(&mut self) -> Option<(u32, u32)> {
        let now = self.now;
        if self.excess == Excess::Priority {
            if let Some(branch) = self.rows.front(&mut self.records, now) {
                self.lending = branch;
                let lender = self.records.branches[branch as usize].node;
                return Some((self.descend(branch)?, lender));
            }
            let root = self.records.nodes[0].branches;
            let branch = root.into_iter().rev().find(|b| *b != NIL && self.records.branches[*b as usize].avail > 0)?;
            return Some((self.descend(branch)?, 0));
        }
        let root = self.records.nodes[0].branches[0];
        if root == NIL || self.records.branches[root as usize].avail == 0 {
            return None;
        }
        Some((self.descend(root)?, 0))
    }

    /// From a branch to the leaf whose turn it is.
    #[inline]
    fn descend(&mut self, mut branch: u32) -> Option<u32> {
        loop {
            let [rated, zero] = self.records.branches[branch as usize].rings;
            // docs/reference/cbq.md rule 6: rate 0 only when no sibling with a rate can take it.
            let ring = if rated != NIL && self.rings[rated as usize].avail > 0 { rated } else { zero };
            let id = self.rings.get_mut(ring as usize)?.front(&mut self.records)?;
            if id & BRANCH == 0 {
                return Some(id);
            }
            branch = id & !BRANCH;
        }
    }

    // ------------------------------------------------------------------ departures

    /// Counts a packet that went, in `excess share`: tags and caps from the leaf to the root. All
    /// that is sent is divided, guaranteed or not.
    #[inline(always)]
    pub(super) fn charge<const GUARANTEED: bool>(&mut self, slot: u32, len: u32) {
        let Records { lines, branches, slip, .. } = &mut self.records;
        let line = &mut lines[slot as usize];
        if GUARANTEED {
            bound_owed(line, &mut slip[usize::from(line.priority) % 8], self.now);
        }
        // The guarantee clock and the tag advance by the same: a class that gets just its guarantee
        // moves 1 ns of virtual time in 1 ns.
        let time = cost(line.nspb, len, &mut line.rem);
        if GUARANTEED {
            line.e = line.e.saturating_add(time);
        }
        let (mut branch, mut cap) = (line.branch, line.cap);
        let mut ring = branches[branch as usize].rings[usize::from(line.has(ZERO))];
        let mut tag = self.rings[ring as usize].serve::<GUARANTEED>(line.s, time, LAG, line.has(AVAIL));
        line.s = tag;
        loop {
            if tag > FAR {
                self.rebase(ring);
            }
            if cap != NIL {
                self.charge_cap(cap, len);
            }
            let b = &mut self.records.branches[branch as usize];
            if b.up == NIL {
                return;
            }
            let time = cost(b.nspb, len, &mut b.rem);
            (ring, branch, cap) = (b.home, b.up, b.cap);
            tag = self.rings[ring as usize].serve::<GUARANTEED>(b.s, time, LAG, b.flags & AVAIL != 0);
            b.s = tag;
        }
    }

    /// The same for a packet beyond guarantees of a leaf that came [alone](Exact::alone): it comes
    /// back to its rings, and so do those above it, at the present, and goes.
    #[inline]
    pub(super) fn charge_alone(&mut self, slot: u32, len: u32) {
        let line = &mut self.records.lines[slot as usize];
        let time = cost(line.nspb, len, &mut line.rem);
        let mut branch = line.branch;
        let mut ring = self.records.branches[branch as usize].rings[usize::from(line.has(ZERO))];
        line.s = self.rings[ring as usize].serve_alone(line.s, time);
        let mut far = line.s > FAR;
        loop {
            if far {
                self.rebase(ring);
            }
            let b = &mut self.records.branches[branch as usize];
            if b.up == NIL {
                return;
            }
            let time = cost(b.nspb, len, &mut b.rem);
            (ring, branch) = (b.home, b.up);
            b.s = self.rings[ring as usize].serve_alone(b.s, time);
            far = b.s > FAR;
        }
    }

    /// The same in `excess priority`: a guaranteed packet is taken from what all above may lend;
    /// one beyond is divided from its lender down.
    pub(super) fn charge_lent(&mut self, slot: u32, len: u32, lender: u32) {
        let guaranteed = lender == GUARANTEE;
        let Records { lines, branches, slip, .. } = &mut self.records;
        let line = &mut lines[slot as usize];
        if guaranteed {
            bound_owed(line, &mut slip[usize::from(line.priority) % 8], self.now);
        }
        let time = cost(line.nspb, len, &mut line.rem);
        let (mut branch, cap) = (line.branch, line.cap);
        if guaranteed {
            line.e = line.e.saturating_add(time);
        } else {
            let ring = branches[branch as usize].rings[usize::from(line.has(ZERO))];
            line.s = self.rings[ring as usize].serve::<false>(line.s, time, LAG, true);
            if line.s > FAR {
                self.rebase(ring);
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
                let ring = b.home;
                b.s = self.rings[ring as usize].serve::<false>(b.s, time, LAG, true);
                if b.s > FAR {
                    self.rebase(ring);
                }
            }
            if cap != NIL {
                self.charge_cap(cap, len);
            }
            // What an ancestor lent is not taken from those between it and the leaf.
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
        // While something below waits, credit that came late is owed, for a second at most; else
        // idleness earns a burst.
        let burst = span(n.nspb, n.words.burst);
        let lag = if n.live > 0 { burst.max(SECOND) } else { burst };
        n.u = n.u.max(now.saturating_sub(lag)).saturating_add(cost(n.nspb, len, &mut n.rem));
        if n.u > now && n.live > 0 && !n.filed {
            n.filed = true;
            self.wheel.file(&mut self.records, node | NODE, self.now);
        }
    }
}

/// What a leaf is owed is bounded: a second's worth beyond the credit that it may have
/// (docs/reference/cbq.md rule 14). The clocks of all of its priority are put back by the same, so
/// that equals keep their proportions while the wire is slower than the guarantees.
#[inline]
fn bound_owed(line: &Line, slip: &mut u64, now: u64) {
    let due = line.e.saturating_add(*slip);
    if now.saturating_sub(due) > SECOND {
        let oldest = now.saturating_sub(SECOND).saturating_sub(span(line.nspb, line.burst));
        *slip += oldest.saturating_sub(due);
    }
}

/// A tag beyond which virtual time is set back to 0: 146 years at normal speed, but a class of 1
/// bit/s alone on 10 Gbit/s comes here in under a second.
pub const FAR: u64 = 1 << 62;
