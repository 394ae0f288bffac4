//! A calendar of the children of one inner class, by start tag (start-time fair queueing, Goyal et al. 1996).
//!
//! Slots of 64 to a level, found by one bitmap; a slot of level 0 is 1/16 to 1/32 of the time that the fastest child's packet takes,
//! one of level n 64^n times as wide, so that a child of any weight finds its place. Who lies on a higher level comes down when
//! its time comes near. Order within a slot is first in, first out; tags themselves are exact, so shares are exact and the order
//! is wrong by one slot at most.
//!
//! Entries are lazy: one may lie too early, because a guaranteed packet moved the tag on, or be dead. It is put right or
//! dropped when it comes to the front.

use super::state::{AVAIL, LINKED, NIL, Records, span};

const SLOTS: u64 = 64;

/// The calendar.
pub struct Ring {
    /// Virtual time: the largest start tag that was served.
    v: u64,
    /// The largest start tag that was served by a guarantee.
    ahead: u64,
    /// Children that can take a packet now.
    pub avail: u32,
    /// Log2 of the width of a slot, ns.
    shift: u32,
    /// The front slot, counted in slots of level 0.
    cur: u64,
    /// Of the fastest child seen.
    fastest: u64,
    levels: Vec<Level>,
}

struct Level {
    bits: u64,
    head: [u32; SLOTS as usize],
    tail: [u32; SLOTS as usize],
}

impl Ring {
    pub fn new() -> Ring {
        Ring { v: 0, ahead: 0, avail: 0, shift: 0, cur: 0, fastest: u64::MAX, levels: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.bits == 0)
    }

    /// A child that needs `nspb` is about to be inserted: slots become narrower if it is the fastest so far.
    #[inline]
    pub fn admit(&mut self, records: &mut Records, nspb: u64) {
        if nspb < self.fastest {
            self.narrow(records, nspb);
        }
    }

    #[cold]
    fn narrow(&mut self, records: &mut Records, nspb: u64) {
        self.fastest = nspb;
        let packet = span(nspb, 1500).max(1);
        let shift = packet.ilog2().saturating_sub(4);
        if shift != self.shift {
            let all = self.drain(records);
            self.shift = shift;
            self.cur = all.iter().map(|id| records.tag(*id) >> shift).min().unwrap_or(0);
            for id in all {
                self.place(records, id);
            }
        }
    }

    /// A child that was at the front is served: its start tag becomes the present, and `time` is added to it. At most `lag` of what it
    /// missed is made good. Returns the child's new tag.
    #[inline]
    pub fn serve(&mut self, tag: u64, time: u64, lag: u64) -> u64 {
        let tag = tag.max(self.v.saturating_sub(lag));
        self.v = self.v.max(tag);
        tag.saturating_add(time)
    }

    /// A child is served out of turn, by a guarantee. Who cannot take excess (`avail`) starts at the present.
    #[inline]
    pub fn serve_out_of_turn(&mut self, tag: u64, time: u64, avail: bool, lag: u64) -> u64 {
        let tag = tag.max(if avail { self.v.saturating_sub(lag) } else { self.v });
        self.ahead = self.ahead.max(tag);
        tag.saturating_add(time)
    }

    /// The present, for a child that comes back.
    ///
    /// Virtual time follows guaranteed service too: else a class fed by guarantees alone would have its tag run away from those
    /// that come back, and lose its excess for as long (exact-cbq.md, trap a). But not beyond the least tag of those who wait for
    /// excess: else a slow class's burst, worth seconds, would cost every other that comes back its excess for seconds.
    #[inline]
    pub fn present(&mut self, records: &mut Records) -> u64 {
        if self.ahead > self.v {
            let least = match self.avail {
                0 => self.ahead,
                _ => self.front(records).map_or(self.ahead, |id| records.tag(id).min(self.ahead)),
            };
            self.v = self.v.max(least);
        }
        self.v
    }

    /// Takes all entries out, in no order.
    pub fn drain(&mut self, records: &mut Records) -> Vec<u32> {
        let mut all = Vec::new();
        for level in &mut self.levels {
            while level.bits != 0 {
                let slot = level.bits.trailing_zeros() as usize;
                let mut id = level.head[slot];
                while id != NIL {
                    all.push(id);
                    id = records.ring_next(id);
                }
                level.bits &= level.bits - 1;
            }
        }
        all
    }

    /// Files a child by its tag. The caller has marked it as linked.
    #[inline]
    pub fn insert(&mut self, records: &mut Records, id: u32) {
        if self.is_empty() {
            self.cur = records.tag(id) >> self.shift;
        }
        self.place(records, id);
    }

