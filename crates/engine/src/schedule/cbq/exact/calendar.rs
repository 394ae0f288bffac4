//! A calendar of the children of one inner class, by start tag (start-time fair queueing, Goyal et
//! al. 1996).
//!
//! A level has 64 slots and a bitmap that finds the first one in use. A slot of level 0 is 1/16 to
//! 1/32 of the time that a packet of the fastest child takes, a slot of level n 64^n times as wide,
//! so there is a slot for a child of any weight. A child on a higher level moves to a lower one
//! when its time comes near. Order within a slot is first in, first out; tags themselves are exact,
//! so shares are exact and the order is wrong by one slot at most.
//!
//! An entry is not moved when its child changes. It may lie too early, because a guaranteed packet
//! has advanced the child's tag, or be void, because the child cannot take excess any more. When it
//! comes to the front it is filed again, or removed.

mod changes;
#[cfg(test)]
mod tests;

use super::state::{AVAIL, LINKED, NIL, Records};

const SLOTS: u64 = 64;

/// The calendar. What a packet needs of it besides the lists of its slots is one cache line.
#[repr(align(64))]
pub struct Calendar {
    /// Virtual time: the largest start tag that was served.
    v: u64,
    /// The largest start tag that was served by a guarantee.
    ahead: u64,
    /// The front slot, counted in slots of level 0.
    cur: u64,
    /// Where the first slot in use above level 0 begins, counted likewise; `u64::MAX` if none is in
    /// use. The front stays before it.
    above: u64,
    /// Slots of level 0 in use.
    bits: u64,
    /// The time of a byte of the fastest child so far, 2^-24 ns.
    fastest: u64,
    /// Children that can take excess now.
    pub avail: u32,
    /// Log2 of the width of a slot, ns.
    shift: u32,
    /// Made with the first child.
    slots: Option<Box<Slots>>,
}

const _: () = assert!(size_of::<Calendar>() == 64);

struct Slots {
    /// Level 0.
    near: [List; SLOTS as usize],
    /// The levels above it.
    far: Vec<Level>,
}

struct Level {
    bits: u64,
    lists: [List; SLOTS as usize],
}

/// The children in a slot. The head is [`NIL`] where there are none.
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: [List; SLOTS as usize] = [List { head: NIL, tail: NIL }; SLOTS as usize];

/// Adds a child at the tail of slot `at` of the `n`th level, which has these lists.
#[inline(always)]
fn append(bits: &mut u64, lists: &mut [List; SLOTS as usize], records: &mut Records, n: u16, at: u64, id: u32) {
    let slot = (at % SLOTS) as usize;
    let list = &mut lists[slot];
    if list.head == NIL {
        *bits |= 1 << slot;
        list.head = id;
    } else {
        records.set_calendar_next(list.tail, id);
    }
    list.tail = id;
    records.set_filed(id, n << 6 | slot as u16, NIL);
}

