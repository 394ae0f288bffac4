//! Packets come and go, and flows are kept in order of how fat they are: a list of flows for each
//! rank.

use super::super::{List, Store, Taken};
use super::{Flow, Flows};
use crate::packet::{NIL, Packet};
use crate::units::Nanos;

/// The measure of how fat a flow is, rounded to a number of ranks.
pub(in super::super) trait Rank: Send {
    /// The rank of a flow with this backlog: 0 if it is empty, else 1 to 127, greater for a fatter
    /// one.
    fn of(list: &List) -> usize;
}

/// Ranks by bytes, four for each power of two: [`Flows::fattest`] holds more than 4/5 of the bytes
/// of the flow that holds most.
pub(in super::super) struct ByBytes;

impl Rank for ByBytes {
    #[inline]
    fn of(list: &List) -> usize {
        let bytes = list.bytes();
        if list.is_empty() {
            return 0;
        }
        if bytes < 4 {
            return 1 + bytes as usize;
        }
        let octave = bytes.ilog2();
        // 4 to 7 bytes are octave 2, with the ranks 5 to 8. The highest octave is 31, with ranks up
        // to 124.
        (4 * octave + (bytes >> (octave - 2) & 3)) as usize - 3
    }
}

/// Ranks by packets, exact up to 127 packets: no queue with these ranks lets a flow hold more.
pub(in super::super) struct ByPackets;

impl Rank for ByPackets {
    #[inline]
    fn of(list: &List) -> usize {
        list.packets().min(127) as usize
    }
}

impl<S: Default, R: Rank> Flows<S, R> {
    /// Calls `change`, which may add packets to a flow or take some out, and updates the totals and
    /// the flow's rank.
    #[inline]
    pub fn update<T>(&mut self, at: u32, change: impl FnOnce(&mut Flow<S>) -> T) -> T {
        let record = &mut self.records[at as usize];
        let (before, packets, bytes) = (R::of(&record.list), record.list.packets(), record.list.bytes());
        let answer = change(record);
        let after = R::of(&record.list);
        self.packets = self.packets - packets + record.list.packets();
        self.bytes = self.bytes - bytes + record.list.bytes();
        if before != after {
            self.move_rank(at, before, after);
        }
        answer
    }

    /// [`update`](Flows::update) for the most frequent change: a packet more.
    #[inline(always)]
    pub fn push(&mut self, at: u32, packet: &Packet, store: &mut Store<'_>) {
        let record = &mut self.records[at as usize];
        let before = R::of(&record.list);
        store.push(&mut record.list, packet);
        let after = R::of(&record.list);
        self.packets += 1;
        self.bytes += packet.len;
        if before != after {
            self.move_rank(at, before, after);
        }
    }

    /// [`update`](Flows::update) for the first packet of a flow that leaves.
    #[inline(always)]
    pub fn pop(&mut self, at: u32, store: &mut Store<'_>) -> Option<Taken> {
        let record = &mut self.records[at as usize];
        let before = R::of(&record.list);
        let taken = store.pop(&mut record.list)?;
        let after = R::of(&record.list);
        self.packets -= 1;
        self.bytes -= taken.len;
        if before != after {
            self.move_rank(at, before, after);
        }
        Some(taken)
    }

    /// [`pop`](Flows::pop) if the flow has packets and `may` says so of it and of the time at which
    /// its first packet arrived. Calls `then` with the flow and the packet.
    #[inline(always)]
    pub fn pop_if(
        &mut self,
        at: u32,
        store: &mut Store<'_>,
        may: impl FnOnce(&Flow<S>, Nanos) -> bool,
        then: impl FnOnce(&mut Flow<S>, &Taken),
    ) -> Option<Taken> {
        let record = &mut self.records[at as usize];
        let arrived = store.arrived(&record.list)?;
        if !may(record, arrived) {
            return None;
        }
        let before = R::of(&record.list);
        let taken = store.pop(&mut record.list)?;
        then(record, &taken);
        let after = R::of(&record.list);
        self.packets -= 1;
        self.bytes -= taken.len;
        if before != after {
            self.move_rank(at, before, after);
        }
        Some(taken)
    }

    /// The fattest flow, as far as [`Rank`] tells flows apart.
    #[inline]
    pub fn fattest(&self) -> Option<u32> {
        let [low, high] = self.occupied;
        let rank = if high != 0 { 64 + high.ilog2() } else { low.checked_ilog2()? };
        Some(self.ranks[rank as usize])
    }

    /// Makes a flow the first of its rank, and so the one that [`fattest`](Flows::fattest) names
    /// among those of its rank.
    pub fn touch(&mut self, at: u32) {
        let rank = R::of(&self.records[at as usize].list);
        self.move_rank(at, rank, rank);
    }

    /// Moves a flow from the list of one rank to the head of another's; rank 0 has no list.
    #[inline(never)]
    fn move_rank(&mut self, at: u32, before: usize, after: usize) {
        // Below 128 in any case; so they are not compared with the length of the array.
        let (before, after) = (before & 127, after & 127);
        if before != 0 {
            let Flow { up, down, .. } = self.records[at as usize];
            if down != NIL {
                self.records[down as usize].up = up;
            }
            if up != NIL {
                self.records[up as usize].down = down;
            } else {
                self.ranks[before] = down;
                if down == NIL {
                    self.occupied[before / 64] &= !(1 << (before % 64));
                }
            }
        }
        if after != 0 {
            let first = std::mem::replace(&mut self.ranks[after], at);
            if first != NIL {
                self.records[first as usize].up = at;
            } else {
                self.occupied[after / 64] |= 1 << (after % 64);
            }
            let record = &mut self.records[at as usize];
            (record.up, record.down) = (NIL, first);
        }
    }
}
