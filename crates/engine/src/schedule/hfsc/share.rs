//! The link-sharing rule: from the link down, the child with the least virtual time among those
//! whose upper limit lets them go.
//!
//! Virtual time is the normalised service of a class so far, that is, the start tag of its next
//! packet; a node's own is the least of its active children's and never goes back. So a level is
//! start-time fair queueing (Goyal, Vin and Cheng 1997). A class that becomes active starts where
//! it stopped, but not before its siblings: neither does idleness earn anything, nor is service
//! forgotten when a class has nothing to send for a moment, whatever the level (the two defects of
//! docs/reference/altq.md 14.11).
//!
//! Children that an upper limit holds back are parked by the time at which they may go: their own,
//! or that of the first class below them if all of those are held back. So the least of the root's
//! is the scheduler's next wake-up, and nothing is ever searched.

use super::class::{ACTIVE, FIT, NIL, OWN, PARKED};
use super::curve::EPOCH;
use super::heap::Heap;
use super::{Hfsc, Slot};
use crate::schedule::ROOT_SLOT;
use crate::units::Nanos;

/// What is below a class.
pub struct Inner {
    /// Virtual time: the least of active children's, never going back.
    v: u128,
    /// The greatest virtual time that a child had when it went idle.
    most: u128,
    /// Active children.
    active: u32,
    pub children: u32,
    fit: Heap,
    parked: Heap,
}

impl Inner {
    pub const fn new() -> Inner {
        Inner { v: EPOCH, most: EPOCH, active: 0, children: 0, fit: Heap::new(), parked: Heap::new() }
    }

    pub fn memory(&self) -> usize {
        size_of::<Inner>() + self.fit.memory() + self.parked.memory()
    }
}

impl Hfsc {
    /// Whether a class has something to send by its share, itself or below it.
    #[inline]
    pub(super) fn has_backlog(&self, slot: Slot) -> bool {
        let class = &self.classes[slot as usize];
        class.has(OWN) || self.inners.get(class.inner as usize).is_some_and(|inner| inner.active > 0)
    }

    /// When a class may go by its share; a time that has passed for now.
    fn fit_time(&self, slot: Slot) -> Nanos {
        let class = &self.classes[slot as usize];
        let own = class.limit_time();
        match self.inners.get(class.inner as usize) {
            Some(inner) if !class.has(OWN) && inner.fit.is_empty() => {
                own.max(inner.parked.first().map_or(Nanos::MAX, |(at, _)| at as Nanos))
            }
            _ => own,
        }
    }

    /// Puts an active class where its virtual time and its limit say.
    fn refile(&mut self, slot: Slot) {
        let at = self.fit_time(slot);
        let class = &mut self.classes[slot as usize];
        let Some(inner) = self.inners.get_mut(class.above as usize) else { return };
        if at <= self.now {
            if class.has(FIT) {
                return inner.fit.update(class.vt(), slot, &mut self.share_at);
            }
            if class.has(PARKED) {
                inner.parked.remove(slot, &mut self.share_at);
                // What others had while a limit held it back was no share of its own: it is not
                // made up for.
                let (curve, first) = class.share_parts();
                curve.raise_to(first, inner.v);
            }
            class.flags = class.flags & !PARKED | FIT;
            inner.fit.push(class.vt(), slot, &mut self.share_at);
        } else if class.has(PARKED) {
            inner.parked.update(u128::from(at), slot, &mut self.share_at);
        } else {
            if class.has(FIT) {
                inner.fit.remove(slot, &mut self.share_at);
            }
            class.flags = class.flags & !FIT | PARKED;
            inner.parked.push(u128::from(at), slot, &mut self.share_at);
        }
    }

    /// Puts the classes from here up anew, as far as they may see a difference below.
    fn refile_up(&mut self, mut slot: Slot) {
        while self.limits > 0 && slot != ROOT_SLOT && self.classes[slot as usize].has(ACTIVE) {
            // One that may go stays so unless all below it are held back.
            if self.classes[slot as usize].has(FIT) && self.fit_time(slot) <= self.now {
                return;
            }
            self.refile(slot);
            slot = self.classes[slot as usize].parent;
        }
    }

    /// A class has something to send: it, and those above that had nothing, take part from here on.
    pub(super) fn activate(&mut self, mut slot: Slot) {
        while slot != ROOT_SLOT {
            let class = &mut self.classes[slot as usize];
            if class.has(ACTIVE) || !class.shares() {
                break;
            }
            let parent = class.parent;
            let Some(inner) = self.inners.get_mut(class.above as usize) else { return };
            if inner.active == 0 {
                // A new busy period of the parent begins, and all begin it alike.
                inner.v = inner.v.max(inner.most);
            }
            inner.active += 1;
            class.flags |= ACTIVE;
            let (curve, first) = class.share_parts();
            curve.restart(first, inner.v);
            if let Some(limit) = class.limit() {
                limit.curve.restart(limit.first.as_mut(), EPOCH + u128::from(self.now));
            }
            if self.limits > 0 {
                self.refile(slot);
            } else {
                class.flags |= FIT;
                inner.fit.push(class.vt(), slot, &mut self.share_at);
            }
            slot = parent;
        }
        self.refile_up(slot);
    }

