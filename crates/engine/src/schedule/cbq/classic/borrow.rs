//! Who may send: a class under its limit, or one to which an ancestor lends (docs/reference/altq.md
//! 2.6; Floyd and Jacobson 1995).
//!
//! Three rules say which ancestors may lend. `top-level` is ALTQ's: ancestors up to the depth
//! `cutoff`, which arrivals and borrowed packets lower and failed passes raise. `ancestor-only`:
//! any; as ALTQ measures the link by its own rate, the link is hardly ever over its limit and lends
//! to whoever asks first. `formal`: those with no unsatisfied class at a lower level anywhere in
//! the tree.

use super::timer::micros;
use super::{Class, Classic, NONE, Sharing};
use crate::schedule::Slot;
use crate::units::Nanos;

/// Whether a class may send.
pub(super) enum Standing {
    /// It may send. The ancestor that lends to it, or [`NONE`].
    May(Slot),
    /// It may not.
    MayNot,
}

impl Class {
    /// Over its limit: it may not send on its own before `undertime`.
    fn over(&self, now: i64) -> bool {
        now < self.undertime
    }
}

impl Classic {
    /// Whether a class may send whose `undertime` is set. If it is over its limit, and so are all
    /// from which it may borrow, it is put to sleep.
    pub(super) fn under_limit(&mut self, now: Nanos, slot: Slot) -> Standing {
        let at = micros(now);
        let class = &mut self.classes[slot as usize];
        if class.parent == NONE {
            return Standing::May(NONE);
        }
        if class.sleeping {
            if class.over(at) {
                return Standing::MayNot;
            }
            class.wake();
            class.undertime = 0;
            return Standing::May(NONE);
        }
        let (mut asked, mut top) = (slot, NONE);
        while self.classes[asked as usize].over(at) {
            asked = self.classes[asked as usize].borrow;
            if asked != NONE && self.classes[asked as usize].depth > self.highest_lender(at) {
                if !self.last_resort {
                    // Only the link-sharing rule stops it, so it is not put to sleep.
                    self.stopped = true;
                    return Standing::MayNot;
                }
                asked = NONE;
            }
            if asked == NONE {
                // The pause is that of the highest class asked, unless that one's average idleness
                // stands at its least.
                if top != NONE && self.classes[top as usize].avgidle == self.classes[top as usize].numbers.minidle {
                    top = NONE;
                }
                self.delay_action(now, slot, top);
                return Standing::MayNot;
            }
            top = asked;
        }
        Standing::May(if asked == slot { NONE } else { asked })
    }

    /// The greatest depth from which borrowing is allowed now.
    fn highest_lender(&mut self, now: i64) -> u32 {
        match self.sharing {
            Sharing::TopLevel => self.cutoff,
            Sharing::AncestorOnly => u32::MAX,
            Sharing::Formal => match self.formal {
                Some(depth) => depth,
                None => {
                    let depth = self.lowest_unsatisfied(now);
                    self.formal = Some(depth);
                    depth
                }
            },
        }
    }

    /// Lowers the cutoff of top-level sharing when a packet arrives, before it is queued
    /// (docs/reference/altq.md 2.3).
    pub(super) fn lower_cutoff(&mut self, now: i64, slot: Slot) {
        if self.cutoff == 0 {
            return;
        }
        let class = &self.classes[slot as usize];
        if class.undertime < now {
            // It can send on its own, so nobody borrows from above its depth.
            self.cutoff = self.cutoff.min(class.depth);
            return;
        }
        let mut lender = class.borrow;
        while lender != NONE && self.classes[lender as usize].depth < self.cutoff {
            let class = &self.classes[lender as usize];
            if class.undertime < now {
                self.cutoff = class.depth;
                return;
            }
            lender = class.borrow;
        }
    }

    /// The depth of the first unsatisfied class, by priority and in the order of the rounds
    /// (docs/reference/altq.md 2.6).
    pub(super) fn first_unsatisfied(&self, now: i64) -> Option<u32> {
        if self.classes[super::ROOT_SLOT as usize].waiting == 0 {
            return None;
        }
        for ring in self.rings.iter().rev() {
            let mut slot = ring.active;
            while slot != NONE {
                if !self.satisfied(now, slot) {
                    return Some(self.classes[slot as usize].depth);
                }
                slot = self.classes[slot as usize].peer;
                if slot == ring.active {
                    break;
                }
            }
        }
        None
    }

    /// Whether a class is satisfied by ALTQ's rule. A leaf is unsatisfied if it is under its limit,
    /// awake, and has packets; an inner class if it is under its limit and one of its children is
    /// unsatisfied.
    fn satisfied(&self, now: i64, slot: Slot) -> bool {
        !self.walk(slot, |class| {
            if class.over(now) {
                Walk::Past
            } else if class.depth > 0 {
                Walk::Into
            } else if !class.sleeping && class.backlogged {
                Walk::End
            } else {
                Walk::Past
            }
        })
    }

    /// The least depth of an unsatisfied class, as Floyd and Jacobson define it: a leaf under its
    /// limit with packets, or an inner class under its limit while a class below it has packets.
    /// `u32::MAX` if there is none.
    fn lowest_unsatisfied(&self, now: i64) -> u32 {
        let mut lowest = u32::MAX;
        self.walk(super::ROOT_SLOT, |class| {
            if !class.over(now) {
                lowest = lowest.min(class.depth);
            }
            if lowest == 0 { Walk::End } else { Walk::Into }
        });
        lowest
    }

    /// Visits `top` and what is below it, as far as there are packets, parents first. True if a
    /// visit ended it.
    fn walk(&self, top: Slot, mut visit: impl FnMut(&Class) -> Walk) -> bool {
        let mut at = top;
        loop {
            let class = &self.classes[at as usize];
            let step = if class.waiting == 0 { Walk::Past } else { visit(class) };
            match step {
                Walk::End => return true,
                Walk::Into if class.child != NONE => {
                    at = class.child;
                    continue;
                }
                _ => {}
            }
            while at != top && self.classes[at as usize].sibling == NONE {
                at = self.classes[at as usize].parent;
            }
            if at == top {
                return false;
            }
            at = self.classes[at as usize].sibling;
        }
    }
}

/// Where a walk goes from a class.
enum Walk {
    /// To its children.
    Into,
    /// Past them.
    Past,
    /// Nowhere.
    End,
}
