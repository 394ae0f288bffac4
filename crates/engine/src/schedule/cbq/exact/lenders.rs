//! The inner classes that may have bandwidth to lend. Used for `excess priority`, where leaves of
//! higher priority borrow first (docs/reference/cbq.md rule 5; Floyd and Jacobson 1995, formal
//! link-sharing). The lists are ordered by level, the lowest first, and within a level by the
//! priority of the leaves that would borrow.

use super::state::{IN_LENDERS, NIL, Records};

/// A list of branches for every level and band. A branch is a pair: an inner class (the node), and
/// one priority (the band) of the leaves below it. Leaves of rate 0 are in band 0.
#[derive(Default)]
pub struct Lenders {
    /// The first and the last branch of each list. The index is the level minus 1, then the band.
    lists: Vec<[(u32, u32); 8]>,
    /// For each level minus 1, a bit mask of the bands whose list is not empty.
    bits: Vec<u8>,
}

impl Lenders {
    /// Adds a branch that is in no list.
    pub fn push(&mut self, records: &mut Records, level: u32, branch: u32) {
        let row = level.saturating_sub(1) as usize;
        if self.lists.len() <= row {
            self.lists.resize(row + 1, [(NIL, NIL); 8]);
            self.bits.resize(row + 1, 0);
        }
        let b = &mut records.branches[branch as usize];
        b.flags |= IN_LENDERS;
        b.lender_next = NIL;
        let band = b.band;
        let (first, last) = &mut self.lists[row][band as usize];
        if *first == NIL {
            *first = branch;
        } else {
            records.branches[*last as usize].lender_next = branch;
        }
        *last = branch;
        self.bits[row] |= 1 << band;
    }

    /// The branch whose inner class lends next: of the lowest level, and there of the highest band.
    /// Branches that cannot lend any more are removed on the way.
    pub fn front(&mut self, records: &mut Records, now: u64) -> Option<u32> {
        for row in 0..self.bits.len() {
            while self.bits[row] != 0 {
                let band = self.bits[row].ilog2() as usize;
                let first = self.lists[row][band].0;
                let b = &records.branches[first as usize];
                if b.avail > 0 && records.nodes[b.node as usize].underlimit <= now {
                    return Some(first);
                }
                self.pop(records, row, band);
            }
        }
        None
    }

    fn pop(&mut self, records: &mut Records, row: usize, band: usize) -> u32 {
        let first = self.lists[row][band].0;
        let b = &mut records.branches[first as usize];
        b.flags &= !IN_LENDERS;
        self.lists[row][band].0 = b.lender_next;
        if b.lender_next == NIL {
            self.bits[row] &= !(1 << band);
        }
        first
    }

    /// Moves a branch that [`front`](Lenders::front) returned, and whose node has lent, to the end
    /// of its list.
    pub fn rotate(&mut self, records: &mut Records, branch: u32) {
        let b = records.branches[branch as usize];
        let level = records.nodes[b.node as usize].level;
        if b.flags & IN_LENDERS != 0
            && self.lists[level as usize - 1][b.band as usize].0 == branch
            && b.lender_next != NIL
        {
            self.pop(records, level as usize - 1, b.band as usize);
            self.push(records, level, branch);
        }
    }

    /// Empties all lists.
    pub fn clear(&mut self, records: &mut Records) {
        records.branches.iter_mut().for_each(|b| b.flags &= !IN_LENDERS);
        self.lists.clear();
        self.bits.clear();
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.lists.capacity() * size_of::<[(u32, u32); 8]>() + self.bits.capacity()
    }
}
