//! A timing wheel (Varghese and Lauck 1987) for the clocks of exact CBQ.
//!
//! Leaves wait here until their next packet is within guarantee, caps and inner classes until they
//! have credit again. Slots are 2^k ns wide; a bitmap of three levels finds the first one in use.
//! When the time of a slot has come, its timers move to a small heap by their exact time. So times
//! are exact to the nanosecond, and do not depend on when the scheduler is asked. Timers beyond the
//! wheel's horizon wait in the heap as well.
//!
//! A timer is not moved when its clock moves on. It is filed again when it comes to the front.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::state::{At, NIL, Records, at, time, with_id};

/// The wheel.
pub struct TimingWheel {
    shift: u32,
    /// No slot before this one is used any more. Counted from time 0.
    cur: u64,
    /// The first slot in use, at or after `cur`; `u64::MAX` if none is.
    first: u64,
    /// No timer is due before this time: the beginning of the first slot, or the first time in the
    /// heap.
    soonest: u64,
    /// The least time in the first slot, once it has been looked for.
    least: Option<u64>,
    heads: Vec<u32>,
    /// Bit n of the first level: slot n is in use. Bit n of each other level: word n of the level
    /// below is not 0.
    bits: [Vec<u64>; 3],
    near: BinaryHeap<Reverse<At>>,
}

impl TimingWheel {
    /// A wheel of 2^`slots` slots (10 to 18), each 2^`shift` ns wide, at the time `now`.
    pub fn new(slots: u32, shift: u32, now: u64) -> TimingWheel {
        let n = 1usize << slots;
        TimingWheel {
            shift,
            cur: now >> shift,
            first: u64::MAX,
            soonest: u64::MAX,
            least: None,
            heads: vec![NIL; n],
            bits: [vec![0; n.div_ceil(64)], vec![0; n.div_ceil(4096)], vec![0; n.div_ceil(262_144)]],
            near: BinaryHeap::new(),
        }
    }

    /// Files a timer that is due at `records.due(id)`.
    pub fn file(&mut self, records: &mut Records, id: u32, now: u64) {
        let next = self.place(id, records.due(id), now);
        records.set_timer_next(id, next);
    }

    /// Files a timer that is due at `due`. Returns the one that the caller links behind it.
    #[inline]
    pub fn place(&mut self, id: u32, due: u64, now: u64) -> u32 {
        let tick = due >> self.shift;
        let ring = self.heads.len() as u64;
        if tick.wrapping_sub(self.cur) >= ring {
            // A slot whose time has come, or beyond the horizon: into the heap. Filing far timers
            // again at every turn of the wheel would make a long idle time expensive.
            self.cur = self.cur.max((now >> self.shift).min(self.first));
            if tick.wrapping_sub(self.cur) >= ring {
                self.near.push(Reverse(at(due, id)));
                self.soonest = self.soonest.min(due);
                return NIL;
            }
        }
        let slot = (tick as usize) & (self.heads.len() - 1);
        let next = std::mem::replace(&mut self.heads[slot], id);
        if next == NIL {
            self.mark(slot);
        }
        if tick < self.first {
            self.first = tick;
            self.least = None;
            self.soonest = self.soonest.min(tick << self.shift);
        } else if tick == self.first {
            self.least = self.least.map(|least| least.min(due));
        }
        next
    }

