//! Leaves that may send within their guarantee: the highest priority first, then the earliest deadline.
//!
//! The deadline of a packet is the time at which it would have been sent at the leaf's own rate: its eligible time plus its length
//! over the rate. Of equal priority this gives a small packet of a slow class its short delay beside long ones, and keeps rule 9: a
//! conforming packet's deadline is not after its arrival, so only the bursts of others can be before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::state::{BACKLOGGED, NIL, READY, Records};

/// The queue of such leaves. Those of one deadline hang on to one entry of the heap: classes of one rate often move in step.
#[derive(Default)]
pub struct Ready {
    heaps: [BinaryHeap<Reverse<(u64, u32)>>; 8],
    /// The entry added last, while it is there: its deadline and leaf.
    last: [Option<(u64, u32)>; 8],
    /// Priorities in use.
    bits: u8,
}

impl Ready {
    /// Adds a leaf. The caller has marked it.
    #[inline]
    pub fn push(&mut self, records: &mut Records, priority: u8, deadline: u64, slot: u32) {
        let (at, lines) = (usize::from(priority) % 8, &mut records.lines);
        match self.last[at] {
            Some((same, first)) if same == deadline => {
                lines[slot as usize].timer_next = lines[first as usize].timer_next;
                lines[first as usize].timer_next = slot;
            }
            _ => {
                lines[slot as usize].timer_next = NIL;
                self.heaps[at].push(Reverse((deadline, slot)));
                self.last[at] = Some((deadline, slot));
            }
        }
        self.bits |= 1 << at;
    }

    /// Who goes first. Leaves that lost their packets are dropped on the way.
    #[inline]
    pub fn front(&mut self, records: &mut Records) -> Option<u32> {
        while self.bits != 0 {
            let priority = self.bits.ilog2() as usize;
            while let Some(&Reverse((_, slot))) = self.heaps[priority].peek() {
                if records.lines[slot as usize].has(BACKLOGGED) {
                    return Some(slot);
                }
                self.take(records, priority);
            }
            self.bits &= !(1 << priority);
        }
        None
    }

    /// Takes out the one that [`front`](Ready::front) named.
    #[inline]
    pub fn pop(&mut self, records: &mut Records) {
        let priority = self.bits.ilog2() as usize;
        self.take(records, priority);
        if self.heaps[priority].is_empty() {
            self.bits &= !(1 << priority);
        }
    }

    #[inline]
    fn take(&mut self, records: &mut Records, priority: usize) {
        let Some(mut top) = self.heaps[priority].peek_mut() else { return };
        let (deadline, slot) = top.0;
        let line = &mut records.lines[slot as usize];
        line.flags &= !READY;
        let next = line.timer_next;
        if self.last[priority] == Some((deadline, slot)) {
            self.last[priority] = (next != NIL).then_some((deadline, next));
        }
        match next {
            NIL => {
                PeekMut::pop(top);
            }
            next => top.0.1 = next,
        }
    }

    /// Takes one leaf out. Linear: only changes of the tree do this.
    pub fn unfile(&mut self, records: &mut Records, slot: u32) {
        let priority = usize::from(records.lines[slot as usize].priority) % 8;
        let all: Vec<(u64, u32)> = self.heaps[priority].drain().map(|Reverse(entry)| entry).collect();
        self.last[priority] = None;
        for (deadline, mut id) in all {
            while id != NIL {
                let next = records.lines[id as usize].timer_next;
                if id != slot {
                    self.push(records, priority as u8, deadline, id);
                }
                id = next;
            }
        }
        if self.heaps[priority].is_empty() {
            self.bits &= !(1 << priority);
        }
        records.lines[slot as usize].flags &= !READY;
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.heaps.iter().map(|heap| heap.capacity() * size_of::<Reverse<(u64, u32)>>()).sum()
    }
}
