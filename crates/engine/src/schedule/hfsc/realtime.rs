//! The real-time rule: of the eligible packets the one with the earliest deadline (paper, section
//! 4).
//!
//! There are two heaps: of classes that are not yet eligible, by the time at which they will be,
//! and of eligible classes, by deadline. A class moves from one to the other once for each packet,
//! so a step costs no more than the depth of a heap.

use super::class::{READY, WAITING};
use super::{Hfsc, Slot};

impl Hfsc {
    /// A class with a real-time curve has something to send.
    #[inline]
    pub(super) fn file_realtime(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        class.eligible = class.eligible_time();
        if class.eligible <= self.now {
            class.flags |= READY;
            self.ready.push(u128::from(class.deadline()), slot, &mut self.realtime_at);
        } else {
            class.flags |= WAITING;
            self.waiting.push(u128::from(class.eligible), slot, &mut self.realtime_at);
        }
    }

    /// The class has nothing to send any more.
    #[inline]
    pub(super) fn unfile_realtime(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        if class.has(READY) {
            self.ready.remove(slot, &mut self.realtime_at);
        } else if class.has(WAITING) {
            self.waiting.remove(slot, &mut self.realtime_at);
        }
        class.flags &= !(READY | WAITING);
    }

    /// Another packet is the class's first one now, and nothing was served by deadline.
    #[inline]
    pub(super) fn renew_deadline(&mut self, slot: Slot) {
        let class = &self.classes[slot as usize];
        if class.has(READY) {
            self.ready.update(u128::from(class.deadline()), slot, &mut self.realtime_at);
        }
    }

    /// The class's first packet went by deadline; `more` if another one follows.
    #[inline]
    pub(super) fn served_realtime(&mut self, slot: Slot, len: u32, more: bool) {
        let class = &mut self.classes[slot as usize];
        let (curve, first) = class.realtime_parts();
        curve.advance(first, len);
        class.served += u64::from(len);
        class.eligible = class.eligible_time();
        if more && class.has(READY) && class.eligible <= self.now {
            let deadline = u128::from(class.deadline());
            self.ready.update(deadline, slot, &mut self.realtime_at);
        } else {
            self.unfile_realtime(slot);
            if more {
                self.file_realtime(slot);
            }
        }
    }

    /// Makes the classes eligible whose eligible time has come.
    #[inline]
    pub(super) fn make_eligible(&mut self) {
        while let Some((at, slot)) = self.waiting.first() {
            if at > u128::from(self.now) {
                return;
            }
            self.waiting.remove(slot, &mut self.realtime_at);
            let class = &mut self.classes[slot as usize];
            class.flags = class.flags & !WAITING | READY;
            self.ready.push(u128::from(class.deadline()), slot, &mut self.realtime_at);
        }
    }
}
