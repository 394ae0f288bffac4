//! One departure from the link's own scheduler: the choice of a class, its first packet, and the
//! report of what was sent, in one call.
//!
//! [`depart`] is the body of [`Scheduler::depart`], which every scheduler inherits. So it is
//! compiled anew for each of them, and the scheduler's `choose` and `sent` are called directly, or
//! become part of it. It does what a departure mostly is: a packet from a plain queue, or from a
//! queue that neither drops nor marks, of a class of the link's own scheduler. It leaves the rest
//! to the engine ([`How`]).

use super::{Buffers, Departure, HOLDS_SCHEDULER, Kind, PREFETCH_FROM};
use crate::prefetch::prefetch;
use crate::queue::{Store, Taken};
use crate::schedule::{NOBODY, Scheduler, Slot};
use crate::spec::ClassId;
use crate::units::Nanos;

/// Why [`Scheduler::depart`] returned nothing, and how what it returned was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// A packet leaves: on borrowed bandwidth, or on the class's own.
    Sent { borrowed: bool },
    /// No class may send now.
    Nobody,
    /// The class of this slot sends, which holds a scheduler. Nothing was done but the choice.
    Inside(Slot),
    /// The queue of this class, at this slot, dropped or marked packets. What it did is in
    /// [`Buffers::lossy`]; the scheduler does not know of it yet.
    Lost(ClassId, Slot),
}

/// What a queue with a state of its own gave where it dropped or marked packets: the packet that it
/// sends, if any is left, and how many it marked.
pub(super) type Lossy = (Option<Taken>, u64);

impl Buffers {
    /// Takes the packet that leaves out of its cell.
    #[inline(always)]
    pub(super) fn depart(&mut self, class: ClassId, at: u32, wire: u32, borrowed: bool) -> Departure {
        self.how = How::Sent { borrowed };
        Departure { class, packet: self.slab.take(at, wire) }
    }

    /// Takes the packet that the queue of a class sends, where that queue has a state of its own.
    /// Returns it with the charged length of the next one; what became of it otherwise if the queue
    /// dropped or marked packets. Counters are the caller's.
    #[inline(always)]
    pub(super) fn take_stateful(&mut self, now: Nanos, class: ClassId) -> Result<(Taken, Option<u32>), Lossy> {
        let leaf = &mut self.leaves[class as usize];
        let Some(queue) = self.queues.get_mut(leaf.head as usize).and_then(Option::as_deref_mut) else {
            return Err((None, 0));
        };
        let mut store = Store::new(&mut self.slab, &self.charges, &mut self.lost);
        let (taken, next) = queue.dequeue_and_peek(now, &mut store);
        let marked = store.marked();
        match taken {
            Some(taken) if marked == 0 && self.lost.is_empty() => {
                leaf.packets -= 1;
                leaf.bytes -= taken.len;
                debug_assert_eq!(queue.backlog(), (leaf.packets, leaf.bytes));
                Ok((taken, next))
            }
            taken => Err((taken, marked)),
        }
    }
}

/// Lets the class send that the scheduler chooses. `classes` has the class of each slot, with the
/// bit [`HOLDS_SCHEDULER`] if it holds a scheduler; it is empty where slots are the numbers of
/// classes.
#[inline(always)]
pub(crate) fn depart<S: Scheduler + ?Sized>(
    scheduler: &mut S,
    now: Nanos,
    classes: &[ClassId],
    buffers: &mut Buffers,
) -> Option<Departure> {
    let Some(slot) = scheduler.choose(now) else {
        buffers.how = How::Nobody;
        return None;
    };
    let class = if classes.is_empty() { slot } else { classes[slot as usize] };
    let many = buffers.leaves.len() >= PREFETCH_FROM;
    // A class that holds a scheduler has the bit HOLDS_SCHEDULER, and so is not found.
    let Some(leaf) = buffers.leaves.get_mut(class as usize) else {
        buffers.how = How::Inside(slot);
        return None;
    };
    if leaf.kind == Kind::Stateful {
        return depart_stateful(scheduler, now, slot, class, buffers);
    }
    let at = leaf.head;
    let (len, wire, next_at, next_wire) = buffers.slab.first(at, &buffers.charges);
    leaf.head = next_at;
    leaf.packets -= 1;
    leaf.bytes -= len;
    leaf.sent_packets += 1;
    leaf.sent_bytes += u64::from(len);
    leaf.sent_wire_bytes += u64::from(wire);
    let next = (leaf.packets > 0).then_some(next_wire);
    let borrowed = scheduler.sent(now, slot, wire, next);
    if borrowed {
        leaf.borrowed_bytes += u64::from(len);
        if scheduler.wants_arrivals() {
            scheduler.count_borrowed(slot, len);
        }
    }
    if many {
        // The same class may be chosen again.
        buffers.slab.fetch(next_at);
        prefetch_next(scheduler, slot, classes, buffers);
    }
    // The packet itself is read last, so that its prefetch has time to finish.
    Some(buffers.depart(class, at, wire, borrowed))
}

/// [`depart`] for a class whose queue has a state of its own.
#[inline(always)]
fn depart_stateful<S: Scheduler + ?Sized>(
    scheduler: &mut S,
    now: Nanos,
    slot: Slot,
    class: ClassId,
    buffers: &mut Buffers,
) -> Option<Departure> {
    let (taken, next) = match buffers.take_stateful(now, class) {
        Ok(taken) => taken,
        Err(lossy) => {
            (buffers.lossy, buffers.how) = (lossy, How::Lost(class, slot));
            return None;
        }
    };
    let Taken { at, len, wire } = taken;
    // Counted before the scheduler is told, which does not see it: the record is at hand.
    if let Some(leaf) = buffers.leaves.get_mut(class as usize) {
        leaf.sent_packets += 1;
        leaf.sent_bytes += u64::from(len);
        leaf.sent_wire_bytes += u64::from(wire);
    }
    if scheduler.sent(now, slot, wire, next) {
        return Some(depart_borrowed(scheduler, slot, class, buffers, &taken));
    }
    Some(buffers.depart(class, at, wire, false))
}

/// The end of [`depart_stateful`] for a packet that leaves on borrowed bandwidth.
#[inline(never)]
fn depart_borrowed<S: Scheduler + ?Sized>(
    scheduler: &mut S,
    slot: Slot,
    class: ClassId,
    buffers: &mut Buffers,
    taken: &Taken,
) -> Departure {
    buffers.leaves[class as usize].borrowed_bytes += u64::from(taken.len);
    if scheduler.wants_arrivals() {
        scheduler.count_borrowed(slot, taken.len);
    }
    buffers.depart(class, taken.at, taken.wire, true)
}

/// Prefetches what the next packets will need: of the class that is likely next its first packet,
/// and of the class after it the records, which have the cell of its first packet.
#[inline]
fn prefetch_next<S: Scheduler + ?Sized>(scheduler: &mut S, slot: Slot, classes: &[ClassId], buffers: &Buffers) {
    let [near, far] = scheduler.likely_next(slot);
    let class = |slot: Slot| {
        if classes.is_empty() {
            slot
        } else {
            classes.get(slot as usize).map_or(NOBODY, |class| class & !HOLDS_SCHEDULER)
        }
    };
    if let Some(leaf) = buffers.leaves.get(class(near) as usize) {
        buffers.slab.fetch(leaf.head);
    }
    prefetch(&buffers.leaves, class(far) as usize);
    scheduler.fetch(far);
}
