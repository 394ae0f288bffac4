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

use super::state::{At, BACKLOGGED, Leaf, NIL, READY, Records, at, time};

/// The ready queue.
pub struct Ready {
    queues: [Queue; 8],
    /// Priorities in use.
    bits: u8,
}

/// The leaves of one priority. Leaves of equal deadlines are chained to one entry, as classes of
/// one rate often have the same deadlines.
struct Queue {
    /// The first entry: its deadline and its leaf. It is mostly the only one. [`NIL`] for the leaf
    /// if there is none.
    deadline: u64,
    first: u32,
    /// The leaf of the entry added last, while that is there, and its deadline.
    last: u32,
    last_deadline: u64,
    others: BinaryHeap<Reverse<At>>,
}

impl Queue {
    fn new() -> Queue {
        Queue { deadline: 0, first: NIL, last: NIL, last_deadline: 0, others: BinaryHeap::new() }
    }

    #[inline]
    fn push(&mut self, leaves: &mut [Leaf], deadline: u64, slot: u32) {
        if self.last != NIL && self.last_deadline == deadline {
            leaves[slot as usize].timer_next = leaves[self.last as usize].timer_next;
            leaves[self.last as usize].timer_next = slot;
            return;
        }
        leaves[slot as usize].timer_next = NIL;
        (self.last, self.last_deadline) = (slot, deadline);
        if self.first == NIL {
            (self.first, self.deadline) = (slot, deadline);
            return;
        }
        let (new, first) = (at(deadline, slot), at(self.deadline, self.first));
        self.others.push(Reverse(new.max(first)));
        if new < first {
            (self.first, self.deadline) = (slot, deadline);
        }
    }

    /// Removes the first leaf.
    #[inline]
    fn pop(&mut self, leaves: &mut [Leaf]) {
        let slot = self.first;
        let leaf = &mut leaves[slot as usize];
        leaf.flags &= !READY;
        let next = leaf.timer_next;
        self.first = next;
        if self.last == slot {
            self.last = next;
        }
        if self.others.is_empty() {
            return;
        }
        let first = at(self.deadline, next);
        if next == NIL {
            if let Some(Reverse(other)) = self.others.pop() {
                (self.deadline, self.first) = (time(other), other as u32);
            }
        } else if let Some(mut other) = self.others.peek_mut().filter(|other| other.0 < first) {
            (self.deadline, self.first) = (time(other.0), other.0 as u32);
            other.0 = first;
        }
    }
}

impl Ready {
    pub fn new() -> Ready {
        Ready { queues: std::array::from_fn(|_| Queue::new()), bits: 0 }
    }

    /// Adds a leaf. The caller has set its flag [`READY`](super::state::READY).
    #[inline]
    pub fn push(&mut self, leaves: &mut [Leaf], priority: u8, deadline: u64, slot: u32) {
        let priority = usize::from(priority) % 8;
        self.queues[priority].push(leaves, deadline, slot);
        self.bits |= 1 << priority;
    }

    /// The leaf that sends first. Leaves that have lost their packets are removed on the way.
    #[inline]
    pub fn front(&mut self, records: &mut Records) -> Option<u32> {
        while self.bits != 0 {
            let slot = self.queues[self.bits.ilog2() as usize % 8].first;
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
        if self.bits == 0 { None } else { Some(self.queues[self.bits.ilog2() as usize % 8].first) }
    }

    /// Takes out the leaf that [`front`](Ready::front) returned.
    #[inline]
    pub fn pop(&mut self, records: &mut Records) {
        let priority = self.bits.ilog2() as usize % 8;
        let queue = &mut self.queues[priority];
        queue.pop(&mut records.leaves);
        if queue.first == NIL {
            self.bits &= !(1 << priority);
        }
    }

    /// Takes one leaf out. Linear: only changes of the tree do this.
    pub fn unfile(&mut self, records: &mut Records, slot: u32) {
        let priority = usize::from(records.leaves[slot as usize].priority) % 8;
        let queue = std::mem::replace(&mut self.queues[priority], Queue::new());
        self.bits &= !(1 << priority);
        let first = at(queue.deadline, queue.first);
        let all: Vec<At> = std::iter::once(first).chain(queue.others.into_iter().map(|Reverse(at)| at)).collect();
        for entry in all {
            let (deadline, mut id) = (time(entry), entry as u32);
            while id != NIL {
                let next = records.leaves[id as usize].timer_next;
                if id != slot {
                    self.push(&mut records.leaves, priority as u8, deadline, id);
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
