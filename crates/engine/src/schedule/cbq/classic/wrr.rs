//! The general scheduler: priorities, and within one the round robin, by weights or packet by
//! packet (docs/reference/altq.md 2.4, 2.5).
//!
//! A pass looks at every class of a priority, those without packets included: passing a class takes
//! its remaining allotment away, which is part of the behaviour.

use super::borrow::Standing;
use super::{Choice, Classic, NO_CUTOFF, NONE, ROOT_SLOT, Sharing};
use crate::schedule::Slot;
use crate::units::Nanos;

impl Classic {
    /// The bytes that a visit of the weighted rounds gives a class: in proportion to its allotment,
    /// about an MTU for the average class of its priority.
    pub(super) fn weight(&self, slot: Slot) -> i64 {
        let class = &self.classes[slot as usize];
        let ring = &self.rings[class.priority as usize];
        let mean = if ring.classes == 0 { 0 } else { ring.allotments / (ring.classes * i64::from(self.mtu)) };
        if mean == 0 { 0 } else { class.numbers.allotment / mean }
    }

    /// Finds the class that sends now. If no class may send, top-level sharing raises the cutoff by
    /// one, and all are asked again.
    pub(super) fn pass(&mut self, now: Nanos) -> Option<Choice> {
        let mut first = NONE;
        self.formal = None;
        self.last_resort = false;
        loop {
            self.stopped = false;
            for priority in (0..self.rings.len()).rev() {
                if self.rings[priority].backlogged == 0 {
                    continue;
                }
                let found = if self.weighted {
                    self.round(now, priority, &mut first)
                } else {
                    self.turn(now, priority, &mut first)
                };
                if found.is_some() {
                    return found;
                }
            }
            if self.sharing == Sharing::TopLevel
                && first != NONE
                && self.cutoff < self.classes[ROOT_SLOT as usize].depth
            {
                self.cutoff += 1;
            } else if self.sharing == Sharing::Formal && self.stopped && !self.last_resort {
                // `formal` is not relaxed as ALTQ's cutoff is. But a class that it held back needs
                // a timer, so all are asked once more, and such a class is put to sleep.
                self.last_resort = true;
            } else {
                break;
            }
        }
        self.cutoff = NO_CUTOFF;
        if !self.efficient || first == NONE {
            return None;
        }
        // With `efficient` the link is not left idle: a class sends although it is over its limit.
        let lender = self.classes[first as usize].borrow;
        self.cutoff = self.classes[lender as usize].depth;
        Some(Choice { slot: first, first, lender })
    }

    /// Weighted rounds over one priority. In the first a class needs bytes that it may still send.
    /// If only the lack of them kept a class from sending, a second one does without.
    fn round(&mut self, now: Nanos, priority: usize, first: &mut Slot) -> Option<Choice> {
        let start = self.rings[priority].active;
        let mut short = false;
        for by_allotment in [true, false] {
            let mut slot = start;
            loop {
                // A class without packets would be given its bytes and lose them at once, so it is
                // given none.
                if self.classes[slot as usize].backlogged {
                    if by_allotment && self.classes[slot as usize].bytes_alloc <= 0 {
                        self.classes[slot as usize].bytes_alloc += self.weight(slot);
                    }
                    match self.standing(now, slot) {
                        Standing::May(lender) => {
                            if self.classes[slot as usize].bytes_alloc > 0 || !by_allotment {
                                return Some(Choice { slot, first: *first, lender });
                            }
                            short = true;
                        }
                        Standing::MayNot if *first == NONE && self.classes[slot as usize].borrow != NONE => {
                            *first = slot
                        }
                        Standing::MayNot => {}
                    }
                }
                let class = &mut self.classes[slot as usize];
                class.bytes_alloc = 0;
                slot = class.peer;
                if slot == start {
                    break;
                }
            }
            if !short {
                return None;
            }
        }
        None
    }

    /// Packet-by-packet round robin over one priority.
    fn turn(&mut self, now: Nanos, priority: usize, first: &mut Slot) -> Option<Choice> {
        let start = self.rings[priority].active;
        let mut slot = start;
        loop {
            if self.classes[slot as usize].backlogged {
                match self.standing(now, slot) {
                    Standing::May(lender) => return Some(Choice { slot, first: *first, lender }),
                    Standing::MayNot if *first == NONE && self.classes[slot as usize].borrow != NONE => *first = slot,
                    Standing::MayNot => {}
                }
            }
            slot = self.classes[slot as usize].peer;
            if slot == start {
                return None;
            }
        }
    }

    /// Whether a class may send.
    fn standing(&mut self, now: Nanos, slot: Slot) -> Standing {
        if self.classes[slot as usize].undertime == 0 { Standing::May(NONE) } else { self.under_limit(now, slot) }
    }

    /// Sets where the next round starts, after the chosen class has sent `len` bytes.
    pub(super) fn advance(&mut self, choice: &Choice, len: u32) {
        let class = &mut self.classes[choice.slot as usize];
        if self.weighted && class.bytes_alloc > 0 {
            class.bytes_alloc -= i64::from(len);
        }
        let stays = self.weighted && class.bytes_alloc > 0 && choice.first != choice.slot;
        self.rings[class.priority as usize].active = if stays { choice.slot } else { class.peer };
    }
}
