//! The tree of classes and, for each priority, the ring of its classes (docs/reference/altq.md
//! 2.1).

use super::parameters::{self, Numbers, Words};
use super::{Class, Classic, NONE, Stats};
use crate::schedule::Slot;
use crate::settings::Settings;
use crate::spec::SpecError;

/// All classes of a priority.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    /// Where the next round starts.
    pub active: Slot,
    /// How many classes.
    pub classes: i64,
    /// How many of them have packets.
    pub backlogged: u32,
    /// Sum of their allotments, bytes a second.
    pub allotments: i64,
}

impl Ring {
    pub const EMPTY: Ring = Ring { active: NONE, classes: 0, backlogged: 0, allotments: 0 };
}

/// ALTQ adds the allotments of a priority up in a 32-bit integer (docs/reference/altq.md 2.4).
pub(super) fn fits(allotments: i64) -> Result<(), SpecError> {
    if allotments <= i64::from(i32::MAX) {
        return Ok(());
    }
    let error =
        SpecError::word("rate", "the classes of one priority have more than 17 Gbit/s together, too much for classic");
    Err(error.help("spread them over priorities, or use estimator exact"))
}

impl Classic {
    /// A class's words, checked.
    pub(super) fn read(&self, settings: &Settings) -> Result<(Words, Numbers, u8), SpecError> {
        if settings.get("ceiling").is_some() {
            let error = SpecError::word(
                "ceiling",
                "the classic estimator has no ceiling: a class borrows without limit or not at all",
            );
            return Err(error.help("leave it out, or use estimator exact"));
        }
        let words = Words::of(settings);
        let priority = settings.int("priority").unwrap_or(1);
        if priority >= self.rings.len() as u64 {
            return Err(SpecError::word("priority", format!("priority {priority} is not from 0 to 7")));
        }
        Ok((words, parameters::numbers(self.rate, self.mtu, &words)?, priority as u8))
    }

    /// Whether a priority has room for a class of this allotment, if one of the allotment `old`
    /// leaves it.
    pub(super) fn room_for(&self, priority: u8, allotment: i64, old: i64) -> Result<(), SpecError> {
        fits(self.rings[priority as usize].allotments - old + allotment)
    }

    /// Puts a new class into tree and ring.
    pub(super) fn insert(
        &mut self,
        slot: Slot,
        parent: Slot,
        borrow: Slot,
        priority: u8,
        words: Words,
        numbers: Numbers,
    ) {
        let class = Class {
            peer: NONE,
            borrow,
            parent: NONE,
            depth: 0,
            bytes_alloc: 0,
            undertime: 0,
            priority,
            sleeping: false,
            backlogged: false,
            exists: true,
            waiting: 0,
            // A first burst is allowed. It has never sent.
            avgidle: numbers.maxidle,
            last: 0,
            last_pkttime: 0,
            numbers,
            callout: 0,
            stats: Stats::default(),
            before: NONE,
            child: NONE,
            sibling: NONE,
            elder: NONE,
            words,
        };
        if slot as usize == self.classes.len() {
            self.classes.push(class);
        } else {
            self.classes[slot as usize] = class;
        }
        self.join_ring(slot);
        if parent != NONE {
            self.join_parent(slot, parent);
        }
    }

    /// Takes a class without packets and children out.
    pub(super) fn take_out(&mut self, slot: Slot) {
        self.classes[slot as usize].wake();
        self.set_backlogged(slot, false);
        self.leave_parent(slot);
        self.leave_ring(slot);
        self.classes[slot as usize].exists = false;
    }

    pub(super) fn set_parent(&mut self, slot: Slot, parent: Slot) {
        if self.classes[slot as usize].parent != parent {
            self.leave_parent(slot);
            self.join_parent(slot, parent);
        }
    }

    pub(super) fn set_priority(&mut self, slot: Slot, priority: u8) {
        if self.classes[slot as usize].priority != priority {
            self.leave_ring(slot);
            self.classes[slot as usize].priority = priority;
            self.join_ring(slot);
        }
    }

