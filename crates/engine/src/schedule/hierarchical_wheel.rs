//! Hierarchical timing wheels (Varghese and Lauck 1987, scheme 7), exact to the nanosecond.
//!
//! Time is divided into ticks of 256 ns. The lowest wheel has a slot for each of the next 256
//! ticks, the wheel above it a slot for each 256 ticks, and so on; bitmaps show which slots are in
//! use. An entry is filed at the head of its slot's list. When the time of a slot begins, its
//! entries are filed anew in the wheels below. So an entry is moved at most once per wheel (three
//! times if it is due in a second), however many entries there are. Only the entries of the tick
//! that has begun and is not over are in a heap, ordered by their exact times.
//!
//! Entries that are due at one time come out in no particular order, so the order in which such
//! timers take effect must not matter. An entry may be earlier than its owner's time, because that
//! has moved on: the owner files it again when it comes out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Log2 of the nanoseconds in a tick, and of the slots in a wheel.
const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
/// Seven wheels and the tick have 8 bits each: enough for every time of 64 bits.
const WHEELS: usize = 7;
/// The end of a list.
const NIL: u32 = u32::MAX;

/// The value of [`Link::previous`] for an entry that is not filed.
const OUT: u32 = u32::MAX;
/// The value of [`Link::previous`] for an entry in the heap.
const NEAR: u32 = u32::MAX - 1;
/// A [`Link::previous`] of this value or above marks the first entry of a list; the lower bits name
/// the list: wheel and slot.
const FIRST: u32 = 1 << 31;
/// The name of the list of entries from a tick that is over ([`HierarchicalWheel::over`]).
const OVER: u32 = FIRST | (WHEELS as u32) << BITS;

/// An owner's entry: its time, and its neighbours in the list of its slot.
#[derive(Clone, Copy)]
struct Link {
    due: u64,
    next: u32,
    previous: u32,
}

/// The slots of a wheel.
struct Slots {
    /// A bit for each slot that has entries.
    used: [u64; SLOTS / 64],
    /// A bit for each word of `used` that is not 0.
    words: u8,
    /// The first entry of each slot.
    first: [u32; SLOTS],
}

impl Slots {
    const EMPTY: Slots = Slots { used: [0; SLOTS / 64], words: 0, first: [NIL; SLOTS] };

    /// The first slot in use.
    #[inline]
    fn first_used(&self) -> Option<usize> {
        let word = self.words.trailing_zeros() as usize;
        Some(word * 64 + self.used.get(word)?.trailing_zeros() as usize)
    }
}

/// The wheels. An owner is a number, and has at most one entry.
pub struct HierarchicalWheel {
    /// No entry is due before this time.
    soonest: u64,
    /// The last tick that has begun. Entries that are due in it or before are in the heap.
    tick: u64,
    /// A bit for each wheel that has entries.
    used: u8,
    /// The first entry of a tick that is over; all in this list are due.
    over: u32,
    wheels: [Option<Box<Slots>>; WHEELS],
    /// The heap: time and owner. An item is void if the owner's entry has another time or place.
    near: BinaryHeap<Reverse<u128>>,
    links: Vec<Link>,
}

impl Default for HierarchicalWheel {
    fn default() -> HierarchicalWheel {
        HierarchicalWheel {
            soonest: u64::MAX,
            tick: 0,
            used: 0,
            over: NIL,
            wheels: Default::default(),
            near: BinaryHeap::new(),
            links: Vec::new(),
        }
    }
}

impl HierarchicalWheel {
    /// Makes room for an owner.
    pub fn reserve(&mut self, owner: u32) {
        if self.links.len() <= owner as usize {
            self.links.resize(owner as usize + 1, Link { due: 0, next: NIL, previous: OUT });
        }
    }

    /// Files an entry, so that it comes out at `due` or before. `due` is later than `now`. An
    /// earlier entry of the same owner stays.
    #[inline]
    pub fn file(&mut self, now: u64, owner: u32, due: u64) {
        if self.links[owner as usize].previous != OUT {
            if self.links[owner as usize].due <= due {
                return;
            }
            self.remove(owner);
        }
        // No entry is due before `now`, so the present tick may move up to `now`: the new entry
        // lies in a wheel as low as possible.
        if now < self.soonest {
            self.tick = self.tick.max(now >> BITS);
        }
        self.put(owner, due);
    }

    #[inline]
    fn put(&mut self, owner: u32, due: u64) {
        let tick = due >> BITS;
        if tick <= self.tick {
            return self.put_near(owner, due);
        }
        // In base 256: the wheel is the highest digit in which the entry's tick differs from the
        // present one, and the slot is the value of that digit.
        let wheel = (63 - (tick ^ self.tick).leading_zeros()) / BITS;
        let slot = (tick >> (wheel * BITS)) as usize % SLOTS;
        let start = tick >> (wheel * BITS) << (wheel * BITS) << BITS;
        self.soonest = self.soonest.min(start);
        self.used |= 1 << wheel;
        let slots = match &mut self.wheels[wheel as usize % WHEELS] {
            Some(slots) => slots,
            empty => empty.insert(Box::new(Slots::EMPTY)),
        };
        slots.used[slot / 64] |= 1 << (slot % 64);
        slots.words |= 1 << (slot / 64);
        let next = std::mem::replace(&mut slots.first[slot], owner);
        self.links[owner as usize] = Link { due, next, previous: FIRST | wheel << BITS | slot as u32 };
        if next != NIL {
            self.links[next as usize].previous = owner;
        }
    }

