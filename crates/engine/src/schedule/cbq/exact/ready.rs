//! The ready queue: leaves that may send within their guarantee, the highest priority first, then
//! the earliest deadline.
//!
//! The deadline of a packet is the time at which it would have been sent at the leaf's own rate:
//! its eligible time plus its length over the rate. Within a priority this gives a small packet of
//! a slow class a short delay beside long ones. It also keeps docs/reference/cbq.md rule 9: the
//! deadline of a conforming packet is not after its arrival, so only the bursts of others can have
//! earlier ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::state::{At, BACKLOGGED, Leaf, NIL, READY, Records, at, time, with_id};

/// The ready queue.
pub struct Ready {
    queues: [Queue; 8],
    /// Priorities in use.
    bits: u8,
}

/// The leaves of one priority. Leaves of equal deadlines are chained to one entry, as classes of
/// one rate often have the same deadlines.
struct Queue {
    /// The first entry, deadline and leaf. It is mostly the only one. [`NIL`] for the leaf if there
    /// is none.
    first: At,
    others: BinaryHeap<Reverse<At>>,
    /// The entry added last, while it is there.
    last: At,
}

const NONE: At = NIL as At;

impl Queue {
    fn new() -> Queue {
        Queue { first: NONE, others: BinaryHeap::new(), last: NONE }
    }

    #[inline]
    fn push(&mut self, leaves: &mut [Leaf], deadline: u64, slot: u32) {
        let last = self.last as u32;
        if time(self.last) == deadline && last != NIL {
            leaves[slot as usize].timer_next = leaves[last as usize].timer_next;
            leaves[last as usize].timer_next = slot;
            return;
        }
        leaves[slot as usize].timer_next = NIL;
        self.last = at(deadline, slot);
        if self.first as u32 == NIL {
            self.first = self.last;
        } else if self.last < self.first {
            self.others.push(Reverse(self.first));
            self.first = self.last;
        } else {
            self.others.push(Reverse(self.last));
        }
    }

    /// Removes the first leaf.
    #[inline]
    fn pop(&mut self, leaves: &mut [Leaf]) {
        let leaf = &mut leaves[self.first as u32 as usize];
        leaf.flags &= !READY;
        let next = with_id(self.first, leaf.timer_next);
        if self.last == self.first {
            self.last = next;
        }
        if next as u32 == NIL {
            self.first =
                if self.others.is_empty() { NONE } else { self.others.pop().map_or(NONE, |Reverse(first)| first) };
            return;
        }
        self.first = next;
        if let Some(mut other) = self.others.peek_mut().filter(|other| other.0 < self.first) {
            std::mem::swap(&mut other.0, &mut self.first);
        }
    }
}

impl Ready {
    pub fn new() -> Ready {
        Ready { queues: std::array::from_fn(|_| Queue::new()), bits: 0 }
    }

    /// Adds a leaf. The caller has set its flag [`READY`](super::state::READY).
    #[inline]
    pub fn push(&mut self, records: &mut Records, priority: u8, deadline: u64, slot: u32) {
        let priority = usize::from(priority) % 8;
        self.queues[priority].push(&mut records.leaves, deadline, slot);
        self.bits |= 1 << priority;
    }

    /// The leaf that sends first. Leaves that have lost their packets are removed on the way.
    #[inline]
    pub fn front(&mut self, records: &mut Records) -> Option<u32> {
        while self.bits != 0 {
            let slot = self.queues[self.bits.ilog2() as usize % 8].first as u32;
            if records.leaves[slot as usize].has(BACKLOGGED) {
                return Some(slot);
            }
            self.pop(records);
        }
        None
    }

    /// The leaf that is probably first.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        if self.bits == 0 { None } else { Some(self.queues[self.bits.ilog2() as usize % 8].first as u32) }
    }

    /// Takes out the leaf that [`front`](Ready::front) returned.
    #[inline]
    pub fn pop(&mut self, records: &mut Records) {
        let priority = self.bits.ilog2() as usize % 8;
        let queue = &mut self.queues[priority];
        queue.pop(&mut records.leaves);
        if queue.first as u32 == NIL {
            self.bits &= !(1 << priority);
        }
    }

    /// Takes one leaf out. Linear: only changes of the tree do this.
    pub fn unfile(&mut self, records: &mut Records, slot: u32) {
        let priority = usize::from(records.leaves[slot as usize].priority) % 8;
        let queue = std::mem::replace(&mut self.queues[priority], Queue::new());
        self.bits &= !(1 << priority);
        let all: Vec<At> =
            std::iter::once(queue.first).chain(queue.others.into_iter().map(|Reverse(entry)| entry)).collect();
        for entry in all {
            let (deadline, mut id) = (time(entry), entry as u32);
            while id != NIL {
                let next = records.leaves[id as usize].timer_next;
                if id != slot {
                    self.push(records, priority as u8, deadline, id);
                }
                id = next;
            }
        }
        records.leaves[slot as usize].flags &= !READY;
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.queues.iter().map(|queue| queue.others.capacity() * size_of::<At>()).sum()
    }
}
