//! Leaves that may send within their guarantee: the highest priority first, then the earliest deadline.
//!
//! The deadline of a packet is the time at which it would have been sent at the leaf's own rate: its eligible time plus its length
//! over the rate. Of equal priority this gives a small packet of a slow class its short delay beside long ones, and keeps rule 9: a
//! conforming packet's deadline is not after its arrival, so only the bursts of others can be before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::state::{BACKLOGGED, READY, Records};

/// The queue of such leaves.
#[derive(Default)]
pub struct Ready {
    heaps: [BinaryHeap<Reverse<(u64, u32)>>; 8],
    /// Priorities in use.
    bits: u8,
}

impl Ready {
    /// Adds a leaf. The caller has marked it.
    #[inline]
    pub fn push(&mut self, priority: u8, deadline: u64, slot: u32) {
        self.heaps[priority as usize].push(Reverse((deadline, slot)));
        self.bits |= 1 << priority;
    }

    /// Who goes first. Leaves that lost their packets are dropped on the way.
    #[inline]
    pub fn front(&mut self, records: &mut Records) -> Option<u32> {
        while self.bits != 0 {
            let priority = self.bits.ilog2() as usize;
            while let Some(&Reverse((_, slot))) = self.heaps[priority].peek() {
                let line = &mut records.lines[slot as usize];
                if line.has(BACKLOGGED) {
                    return Some(slot);
                }
                line.flags &= !READY;
                self.heaps[priority].pop();
            }
            self.bits &= !(1 << priority);
        }
        None
    }

    /// Takes out the one that [`front`](Ready::front) named.
    #[inline]
    pub fn pop(&mut self, records: &mut Records) {
        let priority = self.bits.ilog2() as usize;
        if let Some(Reverse((_, slot))) = self.heaps[priority].pop() {
            records.lines[slot as usize].flags &= !READY;
        }
        if self.heaps[priority].is_empty() {
            self.bits &= !(1 << priority);
        }
    }

    /// Takes one leaf out. Linear: only changes of the tree do this.
    pub fn unfile(&mut self, records: &mut Records, slot: u32) {
        let priority = records.lines[slot as usize].priority as usize;
        self.heaps[priority].retain(|Reverse((_, other))| *other != slot);
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