    /// A class has nothing to send any more, nor may those above.
    pub(super) fn deactivate(&mut self, mut slot: Slot) {
        while slot != ROOT_SLOT && self.classes[slot as usize].has(ACTIVE) && !self.has_backlog(slot) {
            self.leave_siblings(slot);
            slot = self.classes[slot as usize].parent;
        }
        self.refile_up(slot);
    }

    /// Takes an active class out of its parent's.
    #[inline]
    pub(super) fn leave_siblings(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        let Some(inner) = self.inners.get_mut(class.above as usize) else { return };
        if class.has(FIT) {
            inner.fit.remove(slot, &mut self.share_at);
        } else if class.has(PARKED) {
            inner.parked.remove(slot, &mut self.share_at);
        }
        class.flags &= !(ACTIVE | FIT | PARKED);
        inner.active -= 1;
        inner.most = inner.most.max(class.vt());
    }

    /// `len` bytes of a class went, by whichever rule: virtual times and limits of all above it
    /// count them.
    #[inline]
    pub(super) fn charge(&mut self, mut slot: Slot, len: u32, by_share: bool) {
        // Whether classes below are active, as far as that is known from the step before.
        let mut below =
            self.inners.get(self.classes[slot as usize].inner as usize).is_some_and(|inner| inner.active > 0);
        while slot != ROOT_SLOT {
            let class = &mut self.classes[slot as usize];
            let (parent, above) = (class.parent, class.above);
            let (start, vt) = if class.shares() { class.advance(len) } else { (0, 0) };
            if self.limits > 0 {
                self.charge_limit(slot, len);
            }
            let class = &mut self.classes[slot as usize];
            let active = class.has(ACTIVE);
            if active {
                if !(class.has(OWN) || below) {
                    self.leave_siblings(slot);
                } else if self.limits > 0 {
                    self.refile(slot);
                } else if let Some(inner) = self.inners.get_mut(above as usize) {
                    inner.fit.update(vt, slot, &mut self.share_at);
                }
                self.unpark_due(above);
            }
            let Some(inner) = self.inners.get_mut(above as usize) else { return };
            if active {
                let v = if by_share { inner.v.max(start) } else { inner.v };
                inner.v = inner.fit.first().map_or(v, |(vt, _)| v.max(vt));
            }
            below = inner.active > 0;
            slot = parent;
        }
    }

    /// The same for its limit.
    fn charge_limit(&mut self, slot: Slot, len: u32) {
        let class = &mut self.classes[slot as usize];
        let above = class.above;
        let Some(limit) = class.limit() else { return };
        // A class may be late behind its limit for as long as one packet of each of its siblings
        // takes.
        let siblings = self.inners.get(above as usize).map_or(0, |inner| inner.active);
        let slack = limit.slack.saturating_add(u64::from(siblings).saturating_mul(self.packet_time));
        let oldest = (EPOCH + u128::from(self.now)).saturating_sub(u128::from(slack));
        limit.curve.raise_to(limit.first.as_mut(), oldest);
        limit.curve.advance(limit.first.as_mut(), len);
    }

    /// Puts children back whose limit lets them go by now.
    #[inline]
    fn unpark_due(&mut self, inner: u32) {
        while self.limits > 0
            && let Some(inner) = self.inners.get(inner as usize)
            && let Some((at, slot)) = inner.parked.first()
            && at <= u128::from(self.now)
        {
            // An inner class is parked by the least time of those below it: one of those, at least,
            // is put back in its turn.
            self.refile(slot);
            if self.classes[slot as usize].has(PARKED) {
                debug_assert!(false, "a class is parked by another time than its own");
                return;
            }
        }
    }

    /// The class that goes by its share, if any may.
    #[inline]
    pub(super) fn choose_by_share(&mut self) -> Option<Slot> {
        let mut slot = ROOT_SLOT;
        loop {
            let inner = self.classes[slot as usize].inner;
            if inner != NIL {
                self.unpark_due(inner);
                if let Some((_, child)) = self.inners.get(inner as usize).and_then(|inner| inner.fit.first()) {
                    slot = child;
                    continue;
                }
            }
            // Packets of an inner class's own go when nothing below it may.
            return self.classes[slot as usize].has(OWN).then_some(slot);
        }
    }

    /// When [`choose_by_share`](Hfsc::choose_by_share) may name a class.
    #[inline]
    pub(super) fn share_wakeup(&self) -> Option<Nanos> {
        let root = &self.classes[ROOT_SLOT as usize];
        match self.inners.get(root.inner as usize) {
            _ if root.has(OWN) => Some(0),
            Some(inner) if !inner.fit.is_empty() => Some(0),
            Some(inner) => inner.parked.first().map(|(at, _)| at as Nanos),
            None => None,
        }
    }
}