    #[inline]
    fn place(&mut self, records: &mut Records, id: u32) {
        let at = records.tag(id) >> self.shift;
        // A tag before the front slot goes to its head: it is the least of all.
        let behind = at < self.cur;
        let at = at.max(self.cur);
        let mut level = 0;
        while (at >> (6 * level)) - (self.cur >> (6 * level)) >= SLOTS {
            level += 1;
        }
        let slot = ((at >> (6 * level)) % SLOTS) as usize;
        while self.levels.len() <= level as usize {
            self.levels.push(Level { bits: 0, head: [NIL; SLOTS as usize], tail: [NIL; SLOTS as usize] });
        }
        records.set_filed(id, (level as u16) << 6 | slot as u16);
        let level = &mut self.levels[level as usize];
        if level.bits & (1 << slot) == 0 {
            level.bits |= 1 << slot;
            level.head[slot] = id;
            level.tail[slot] = id;
            records.set_ring_next(id, NIL);
        } else if behind {
            records.set_ring_next(id, level.head[slot]);
            level.head[slot] = id;
        } else {
            records.set_ring_next(level.tail[slot], id);
            level.tail[slot] = id;
            records.set_ring_next(id, NIL);
        }
    }

    /// The child with the least tag that can take a packet.
    #[inline]
    pub fn front(&mut self, records: &mut Records) -> Option<u32> {
        loop {
            let level0 = self.levels.first()?;
            let ahead = level0.bits.rotate_right((self.cur % SLOTS) as u32);
            let near = if ahead == 0 { u64::MAX } else { self.cur + u64::from(ahead.trailing_zeros()) };
            if self.levels.len() > 1
                && let Some(start) = self.first_above().filter(|start| *start <= near)
            {
                self.bring_down(records, start);
                continue;
            }
            if near == u64::MAX {
                return None;
            }
            self.cur = near;
            let slot = (near % SLOTS) as usize;
            let id = level0.head[slot];
            let live = *records.flags(id) & AVAIL != 0;
            if live && records.tag(id) >> self.shift <= near {
                return Some(id);
            }
            // Dead, or lying too early.
            let next = records.ring_next(id);
            let level = &mut self.levels[0];
            level.head[slot] = next;
            if next == NIL {
                level.bits &= !(1 << slot);
            }
            if live {
                self.place(records, id);
            } else {
                *records.flags(id) &= !LINKED;
            }
        }
    }

    /// Where the first slot in use above level 0 begins. It lies ahead of the front slot.
    fn first_above(&self) -> Option<u64> {
        let mut first = None;
        for (n, level) in self.levels.iter().enumerate().skip(1) {
            if level.bits != 0 {
                let width = 6 * n as u32;
                let after = (self.cur >> width) + 1;
                let ahead = u64::from(level.bits.rotate_right((after % SLOTS) as u32).trailing_zeros());
                let start = (after + ahead) << width;
                if first.is_none_or(|first| start < first) {
                    first = Some(start);
                }
            }
        }
        first
    }

    /// Moves the front to `start` and files anew what lay in slots of higher levels that begin there.
    fn bring_down(&mut self, records: &mut Records, start: u64) {
        self.cur = start;
        for n in (1..self.levels.len()).rev() {
            let width = 6 * n as u32;
            let slot = ((start >> width) % SLOTS) as usize;
            let level = &mut self.levels[n];
            if start & ((1 << width) - 1) != 0 || level.bits & (1 << slot) == 0 {
                continue;
            }
            level.bits &= !(1 << slot);
            let mut id = level.head[slot];
            while id != NIL {
                let next = records.ring_next(id);
                if *records.flags(id) & AVAIL == 0 {
                    *records.flags(id) &= !LINKED;
                } else {
                    self.place(records, id);
                }
                id = next;
            }
        }
    }

    /// Sets virtual time back by `by`, together with all children's tags, which the caller sees to between [`drain`](Ring::drain)
    /// and this; files `all` again.
    pub fn rebase(&mut self, records: &mut Records, by: u64, all: Vec<u32>) {
        self.v = self.v.saturating_sub(by);
        self.ahead = self.ahead.saturating_sub(by);
        self.cur = all.iter().map(|id| records.tag(*id) >> self.shift).min().unwrap_or(0);
        for id in all {
            self.place(records, id);
        }
    }

    /// Takes one child's entry out. Linear in the children of its slot: only changes of the tree do this.
    pub fn unlink(&mut self, records: &mut Records, id: u32) {
        let at = records.filed(id);
        let (n, slot) = ((at >> 6) as usize, (at % SLOTS as u16) as usize);
        let Some(level) = self.levels.get_mut(n) else { return };
        let (mut before, mut here) = (NIL, level.head[slot]);
        while here != NIL && here != id {
            (before, here) = (here, records.ring_next(here));
        }
        if here == NIL {
            return;
        }
        let next = records.ring_next(id);
        if before == NIL {
            level.head[slot] = next;
        } else {
            records.set_ring_next(before, next);
        }
        if next == NIL {
            level.tail[slot] = before;
            if before == NIL {
                level.bits &= !(1 << slot);
            }
        }
        *records.flags(id) &= !LINKED;
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.levels.capacity() * size_of::<Level>()
    }
}
