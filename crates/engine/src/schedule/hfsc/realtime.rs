//! The real-time rule: of the eligible packets the one with the earliest deadline (paper, section
//! 4).
//!
//! Classes that are not yet eligible have timers for the time at which they will be; eligible
//! classes stand in a heap, by deadline. A class moves from one to the other once for each packet,
//! so a step costs no more than a timer and the depth of a heap.
//!
//! A class that had nothing to send gets its timer when the next such class begins to wait. On a
//! link that is not busy its packet has gone by its share before that, and no timer was needed.

use super::class::{NIL, READY, WAITING};
use super::{Hfsc, Slot};
use crate::units::Nanos;

impl Hfsc {
    /// A class with a real-time curve, which had nothing to send, has something.
    #[inline]
    pub(super) fn begin_realtime(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        class.eligible = class.eligible_time();
        if class.eligible <= self.now {
            return self.file_waiting(slot);
        }
        class.flags |= WAITING;
        let at = class.eligible;
        self.file_newest();
        (self.newest, self.newest_at) = (slot, at);
    }

    /// Files a class with a real-time curve that has something to send.
    #[inline]
    pub(super) fn file_realtime(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        class.eligible = class.eligible_time();
        self.file_waiting(slot);
    }

    /// Files a class by its eligible time: among those that are eligible, or with a timer.
    #[inline(always)]
    fn file_waiting(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        if class.eligible > self.now {
            class.flags |= WAITING;
            self.waiting.file(self.now, slot, class.eligible);
        } else {
            class.flags = class.flags & !WAITING | READY;
            self.ready.push(u128::from(class.deadline()), slot, &mut self.realtime_at);
        }
    }

    /// Files the class that began to wait last.
    fn file_newest(&mut self) {
        let slot = std::mem::replace(&mut self.newest, NIL);
        self.newest_at = Nanos::MAX;
        if slot != NIL {
            self.file_waiting(slot);
        }
    }

    /// The class has nothing to send any more.
    #[inline]
    pub(super) fn unfile_realtime(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        if class.has(READY) {
            self.ready.remove(slot, &mut self.realtime_at);
        }
        // A timer stays, and is corrected when it comes out.
        class.flags &= !(READY | WAITING);
        if slot == self.newest {
            (self.newest, self.newest_at) = (NIL, Nanos::MAX);
        }
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
        if self.newest_at <= self.now {
            self.file_newest();
        }
        if self.waiting.is_due(self.now) {
            self.make_some_eligible();
        }
    }

    fn make_some_eligible(&mut self) {
        while let Some(slot) = self.waiting.pop(self.now) {
            if self.classes[slot as usize].has(WAITING) {
                self.file_waiting(slot);
            }
        }
    }

    /// When the first of the classes becomes eligible that are not.
    pub(super) fn next_eligible(&mut self) -> Option<Nanos> {
        let newest = (self.newest != NIL).then_some(self.newest_at);
        self.first_timer().into_iter().chain(newest).min()
    }

    fn first_timer(&mut self) -> Option<Nanos> {
        loop {
            let (at, slot) = self.waiting.first()?;
            let class = &self.classes[slot as usize];
            let waits = class.has(WAITING);
            if waits && class.eligible <= at {
                return Some(at);
            }
            self.waiting.remove(slot);
            if waits {
                self.waiting.file(self.now, slot, class.eligible);
            }
        }
    }
}