    /// Whether a timer may be due.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.soonest
    }

    /// Takes timers that are due: the first one of their list, [`NIL`] if there is none. The caller
    /// repeats this until there is none. It files those anew whose clock has moved beyond the
    /// present since they were filed. Earlier timers come before later ones; those of one slot
    /// whose time is over come in any order.
    pub fn take(&mut self, records: &mut Records, now: u64) -> u32 {
        loop {
            let near = self.near.peek().map_or(u64::MAX, |Reverse(first)| time(*first));
            let start = if self.first == u64::MAX { u64::MAX } else { self.first << self.shift };
            if self.first != u64::MAX && start <= now.min(near) {
                if (now - start) >> self.shift == 0 {
                    self.open(records, now);
                    continue;
                }
                let slot = (self.first as usize) & (self.heads.len() - 1);
                let list = std::mem::replace(&mut self.heads[slot], NIL);
                self.cur = self.cur.max(self.first + 1);
                self.clear(slot);
                return list;
            }
            if near > now {
                self.soonest = near.min(start);
                return NIL;
            }
            // With all timers that are chained to it.
            return self.near.pop().map_or(NIL, |Reverse(first)| first as u32);
        }
    }

    /// The earliest time at which a timer is due that can let a packet go. Timers that cannot are
    /// removed on the way; `drop` is called for each.
    pub fn next(&mut self, records: &mut Records, mut drop: impl FnMut(&mut Records, u32)) -> Option<u64> {
        loop {
            while let Some(&Reverse(first)) = self.near.peek() {
                let id = first as u32;
                if records.matters(id) {
                    break;
                }
                self.pop_near(records);
                drop(records, id);
            }
            let near = self.near.peek().map(|Reverse(first)| time(*first));
            if self.first == u64::MAX {
                return near;
            }
            let start = self.first << self.shift;
            if let Some(near) = near.filter(|near| *near <= start) {
                return Some(near);
            }
            let least = match self.least {
                Some(least) => least,
                None => {
                    let slot = (self.first as usize) & (self.heads.len() - 1);
                    let (mut least, mut kept) = (u64::MAX, NIL);
                    let mut id = self.heads[slot];
                    while id != NIL {
                        let next = records.timer_next(id);
                        if records.matters(id) {
                            // A timer whose clock has moved beyond this slot is looked at again
                            // when the slot ends.
                            least = least.min(records.due(id).min(start + (1 << self.shift)));
                            records.set_timer_next(id, kept);
                            kept = id;
                        } else {
                            drop(records, id);
                        }
                        id = next;
                    }
                    self.heads[slot] = kept;
                    if kept == NIL {
                        self.clear(slot);
                        continue;
                    }
                    self.least = Some(least);
                    least
                }
            };
            return Some(near.map_or(least, |near| near.min(least)));
        }
    }

    /// Moves the first slot's timers to the heap.
    fn open(&mut self, records: &mut Records, now: u64) {
        let tick = self.first;
        let slot = (tick as usize) & (self.heads.len() - 1);
        let mut id = self.heads[slot];
        self.heads[slot] = NIL;
        self.clear(slot);
        self.cur = (tick + 1).max((now >> self.shift).min(self.first));
        let mut chain = (u64::MAX, NIL);
        while id != NIL {
            let next = records.timer_next(id);
            let due = records.due(id);
            if due >> self.shift >= self.cur {
                self.file(records, id, now);
            } else if due == chain.0 && chain.1 != NIL {
                // Due at the same time as the timer before: it is chained to that one's entry.
                // Classes of one rate often have the same due times.
                records.set_timer_next(id, records.timer_next(chain.1));
                records.set_timer_next(chain.1, id);
            } else {
                records.set_timer_next(id, NIL);
                self.near.push(Reverse(at(due, id)));
                chain = (due, id);
            }
            id = next;
        }
    }

    /// Takes the first timer of the heap; the next one chained to it takes its place.
    #[inline]
    fn pop_near(&mut self, records: &Records) -> Option<u32> {
        let mut top = self.near.peek_mut()?;
        let id = top.0 as u32;
        match records.timer_next(id) {
            NIL => {
                PeekMut::pop(top);
            }
            next => top.0 = with_id(top.0, next),
        }
        Some(id)
    }

    /// Marks a slot as in use.
    #[inline]
    fn mark(&mut self, slot: usize) {
        let word = &mut self.bits[0][slot >> 6];
        let others = *word != 0;
        *word |= 1 << (slot & 63);
        if !others {
            self.bits[1][slot >> 12] |= 1 << (slot >> 6 & 63);
            self.bits[2][slot >> 18] |= 1 << (slot >> 12 & 63);
        }
    }

    /// Marks a slot as empty and finds the next one in use.
    fn clear(&mut self, slot: usize) {
        self.bits[0][slot >> 6] &= !(1 << (slot & 63));
        if self.bits[0][slot >> 6] == 0 {
            self.bits[1][slot >> 12] &= !(1 << (slot >> 6 & 63));
            if self.bits[1][slot >> 12] == 0 {
                self.bits[2][slot >> 18] &= !(1 << (slot >> 12 & 63));
            }
        }
        self.least = None;
        let n = self.heads.len();
        // Around the wheel: from the slot after this one to the end, then from the start.
        self.first = match self.in_use_from(slot + 1).or_else(|| self.in_use_from(0)) {
            Some(found) => self.first + ((found + n - slot) & (n - 1)) as u64,
            None => u64::MAX,
        };
    }

    fn in_use_from(&self, from: usize) -> Option<usize> {
        if from >= self.heads.len() {
            return None;
        }
        // The rest of the bitmap's word, then of the word one level up, then of the top one.
        let rest = self.bits[0][from >> 6] & (u64::MAX << (from & 63));
        if rest != 0 {
            return Some((from & !63) + rest.trailing_zeros() as usize);
        }
        let word = (from >> 6) + 1;
        let mut found = None;
        if word & 63 != 0 && self.bits[1][word >> 6] & (u64::MAX << (word & 63)) != 0 {
            let rest = self.bits[1][word >> 6] & (u64::MAX << (word & 63));
            found = Some((word & !63) + rest.trailing_zeros() as usize);
        } else {
            let top = word.div_ceil(64);
            for (n, bits) in self.bits[2].iter().enumerate().skip(top >> 6) {
                let bits = if n == top >> 6 { bits & (u64::MAX << (top & 63)) } else { *bits };
                if bits != 0 {
                    let word = (n << 6) + bits.trailing_zeros() as usize;
                    found = Some((word << 6) + self.bits[1][word].trailing_zeros() as usize);
                    break;
                }
            }
        }
        found.map(|word| (word << 6) + self.bits[0][word].trailing_zeros() as usize)
    }

    /// Removes one timer, wherever it is. Linear in the timers: only changes of the tree do this.
    pub fn unfile(&mut self, records: &mut Records, id: u32) {
        let all = self.drain_near(records);
        let found = all.iter().any(|(_, other)| *other == id);
        for (due, other) in all.into_iter().filter(|(_, other)| *other != id) {
            records.set_timer_next(other, NIL);
            self.near.push(Reverse(at(due, other)));
        }
        if found {
            return;
        }
        let likely = ((records.due(id) >> self.shift) as usize) & (self.heads.len() - 1);
        if self.unfile_from(records, likely, id) {
            return;
        }
        for slot in 0..self.heads.len() {
            if self.heads[slot] != NIL && self.unfile_from(records, slot, id) {
                return;
            }
        }
    }

    fn unfile_from(&mut self, records: &mut Records, slot: usize, id: u32) -> bool {
        let (mut before, mut here) = (NIL, self.heads[slot]);
        while here != NIL && here != id {
            (before, here) = (here, records.timer_next(here));
        }
        if here == NIL {
            return false;
        }
        let next = records.timer_next(id);
        if before == NIL {
            self.heads[slot] = next;
        } else {
            records.set_timer_next(before, next);
        }
        if self.heads[slot] == NIL {
            let first = (self.first as usize) & (self.heads.len() - 1);
            let keep = self.first;
            self.clear(slot);
            if slot != first {
                self.first = keep;
            }
        } else {
            self.least = None;
        }
        true
    }

    /// Removes all timers and returns them, in no particular order.
    pub fn drain(&mut self, records: &Records) -> Vec<u32> {
        let mut all: Vec<u32> = self.drain_near(records).into_iter().map(|(_, id)| id).collect();
        for head in &mut self.heads {
            let mut id = std::mem::replace(head, NIL);
            while id != NIL {
                all.push(id);
                id = records.timer_next(id);
            }
        }
        self.bits.iter_mut().for_each(|level| level.fill(0));
        (self.first, self.soonest, self.least) = (u64::MAX, u64::MAX, None);
        all
    }

    fn drain_near(&mut self, records: &Records) -> Vec<(u64, u32)> {
        let mut all = Vec::new();
        for Reverse(entry) in self.near.drain() {
            let (due, mut id) = (time(entry), entry as u32);
            while id != NIL {
                all.push((due, id));
                id = records.timer_next(id);
            }
        }
        all
    }

    /// How many slots it has and how wide they are, as for [`TimingWheel::new`].
    pub fn shape(&self) -> (u32, u32) {
        (self.heads.len().ilog2(), self.shift)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.heads.capacity() * 4
            + self.bits.iter().map(|level| level.capacity() * 8).sum::<usize>()
            + self.near.capacity() * size_of::<At>()
    }
}