    fn put_near(&mut self, owner: u32, due: u64) {
        self.links[owner as usize] = Link { due, next: NIL, previous: NEAR };
        self.near.push(Reverse(u128::from(due) << 32 | u128::from(owner)));
        self.soonest = self.soonest.min(due);
    }

    /// Takes an owner's entry out, if it has one.
    pub fn remove(&mut self, owner: u32) {
        let Link { next, previous, .. } = self.links[owner as usize];
        self.links[owner as usize].previous = OUT;
        if previous >= NEAR {
            // If it is in the heap, its item there is void now.
            return;
        }
        if next != NIL {
            self.links[next as usize].previous = previous;
        }
        if previous < FIRST {
            self.links[previous as usize].next = next;
        } else if previous == OVER {
            self.over = next;
        } else {
            let (wheel, slot) = ((previous & !FIRST) as usize >> BITS, previous as usize % SLOTS);
            if let Some(slots) = &mut self.wheels[wheel % WHEELS] {
                slots.first[slot] = next;
                if next == NIL {
                    self.empty(wheel, slot);
                }
            }
        }
    }

    /// Clears the bits of a slot that has no entries any more.
    #[inline]
    fn empty(&mut self, wheel: usize, slot: usize) {
        if let Some(slots) = &mut self.wheels[wheel % WHEELS] {
            slots.used[slot / 64] &= !(1 << (slot % 64));
            if slots.used[slot / 64] == 0 {
                slots.words &= !(1 << (slot / 64));
                if slots.words == 0 {
                    self.used &= !(1 << wheel);
                }
            }
        }
    }

