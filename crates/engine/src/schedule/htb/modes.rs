//! Modes: classes turn yellow and red as they are charged, and yellow and green again in time.

use super::class::{Class, FED, Mode, NIL};
use super::{EPOCH, Htb, PRIOS};
use crate::schedule::Slot;
use crate::units::Nanos;

impl Htb {
    /// A yellow leaf turns green. It stays in its parent's feed: feeds are not looked at while any
    /// leaf is green.
    #[inline(always)]
    pub(super) fn turn_green(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        class.mode = Mode::Green;
        let prio = class.wants.trailing_zeros() as usize % PRIOS;
        let row = &mut self.rows[0];
        row.rings[prio].insert(slot);
        row.prios |= 1 << prio;
        self.levels |= 1;
    }

    /// A green leaf turns yellow.
    #[inline(never)]
    pub(super) fn turn_yellow(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        class.mode = Mode::Yellow;
        let (wants, due) = (class.wants, class.rate.clear);
        if !class.has(FED) {
            self.activate_prios(slot, wants);
        }
        let prio = wants.trailing_zeros() as usize % PRIOS;
        let row = &mut self.rows[0];
        row.rings[prio].remove(slot);
        if row.rings[prio].is_empty() {
            row.prios &= !(1 << prio);
            if row.prios == 0 {
                self.levels &= !1;
            }
        }
        self.timers.file(self.now, slot, due);
    }

    /// Gives a class that wants to send another mode.
    #[inline(never)]
    pub(super) fn change_mode(&mut self, slot: Slot, mode: Mode) {
        let &Class { wants, node, mode: old, .. } = &self.classes[slot as usize];
        if node != NIL || mode == Mode::Red {
            self.deactivate_prios(slot, wants);
        } else if old == Mode::Green {
            self.remove_from_row(slot, wants);
        }
        let class = &mut self.classes[slot as usize];
        class.mode = mode;
        class.overlimits = class.overlimits.wrapping_add(u32::from(mode == Mode::Red));
        self.activate_prios(slot, wants);
        self.file(slot);
    }

    /// When a class can send at the earliest if nothing else goes: at its own right, or because one
    /// above can and it may borrow.
    pub(super) fn earliest_send(&self, slot: Slot) -> Nanos {
        let class = &self.classes[slot as usize];
        let above = if class.parent == NIL { Nanos::MAX } else { self.earliest_send(class.parent) };
        class.ceil.clear.max(class.rate.clear.min(above))
    }

    /// When the mode of a class is to be looked at again; [`Nanos::MAX`] for never.
    #[inline]
    pub(super) fn due(&self, slot: Slot) -> Nanos {
        let class = &self.classes[slot as usize];
        match class.mode {
            Mode::Green => Nanos::MAX,
            Mode::Yellow => class.rate.clear,
            // A change of mode before it can send makes no difference.
            Mode::Red => self.earliest_send(slot),
        }
    }

    /// Sees to it that a class that waits is looked at in time.
    #[inline]
    pub(super) fn file(&mut self, slot: Slot) {
        let due = self.due(slot);
        if due != Nanos::MAX {
            self.timers.file(self.now, slot, due);
        }
    }

    /// Carries out the changes of mode that are due by `now`, before anything else happens. So
    /// extra calls change nothing. The order of these changes does not matter: each mode is worked
    /// out for the present, and rounds go by place.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now.saturating_add(EPOCH));
        if self.timers.is_due(self.now) {
            self.catch_up();
        }
    }

    pub(super) fn catch_up(&mut self) {
        while let Some(slot) = self.timers.pop(self.now) {
            let class = &self.classes[slot as usize];
            if class.wants == 0 {
                continue;
            }
            let leaf_turns = class.node == NIL && class.mode == Mode::Yellow;
            let due = if leaf_turns { class.rate.clear } else { self.due(slot) };
            if due > self.now {
                // The class, or one above it, has sent since, so the time has moved on.
                if due != Nanos::MAX {
                    self.timers.file(self.now, slot, due);
                }
            } else if leaf_turns {
                self.turn_green(slot);
            } else {
                let mode = class.mode_at(self.now);
                if mode != class.mode {
                    self.change_mode(slot, mode);
                }
            }
        }
    }

    /// Gives a class that was charged its mode. Returns the class above. While the mode stays, the
    /// time for which the class has a timer only moves on.
    #[inline(always)]
    pub(super) fn charged(&mut self, slot: Slot) -> Slot {
        let class = &self.classes[slot as usize];
        let (parent, mode) = (class.parent, class.mode_at(self.now));
        if class.wants != 0 && mode != class.mode {
            if class.node == NIL && mode == Mode::Yellow && class.mode == Mode::Green {
                self.turn_yellow(slot);
            } else {
                self.change_mode(slot, mode);
            }
        }
        parent
    }
}