impl Calendar {
    pub fn new() -> Calendar {
        Calendar {
            v: 0,
            ahead: 0,
            cur: 0,
            above: u64::MAX,
            bits: 0,
            fastest: u64::MAX,
            avail: 0,
            shift: 0,
            slots: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.above == u64::MAX && self.bits == 0
    }

    /// A child of which a byte takes `nspb` (2^-24 ns) is about to be inserted. Slots become
    /// narrower if it is the fastest so far.
    #[inline]
    pub fn admit(&mut self, records: &mut Records, nspb: u64) {
        if nspb < self.fastest {
            self.narrow(records, nspb);
        }
    }

    /// The child at the front, whose start tag is `tag`, is served a packet beyond its guarantee:
    /// `time` is added to its tag. Returns the new one. Its start tag becomes the present, and at
    /// most `lag` of what it missed is made up for.
    #[inline(always)]
    pub fn serve_front(&mut self, tag: u64, time: u64, lag: u64) -> u64 {
        let tag = tag.max(self.v.saturating_sub(lag));
        self.v = self.v.max(tag);
        tag.saturating_add(time)
    }

    /// The same for a packet within guarantee, which is sent out of this order. The present stays
    /// (see [`present`](Calendar::present)), and a child that cannot take excess (not `avail`)
    /// starts there.
    #[inline(always)]
    pub fn serve_early(&mut self, tag: u64, time: u64, lag: u64, avail: bool) -> u64 {
        let missed = if avail { lag } else { 0 };
        let tag = tag.max(self.v.saturating_sub(missed));
        self.ahead = self.ahead.max(tag);
        tag.saturating_add(time)
    }

    /// Files the child at the front anew: its tag is `tag` from now on. It stays where it is while
    /// it belongs into the front slot. Does nothing if the child is not at the front.
    #[inline(always)]
    pub fn move_on(&mut self, records: &mut Records, id: u32, tag: u64) {
        let at = tag >> self.shift;
        let Some(slots) = self.slots.as_deref_mut() else { return };
        let list = &mut slots.near[(self.cur % SLOTS) as usize];
        if at <= self.cur || list.head != id {
            return;
        }
        list.head = records.calendar_next(id);
        if list.head == NIL {
            self.bits &= !(1 << (self.cur % SLOTS));
        }
        if at - self.cur < SLOTS {
            append(&mut self.bits, &mut slots.near, records, 0, at, id);
        } else {
            self.place_far(records, id, at);
        }
    }

    /// The child that is probably at the front, for prefetching.
    #[inline]
    pub fn likely_front(&self) -> u32 {
        let ahead = self.bits.rotate_right((self.cur % SLOTS) as u32).trailing_zeros();
        self.slots.as_ref().map_or(NIL, |slots| slots.near[((self.cur + u64::from(ahead)) % SLOTS) as usize].head)
    }

    /// A child that is the only one with packets sends one. It starts at the present.
    #[inline]
    pub fn serve_alone(&mut self, tag: u64, time: u64) -> u64 {
        self.v = self.v.max(self.ahead).max(tag);
        self.v.saturating_add(time)
    }

    /// The present, for a child that comes back.
    ///
    /// Virtual time follows guaranteed service too. Otherwise the tag of a class that is served by
    /// its guarantee alone would run ahead of the classes that come back, and it would lose its
    /// excess for as long (docs/reference/cbq.md 19.1). But virtual time does not go beyond the
    /// least tag of the children that wait for excess. Otherwise the burst of a slow class, which
    /// advances its tag by seconds, would cost every child that comes back its excess for seconds.
    #[inline]
    pub fn present(&mut self, records: &mut Records) -> u64 {
        if self.ahead > self.v {
            let least = match self.avail {
                0 => self.ahead,
                _ => self.least(records).map_or(self.ahead, |tag| tag.min(self.ahead)),
            };
            self.v = self.v.max(least);
        }
        self.v
    }

    /// The start tag of the child at the front.
    #[inline(never)]
    fn least(&mut self, records: &mut Records) -> Option<u64> {
        self.front(records).map(|id| records.tag(id))
    }

    /// Files a child by its tag. The caller has marked it as linked.
    #[inline]
    pub fn insert(&mut self, records: &mut Records, id: u32) {
        let tag = records.tag(id);
        if self.is_empty() {
            self.cur = tag >> self.shift;
        }
        self.place(records, id, tag);
    }

    #[inline(always)]
    fn place(&mut self, records: &mut Records, id: u32, tag: u64) {
        let at = tag >> self.shift;
        match self.slots.as_deref_mut() {
            Some(slots) if at.wrapping_sub(self.cur) < SLOTS => {
                append(&mut self.bits, &mut slots.near, records, 0, at, id);
            }
            _ => self.place_far(records, id, at),
        }
    }

    /// Files a child whose tag is before the front slot, or belongs above level 0.
    #[inline(never)]
    fn place_far(&mut self, records: &mut Records, id: u32, at: u64) {
        // A tag before the front slot is the least of all: it goes to the head of that slot.
        let behind = at < self.cur;
        let at = at.max(self.cur);
        let mut level = 0;
        while (at >> (6 * level)) - (self.cur >> (6 * level)) >= SLOTS {
            level += 1;
        }
        let slots = self.slots.get_or_insert_with(|| Box::new(Slots { near: EMPTY, far: Vec::new() }));
        if slots.far.len() < level as usize {
            slots.far.resize_with(level as usize, || Level { bits: 0, lists: EMPTY });
        }
        let at = at >> (6 * level);
        let (bits, lists) = match level {
            0 => (&mut self.bits, &mut slots.near),
            _ => {
                self.above = self.above.min(at << (6 * level));
                let far = &mut slots.far[level as usize - 1];
                (&mut far.bits, &mut far.lists)
            }
        };
        let list = &mut lists[(at % SLOTS) as usize];
        if behind && list.head != NIL {
            records.set_filed(id, (level as u16) << 6 | (at % SLOTS) as u16, list.head);
            list.head = id;
        } else {
            append(bits, lists, records, level as u16, at, id);
        }
    }

    /// The child with the least tag that can take a packet.
    #[inline(always)]
    pub fn front(&mut self, records: &mut Records) -> Option<u32> {
        loop {
            let slots = self.slots.as_deref_mut()?;
            let ahead = self.bits.rotate_right((self.cur % SLOTS) as u32);
            let near = self.cur + u64::from(ahead.trailing_zeros());
            if ahead == 0 || self.above <= near {
                if self.above == u64::MAX {
                    return None;
                }
                self.bring_down(records);
                continue;
            }
            self.cur = near;
            let list = &mut slots.near[(near % SLOTS) as usize];
            let id = list.head;
            let (tag, flags, next) = records.entry(id);
            let live = flags & AVAIL != 0;
            if live && tag >> self.shift <= near {
                return Some(id);
            }
            // The entry is void, or too early.
            list.head = next;
            if next == NIL {
                self.bits &= !(1 << (near % SLOTS));
            }
            if live {
                self.place(records, id, tag);
            } else {
                *records.flags(id) &= !LINKED;
            }
        }
    }

    /// Where the first slot in use above level 0 begins; `u64::MAX` if none is in use. It lies
    /// ahead of the front slot.
    fn first_above(&self) -> u64 {
        let mut first = u64::MAX;
        for (n, level) in self.slots.iter().flat_map(|slots| &slots.far).enumerate() {
            if level.bits != 0 {
                let width = 6 * (n as u32 + 1);
                let after = (self.cur >> width) + 1;
                let ahead = u64::from(level.bits.rotate_right((after % SLOTS) as u32).trailing_zeros());
                first = first.min((after + ahead) << width);
            }
        }
        first
    }

    /// Moves the front to where the first slot above level 0 begins, and files anew what lay in
    /// slots of higher levels that begin there.
    fn bring_down(&mut self, records: &mut Records) {
        let start = self.above;
        self.cur = start;
        let levels = self.slots.as_ref().map_or(0, |slots| slots.far.len());
        for n in (0..levels).rev() {
            let width = 6 * (n as u32 + 1);
            let slot = ((start >> width) % SLOTS) as usize;
            let Some(level) = self.slots.as_deref_mut().map(|slots| &mut slots.far[n]) else { return };
            if start & ((1 << width) - 1) != 0 || level.bits & (1 << slot) == 0 {
                continue;
            }
            level.bits &= !(1 << slot);
            let mut id = std::mem::replace(&mut level.lists[slot].head, NIL);
            while id != NIL {
                let (tag, flags, next) = records.entry(id);
                if flags & AVAIL == 0 {
                    *records.flags(id) &= !LINKED;
                } else {
                    self.place(records, id, tag);
                }
                id = next;
            }
        }
        self.above = self.first_above();
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| size_of::<Slots>() + slots.far.capacity() * size_of::<Level>())
    }
}
