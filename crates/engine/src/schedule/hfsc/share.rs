//! The link-sharing rule: from the link down, the scheduler takes at every class the child with the
//! least virtual time, among those children that no upper limit holds back.
//!
//! The virtual time of a class is the service that it has had so far, divided by its weight: the
//! start tag of its next packet. The virtual time of an inner class's children together is the
//! least one of the active children, and never goes back. So every level is start-time fair
//! queueing (Goyal, Vin and Cheng 1997). A class that becomes active goes on from the virtual time
//! at which it stopped, or from that of its siblings if that is later. So a class earns nothing by
//! being idle, and its service is not forgotten when it has nothing to send for a moment. ALTQ's
//! code had these two defects (docs/reference/altq.md 14.11).
//!
//! A child that an upper limit holds back is *parked*: it stands in a heap, by the time at which it
//! may go. That time is given by its own limit, or, if all classes below it are held back, by the
//! first of those that may go. So the first entry of the root's heap is the scheduler's next
//! wake-up, and no step searches.

use super::class::{ACTIVE, FIT, NIL, OWN, PARKED};
use super::curve::EPOCH;
use super::heap::Heap;
use super::{Hfsc, Slot};
use crate::schedule::ROOT_SLOT;
use crate::units::Nanos;

/// What an inner class keeps of its children.
pub struct Inner {
    /// The virtual time of the children: the least one of the active children. It never goes back.
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
    /// True if a class, or a class below it, has something to send by its share.
    #[inline]
    pub(super) fn has_backlog(&self, slot: Slot) -> bool {
        let class = &self.classes[slot as usize];
        class.has(OWN) || self.inners.get(class.inner as usize).is_some_and(|inner| inner.active > 0)
    }

    /// The time from which on no limit holds a class back; a time that has passed if none does now.
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

    /// Files an active class among its siblings: by virtual time among those that may go, or, if a
    /// limit holds it back, by the time at which it may go among those that are parked.
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
                // While a limit held the class back, its siblings had more than their shares. The
                // class gets nothing in return: its virtual time is raised to that of the siblings.
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

    /// Files a class and those above it anew, up to the first for which a change below makes no
    /// difference.
    fn refile_up(&mut self, mut slot: Slot) {
        while self.limits > 0 && slot != ROOT_SLOT && self.classes[slot as usize].has(ACTIVE) {
            // A class that may go stays among those that may, unless all classes below it are held
            // back.
            if self.classes[slot as usize].has(FIT) && self.fit_time(slot) <= self.now {
                return;
            }
            self.refile(slot);
            slot = self.classes[slot as usize].parent;
        }
    }

    /// A class has something to send. It takes part in link-sharing from here on, and so do those
    /// classes above it below which nothing had.
    pub(super) fn activate(&mut self, mut slot: Slot) {
        while slot != ROOT_SLOT {
            let class = &mut self.classes[slot as usize];
            if class.has(ACTIVE) || !class.shares() {
                break;
            }
            let parent = class.parent;
            let Some(inner) = self.inners.get_mut(class.above as usize) else { return };
            if inner.active == 0 {
                // None of the parent's children was active. All start from the greatest virtual
                // time that one of them had reached, so none has an advantage of the time before.
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

    /// A class has nothing to send any more. It leaves link-sharing, and so do those classes above
    /// it below which nothing else has.
    pub(super) fn deactivate(&mut self, mut slot: Slot) {
        while slot != ROOT_SLOT && self.classes[slot as usize].has(ACTIVE) && !self.has_backlog(slot) {
            self.leave_siblings(slot);
            slot = self.classes[slot as usize].parent;
        }
        self.refile_up(slot);
    }

    /// Takes an active class out of its parent's active children.
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

    /// `len` bytes of a class were sent. The virtual time and the limit of the class and of all
    /// classes above it count them, by whichever rule they went; `by_share` says which.
    #[inline]
    pub(super) fn charge(&mut self, mut slot: Slot, len: u32, by_share: bool) {
        // True if a class below the one at hand is active.
        let mut below =
            self.inners.get(self.classes[slot as usize].inner as usize).is_some_and(|inner| inner.active > 0);
        while slot != ROOT_SLOT {
            let class = &mut self.classes[slot as usize];
            let (parent, above) = (class.parent, class.above);
            let (active, stays) = (class.has(ACTIVE), class.has(OWN) || below);
            let (start, vt) = if class.shares() { class.advance(len) } else { (0, 0) };
            if self.limits > 0 {
                self.charge_limited(slot, len, stays);
            } else if active && !stays {
                self.leave_siblings(slot);
            }
            let Some(inner) = self.inners.get_mut(above as usize) else { return };
            if active {
                if stays && self.limits == 0 {
                    inner.fit.update(vt, slot, &mut self.share_at);
                }
                let v = if by_share { inner.v.max(start) } else { inner.v };
                inner.v = inner.fit.first().map_or(v, |(vt, _)| v.max(vt));
            }
            below = inner.active > 0;
            slot = parent;
        }
    }

    /// What [`charge`](Hfsc::charge) does where there are limits: charges `len` bytes to that of a
    /// class, and files the class, if it is active, among its siblings; `stays` if it has something
    /// to send.
    #[inline(never)]
    fn charge_limited(&mut self, slot: Slot, len: u32, stays: bool) {
        self.charge_limit(slot, len);
        let class = &self.classes[slot as usize];
        let above = class.above;
        if class.has(ACTIVE) {
            if stays {
                self.refile(slot);
            } else {
                self.leave_siblings(slot);
            }
            self.unpark_due(above);
        }
    }

    /// Charges `len` bytes to a class's upper limit, if it has one.
    fn charge_limit(&mut self, slot: Slot, len: u32) {
        let class = &mut self.classes[slot as usize];
        let above = class.above;
        let Some(limit) = class.limit() else { return };
        // A class that was late makes up for it, but for no more than its slack and the time that
        // one packet of each of its siblings takes.
        let siblings = self.inners.get(above as usize).map_or(0, |inner| inner.active);
        let slack = limit.slack.saturating_add(u64::from(siblings).saturating_mul(self.packet_time));
        let oldest = (EPOCH + u128::from(self.now)).saturating_sub(u128::from(slack));
        limit.curve.raise_to(limit.first.as_mut(), oldest);
        limit.curve.advance(limit.first.as_mut(), len);
    }

    /// Takes children whose time has come out of the parked ones, and files them among those that
    /// may go.
    #[inline]
    fn unpark_due(&mut self, inner: u32) {
        while self.limits > 0
            && let Some(inner) = self.inners.get(inner as usize)
            && let Some((at, slot)) = inner.parked.first()
            && at <= u128::from(self.now)
        {
            // An inner class is parked by the least time of the classes below it, so at least one
            // of those may go now as well. It is filed anew when the choice comes to its level.
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
            // Packets that are queued in an inner class itself go when nothing below it may.
            return self.classes[slot as usize].has(OWN).then_some(slot);
        }
    }

    /// The class that [`choose_by_share`](Hfsc::choose_by_share) probably finds next, for
    /// prefetching: as far below the root as `slot`. Its record, which is not in the cache yet, is
    /// not looked at.
    #[inline]
    pub(super) fn likely_by_share(&self, slot: Slot) -> Slot {
        let (mut found, mut above) = (ROOT_SLOT, slot);
        while above != ROOT_SLOT {
            above = self.classes[above as usize].parent;
            let inner = self.inners.get(self.classes[found as usize].inner as usize);
            let Some((_, child)) = inner.and_then(|inner| inner.fit.first()) else { break };
            found = child;
        }
        found
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