    /// ALTQ's modification of a class: it may burst as if it were new. A sleeping class sleeps on.
    pub(super) fn set_numbers(&mut self, slot: Slot, words: Words, numbers: Numbers) {
        let class = &mut self.classes[slot as usize];
        self.rings[class.priority as usize].allotments += numbers.allotment - class.numbers.allotment;
        class.avgidle = numbers.maxidle;
        class.numbers = numbers;
        class.words = words;
    }

    /// Notes that a class has packets now, or none.
    pub(super) fn set_backlogged(&mut self, slot: Slot, backlogged: bool) {
        let class = &mut self.classes[slot as usize];
        if class.backlogged == backlogged {
            return;
        }
        class.backlogged = backlogged;
        let ring = &mut self.rings[class.priority as usize];
        ring.backlogged = if backlogged { ring.backlogged + 1 } else { ring.backlogged - 1 };
        let mut at = slot;
        while at != NONE {
            let class = &mut self.classes[at as usize];
            class.waiting = if backlogged { class.waiting + 1 } else { class.waiting - 1 };
            at = class.parent;
        }
    }

    /// Puts a class into the ring of its priority, at the tail.
    fn join_ring(&mut self, slot: Slot) {
        let class = &self.classes[slot as usize];
        let (allotment, backlogged) = (class.numbers.allotment, class.backlogged);
        let ring = &mut self.rings[class.priority as usize];
        ring.classes += 1;
        ring.allotments += allotment;
        ring.backlogged += u32::from(backlogged);
        let (before, peer) = if ring.active == NONE {
            ring.active = slot;
            (slot, slot)
        } else {
            (self.classes[ring.active as usize].before, ring.active)
        };
        self.link(before, slot);
        self.link(slot, peer);
    }

    fn leave_ring(&mut self, slot: Slot) {
        let class = &self.classes[slot as usize];
        let (before, peer) = (class.before, class.peer);
        let ring = &mut self.rings[class.priority as usize];
        ring.classes -= 1;
        ring.allotments -= class.numbers.allotment;
        ring.backlogged -= u32::from(class.backlogged);
        if ring.active == slot {
            ring.active = if peer == slot { NONE } else { peer };
        }
        self.link(before, peer);
    }

    fn link(&mut self, before: Slot, after: Slot) {
        self.classes[before as usize].peer = after;
        self.classes[after as usize].before = before;
    }

    fn join_parent(&mut self, slot: Slot, parent: Slot) {
        let sibling = self.classes[parent as usize].child;
        if sibling != NONE {
            self.classes[sibling as usize].elder = slot;
        }
        let class = &mut self.classes[slot as usize];
        (class.parent, class.sibling, class.elder) = (parent, sibling, NONE);
        let waiting = class.waiting;
        self.classes[parent as usize].child = slot;
        let (mut below, mut at) = (slot, parent);
        while at != NONE {
            let depth = self.classes[below as usize].depth + 1;
            let class = &mut self.classes[at as usize];
            class.waiting += waiting;
            class.depth = class.depth.max(depth);
            (below, at) = (at, class.parent);
        }
    }

    fn leave_parent(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        let (parent, sibling, elder, waiting) = (class.parent, class.sibling, class.elder, class.waiting);
        (class.parent, class.sibling, class.elder) = (NONE, NONE, NONE);
        if sibling != NONE {
            self.classes[sibling as usize].elder = elder;
        }
        if elder != NONE {
            self.classes[elder as usize].sibling = sibling;
        } else if parent != NONE {
            self.classes[parent as usize].child = sibling;
        }
        let (mut at, mut deep) = (parent, true);
        while at != NONE {
            if deep {
                let depth = self.depth_from_children(at);
                // Only if this depth has become less may that of the class above become less too.
                deep = depth != self.classes[at as usize].depth;
                self.classes[at as usize].depth = depth;
            }
            let class = &mut self.classes[at as usize];
            class.waiting -= waiting;
            at = class.parent;
        }
    }

    fn depth_from_children(&self, slot: Slot) -> u32 {
        let (old, mut depth) = (self.classes[slot as usize].depth, 0);
        let mut child = self.classes[slot as usize].child;
        while child != NONE && depth < old {
            depth = depth.max(self.classes[child as usize].depth + 1);
            child = self.classes[child as usize].sibling;
        }
        depth
    }
}