    /// The first slot in use: its wheel, its number, and its first tick.
    #[inline]
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        // Entries of a lower wheel are earlier than those of a higher one: they agree with the
        // present tick in all higher digits.
        let wheel = self.used.trailing_zeros() as usize;
        let slot = self.wheels.get(wheel)?.as_ref()?.first_used()?;
        let shift = wheel as u32 * BITS;
        let above = if wheel + 1 < WHEELS { self.tick >> (shift + BITS) << (shift + BITS) } else { 0 };
        Some((wheel, slot, above | (slot as u64) << shift))
    }

    /// Empties a slot, and returns the first entry of its list.
    #[inline]
    fn take_slot(&mut self, wheel: usize, slot: usize) -> u32 {
        let first =
            self.wheels[wheel % WHEELS].as_mut().map_or(NIL, |slots| std::mem::replace(&mut slots.first[slot], NIL));
        self.empty(wheel, slot);
        first
    }

    /// Files the entries of a slot whose time has begun anew: in the wheels below, or in the heap
    /// if the slot is a single tick.
    fn open(&mut self, wheel: usize, slot: usize, start: u64) {
        self.tick = start;
        let mut owner = self.take_slot(wheel, slot);
        while owner != NIL {
            let Link { due, next, .. } = self.links[owner as usize];
            self.put(owner, due);
            owner = next;
        }
    }

    /// The first item of the heap that is not void: its time and owner.
    #[inline]
    fn first_near(&mut self) -> Option<(u64, u32)> {
        while let Some(&Reverse(first)) = self.near.peek() {
            let (due, owner) = ((first >> 32) as u64, first as u32);
            let link = self.links[owner as usize];
            if link.previous == NEAR && link.due == due {
                return Some((due, owner));
            }
            self.near.pop();
        }
        None
    }

    /// False if no entry is due. If true, one may be.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.soonest
    }

    /// Takes an entry out that is due, and returns its owner. To be called until it returns `None`.
    pub fn pop(&mut self, now: u64) -> Option<u32> {
        if now < self.soonest {
            return None;
        }
        loop {
            let owner = self.over;
            if owner != NIL {
                let Link { due, next, .. } = self.links[owner as usize];
                self.over = next;
                if next != NIL {
                    self.links[next as usize].previous = OVER;
                }
                self.links[owner as usize].previous = OUT;
                if due <= now {
                    return Some(owner);
                }
                self.put(owner, due);
                continue;
            }
            let near = if self.near.is_empty() { None } else { self.first_near() };
            if let Some((_, owner)) = near.filter(|(due, _)| *due <= now) {
                self.near.pop();
                self.links[owner as usize].previous = OUT;
                return Some(owner);
            }
            let first = self.first_slot();
            match first {
                Some((wheel, slot, start)) if start <= now >> BITS => {
                    if wheel == 0 && start < now >> BITS {
                        // The tick is over, so all its entries are due.
                        self.tick = start;
                        self.over = self.take_slot(0, slot);
                        if let Some(link) = self.links.get_mut(self.over as usize) {
                            link.previous = OVER;
                        }
                    } else {
                        self.open(wheel, slot, start);
                    }
                }
                _ => {
                    let near = near.map_or(u64::MAX, |(due, _)| due);
                    self.soonest = first.map_or(near, |(_, _, start)| near.min(start << BITS));
                    return None;
                }
            }
        }
    }

    /// The first entry of all: its time and owner.
    pub fn first(&mut self) -> Option<(u64, u32)> {
        while self.over != NIL {
            // Rare: `pop` was not called until it returned `None`.
            let owner = self.over;
            let due = self.links[owner as usize].due;
            self.remove(owner);
            self.put_near(owner, due);
        }
        loop {
            let near = self.first_near();
            match self.first_slot() {
                Some((wheel, slot, start)) if near.is_none_or(|(due, _)| start << BITS <= due) => {
                    self.open(wheel, slot, start)
                }
                _ => return near,
            }
        }
    }

    /// Two owners whose entries are probably due soon, the sooner one first; [`NIL`] where finding
    /// them would take a search. For prefetching.
    #[inline]
    pub fn likely_next(&self) -> [u32; 2] {
        let Some(slots) = self.wheels[0].as_ref().filter(|_| self.used & 1 != 0) else { return [NIL; 2] };
        let Some(slot) = slots.first_used() else { return [NIL; 2] };
        let first = slots.first[slot];
        match self.links.get(first as usize) {
            Some(Link { next: NIL, .. }) => {
                let rest = slots.used[slot / 64] & (slots.used[slot / 64] - 1);
                [first, if rest == 0 { NIL } else { slots.first[slot / 64 * 64 + rest.trailing_zeros() as usize] }]
            }
            Some(link) => [first, link.next],
            None => [NIL; 2],
        }
    }

    /// Takes all entries out.
    pub fn clear(&mut self) {
        for link in &mut self.links {
            link.previous = OUT;
        }
        for slots in self.wheels.iter_mut().flatten() {
            **slots = Slots::EMPTY;
        }
        self.near.clear();
        (self.soonest, self.used, self.over) = (u64::MAX, 0, NIL);
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
            + self.near.capacity() * size_of::<u128>()
            + self.wheels.iter().flatten().count() * size_of::<Slots>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The wheels and an ordered set get the same calls: times near and far, entries filed, moved
    /// and removed, and `pop` at random times.
    #[test]
    fn as_an_ordered_set() {
        let mut state = 7_u64;
        let mut random = |n: u64| {
            // Knuth's MMIX generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for start in [0, 1 << 60] {
            let (mut wheel, mut set, mut due) = (HierarchicalWheel::default(), BTreeSet::new(), [None; 50]);
            wheel.reserve(49);
            let mut now = start;
            for _ in 0..30_000 {
                let owner = random(50) as u32;
                match random(8) {
                    0..=3 => {
                        let far = [1, 300, 70_000, 20_000_000, 5_000_000_000, 1 << 45, 1 << 59][random(7) as usize];
                        let time = now + 1 + random(far.min(1 << 31)) * (far >> 31).max(1);
                        wheel.file(now, owner, time);
                        let old: Option<u64> = due[owner as usize];
                        if old.is_none_or(|old| time < old) {
                            old.map(|old| set.remove(&(old, owner)));
                            set.insert((time, owner));
                            due[owner as usize] = Some(time);
                        }
                    }
                    4 => {
                        wheel.remove(owner);
                        due[owner as usize].take().map(|old| set.remove(&(old, owner)));
                    }
                    5 => assert_eq!(wheel.first(), set.first().copied()),
                    6 => {
                        let most = [10, 1000, 100_000, 100_000_000][random(4) as usize];
                        now += random(most);
                    }
                    _ => {
                        if let Some((first, _)) = set.first() {
                            now = now.max(first + random(3).saturating_sub(1));
                        }
                    }
                }
                if random(3) == 0 {
                    let mut popped = BTreeSet::new();
                    while let Some(owner) = wheel.pop(now) {
                        let time = due[owner as usize].take().unwrap();
                        assert!(time <= now && set.remove(&(time, owner)) && popped.insert((owner, time)));
                        if random(9) == 0 {
                            // Other entries change in the meantime, among them entries that are
                            // due.
                            let other = random(50) as u32;
                            wheel.remove(other);
                            due[other as usize].take().map(|old| set.remove(&(old, other)));
                        }
                        if random(3) == 0 {
                            let most = 1 << random(31);
                            let (other, time) = (random(50) as u32, now + 1 + random(most));
                            wheel.file(now, other, time);
                            let old: Option<u64> = due[other as usize];
                            if old.is_none_or(|old| time < old) {
                                old.map(|old| set.remove(&(old, other)));
                                set.insert((time, other));
                                due[other as usize] = Some(time);
                            }
                        }
                    }
                    assert!(set.first().is_none_or(|(time, _)| *time > now));
                }
            }
            assert!(wheel.memory() > 0 && !set.is_empty());
            wheel.clear();
            assert_eq!((wheel.first(), wheel.pop(u64::MAX)), (None, None));
        }
    }
}
