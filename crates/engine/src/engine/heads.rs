//! The plain queues as a scheduler sees them in a departure:
//! [`Scheduler::depart`](crate::schedule::Scheduler::depart) takes the first packet of the class
//! that the scheduler names.

use super::{Kind, Leaf};
use crate::link::Overhead;
use crate::packet::Slab;
use crate::schedule::Slot;
use crate::spec::ClassId;

/// What came of a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departed {
    /// No class may send now.
    Nobody,
    /// This class is next, and its packets are in no plain queue: it holds a scheduler, or its
    /// queue has a state of its own. Nothing was taken or reported.
    Elsewhere(Slot),
    /// The first packet of this class was taken, and reported as sent.
    Sent {
        /// The class.
        slot: Slot,
        /// What [`sent`](crate::schedule::Scheduler::sent) returned.
        borrowed: bool,
    },
}

/// The first packets of the classes of one scheduler that have plain queues.
pub struct Heads<'a> {
    leaves: &'a mut [Leaf],
    slab: &'a Slab,
    overhead: &'a Overhead,
    /// The class of each slot, as in [`Node::classes`](super::Node::classes); empty: every slot is
    /// the number of its class.
    classes: &'a [ClassId],
    /// What was taken last.
    pub(super) taken: Head,
}

/// A packet that is taken from its queue, and still in its cell.
#[derive(Clone, Copy, Default)]
pub(super) struct Head {
    /// Its class.
    pub(super) class: ClassId,
    /// Its cell, and that of the next packet.
    pub(super) at: u32,
    pub(super) next_at: u32,
    /// Its own bytes and those charged for it.
    pub(super) len: u32,
    pub(super) wire: u32,
}

impl<'a> Heads<'a> {
    /// Those of a scheduler whose slots are these `classes`.
    #[inline(always)]
    pub(super) fn new(
        classes: &'a [ClassId],
        leaves: &'a mut [Leaf],
        slab: &'a Slab,
        overhead: &'a Overhead,
    ) -> Heads<'a> {
        Heads { leaves, slab, overhead, classes, taken: Head::default() }
    }

    /// Takes the first packet of a class that has one, and counts it as sent. Returns the charged
    /// lengths of this packet and of the next one. `None` if the class has no plain queue.
    #[inline(always)]
    pub fn take(&mut self, slot: Slot) -> Option<(u32, Option<u32>)> {
        let class = self.classes.get(slot as usize).copied().unwrap_or(slot);
        // A class that holds a scheduler has the bit HOLDS_SCHEDULER, and so is not found.
        let leaf = self.leaves.get_mut(class as usize).filter(|leaf| leaf.kind != Kind::Stateful)?;
        let at = leaf.head;
        let (len, wire, next_at, next_wire) = self.slab.first(at, self.overhead);
        leaf.head = next_at;
        leaf.packets -= 1;
        leaf.bytes -= len;
        leaf.sent_packets += 1;
        leaf.sent_bytes += u64::from(len);
        leaf.sent_wire_bytes += u64::from(wire);
        self.taken = Head { class, at, next_at, len, wire };
        Some((wire, (leaf.packets > 0).then_some(next_wire)))
    }
}
