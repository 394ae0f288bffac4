//! Hierarchical timing wheels (Varghese and Lauck 1987, scheme 7), exact to the nanosecond.
//!
//! The lowest wheel has a slot for each of the next 256 nanoseconds, the wheel above it a slot for
//! each 256 ns, the next one for each 65,536 ns, and so on; bitmaps show which slots are in use. An
//! entry is filed at the head of its slot's list. When the time of a slot has passed, all its
//! entries are due. If its time has only begun, those entries that are not due yet are filed anew
//! in the wheels below. So an entry is moved at most once per wheel (three times if it is due in a
//! second), however many entries there are.
//!
//! Entries that are due at one time come out in no particular order, so the order in which such
//! timers take effect must not matter. An entry may be earlier than its owner's time, because that
//! has moved on: the owner files it again when it comes out.

mod slots;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use slots::{BITS, NIL, SLOTS, Slots};

/// Eight wheels have 8 bits each: enough for every time of 64 bits.
const WHEELS: usize = 8;
/// The value of [`Link::previous`] for an entry that is not filed.
const OUT: u32 = u32::MAX;
/// The value of [`Link::previous`] for an entry in the heap.
const EARLY: u32 = u32::MAX - 1;
/// A [`Link::previous`] of this value or above marks the first entry of a list; the lower bits name
/// the list: wheel and slot.
const FIRST: u32 = 1 << 31;
/// The name of the list of entries that are due ([`HierarchicalWheel::over`]).
const OVER: u32 = FIRST | (WHEELS as u32) << BITS;

/// An owner's entry: its time, and its neighbours in the list of its slot.
#[derive(Clone, Copy)]
struct Link {
    due: u64,
    next: u32,
    previous: u32,
}

/// A slot in use: its wheel, its number, and when it begins.
#[derive(Clone, Copy)]
struct Slot {
    wheel: u32,
    slot: u8,
    start: u64,
}

/// The wheels. An owner is a number, and has at most one entry.
pub struct HierarchicalWheel {
    /// No entry is due before this time.
    soonest: u64,
    /// The time from which the wheels count: the beginning of the last slot that was emptied, or
    /// later. Entries in the wheels are due after it.
    base: u64,
    /// A bit for each wheel that has entries.
    used: u32,
    /// The first of the entries that are due and not yet handed out.
    over: u32,
    wheels: [Option<Box<Slots>>; WHEELS],
    /// Entries that were filed for a time up to `base`, which is later than the present where
    /// [`HierarchicalWheel::first`] has looked ahead: time and owner. An item is void if the
    /// owner's entry has another time or place.
    early: BinaryHeap<Reverse<u128>>,
    links: Vec<Link>,
}

impl Default for HierarchicalWheel {
    fn default() -> HierarchicalWheel {
        HierarchicalWheel {
            soonest: u64::MAX,
            base: 0,
            used: 0,
            over: NIL,
            wheels: Default::default(),
            early: BinaryHeap::new(),
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
        // No entry is due before `now`, so the wheels may count from `now` on: the new entry lies
        // in a wheel as low as possible.
        if now < self.soonest {
            self.base = self.base.max(now);
        }
        self.put(owner, due);
    }

    fn put(&mut self, owner: u32, due: u64) {
        if due <= self.base {
            return self.put_early(owner, due);
        }
        // In base 256: the wheel is the highest digit in which the time differs from the base, and
        // the slot is the value of that digit.
        let wheel = (due ^ self.base | 1).ilog2() / BITS;
        let start = due >> (wheel * BITS);
        let slot = start as u8;
        let Some(slots) = &mut self.wheels[wheel as usize % WHEELS] else { return self.put_first(owner, due, wheel) };
        let next = slots.push(slot, owner);
        self.soonest = self.soonest.min(start << (wheel * BITS));
        self.used |= 1 << wheel;
        self.links[owner as usize] = Link { due, next, previous: FIRST | wheel << BITS | u32::from(slot) };
        if next != NIL {
            self.links[next as usize].previous = owner;
        }
    }

    /// [`put`](HierarchicalWheel::put) for a wheel that no entry has needed so far.
    #[cold]
    fn put_first(&mut self, owner: u32, due: u64, wheel: u32) {
        self.wheels[wheel as usize % WHEELS] = Some(Box::new(Slots::EMPTY));
        self.put(owner, due);
    }

    #[cold]
    fn put_early(&mut self, owner: u32, due: u64) {
        self.links[owner as usize] = Link { due, next: NIL, previous: EARLY };
        self.early.push(Reverse(u128::from(due) << 32 | u128::from(owner)));
        self.soonest = self.soonest.min(due);
    }

    /// Takes an owner's entry out, if it has one.
    pub fn remove(&mut self, owner: u32) {
        let Link { next, previous, .. } = self.links[owner as usize];
        self.links[owner as usize].previous = OUT;
        if previous >= EARLY {
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
            let (wheel, slot) = ((previous & !FIRST) >> BITS, previous as u8);
            if let Some(slots) = &mut self.wheels[wheel as usize % WHEELS] {
                slots.first[usize::from(slot)] = next;
                if next == NIL && slots.empty(slot) {
                    self.used &= !(1 << wheel);
                }
            }
        }
    }

    /// The first slot in use.
    #[inline]
    fn first_slot(&self) -> Option<Slot> {
        if self.used == 0 {
            return None;
        }
        // Entries of a lower wheel are earlier than those of a higher one: they agree with the base
        // in all higher digits.
        let wheel = self.used.trailing_zeros();
        let slot = self.wheels[wheel as usize % WHEELS].as_ref()?.first_used();
        // The base has a lower digit here, and digits below it that the slot's beginning has not.
        let above = self.base >> (wheel * BITS) & !(SLOTS as u64 - 1);
        Some(Slot { wheel, slot, start: (above | u64::from(slot)) << (wheel * BITS) })
    }

    /// Empties a slot, and returns the first entry of its list. The wheels count from its beginning
    /// on.
    #[inline]
    fn take_slot(&mut self, Slot { wheel, slot, start }: Slot) -> u32 {
        self.base = start;
        let Some(slots) = &mut self.wheels[wheel as usize % WHEELS] else { return NIL };
        if slots.empty(slot) {
            self.used &= !(1 << wheel);
        }
        std::mem::replace(&mut slots.first[usize::from(slot)], NIL)
    }

    /// Files the entries of a slot anew in the wheels below.
    fn open(&mut self, slot: Slot) {
        let mut owner = self.take_slot(slot);
        while owner != NIL {
            let Link { due, next, .. } = self.links[owner as usize];
            self.put(owner, due);
            owner = next;
        }
    }

    /// Moves those of these entries, a slot's, to the due ones that are due, and files the others
    /// anew.
    fn open_due(&mut self, mut owner: u32, now: u64) {
        while owner != NIL {
            let Link { due, next, .. } = self.links[owner as usize];
            if due > now {
                self.put(owner, due);
            } else {
                let first = std::mem::replace(&mut self.over, owner);
                self.links[owner as usize] = Link { due, next: first, previous: OVER };
                if first != NIL {
                    self.links[first as usize].previous = owner;
                }
            }
            owner = next;
        }
    }

    /// The first item of the heap that is not void: its time and owner.
    #[inline]
    fn first_early(&mut self) -> Option<(u64, u32)> {
        while let Some(&Reverse(first)) = self.early.peek() {
            let (due, owner) = ((first >> 32) as u64, first as u32);
            let link = self.links[owner as usize];
            if link.previous == EARLY && link.due == due {
                return Some((due, owner));
            }
            self.early.pop();
        }
        None
    }

    /// False if no entry is due. If true, one may be.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.soonest
    }

    /// Takes an entry out that is due, and returns its owner. To be called until it returns `None`.
    #[inline(always)]
    pub fn pop(&mut self, now: u64) -> Option<u32> {
        loop {
            if self.over != NIL {
                return Some(self.take(self.over));
            }
            let mut early = u64::MAX;
            if !self.early.is_empty()
                && let Some((due, owner)) = self.first_early()
            {
                if due <= now {
                    self.early.pop();
                    self.links[owner as usize].previous = OUT;
                    return Some(owner);
                }
                early = due;
            }
            let Some(slot) = self.first_slot().filter(|slot| slot.start <= now) else {
                self.soonest = self.first_slot().map_or(early, |slot| early.min(slot.start));
                return None;
            };
            let first = self.take_slot(slot);
            if (now - slot.start) >> (slot.wheel * BITS) > 0 || slot.wheel == 0 {
                // Its time is over, so all its entries are due.
                return Some(self.take(first));
            }
            self.open_due(first, now);
        }
    }

    /// Takes the first one out of a list of entries that are due; the others stay due.
    #[inline]
    fn take(&mut self, owner: u32) -> u32 {
        let link = &mut self.links[owner as usize];
        link.previous = OUT;
        self.over = link.next;
        if self.over != NIL {
            self.links[self.over as usize].previous = OVER;
        }
        owner
    }

    /// The first entry of all: its time and owner.
    pub fn first(&mut self) -> Option<(u64, u32)> {
        while self.over != NIL {
            // Rare: `pop` was not called until it returned `None`.
            let owner = self.over;
            let due = self.links[owner as usize].due;
            self.remove(owner);
            self.put_early(owner, due);
        }
        loop {
            let early = self.first_early();
            let Some(slot) = self.first_slot().filter(|slot| early.is_none_or(|(due, _)| slot.start <= due)) else {
                return early;
            };
            let owner = self.first_of(slot);
            let link = self.links[owner as usize];
            if slot.wheel == 0 || link.next == NIL {
                // All entries of its slot are due at this time.
                return early.filter(|(due, _)| *due < link.due).or(Some((link.due, owner)));
            }
            self.open(slot);
        }
    }

    /// The first entry of a slot.
    fn first_of(&self, slot: Slot) -> u32 {
        self.wheels[slot.wheel as usize % WHEELS].as_ref().map_or(NIL, |slots| slots.first[usize::from(slot.slot)])
    }

    /// An owner whose entry is probably due first; [`NIL`] where finding it would take a search.
    /// For prefetching.
    #[inline]
    pub fn likely_first(&self) -> u32 {
        match &self.wheels[self.used.trailing_zeros() as usize % WHEELS] {
            Some(slots) if self.used & 3 != 0 => slots.first[usize::from(slots.first_used())],
            _ => NIL,
        }
    }

    /// Two owners whose entries are probably due soon, the sooner one first; [`NIL`] where finding
    /// them would take a search. For prefetching.
    #[inline]
    pub fn likely_next(&self) -> [u32; 2] {
        let wheel = self.used.trailing_zeros() as usize;
        let Some(Some(slots)) = self.wheels.get(wheel).filter(|_| wheel < 2) else { return [NIL; 2] };
        let slot = slots.first_used();
        let first = slots.first[usize::from(slot)];
        match self.links.get(first as usize) {
            Some(Link { next: NIL, .. }) => {
                let word = slots.used[usize::from(slot / 64)];
                let rest = word & (word - 1);
                let second = slot & !63 | rest.trailing_zeros() as u8 & 63;
                [first, if rest == 0 { NIL } else { slots.first[usize::from(second)] }]
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
        self.early.clear();
        (self.soonest, self.used, self.over) = (u64::MAX, 0, NIL);
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
            + self.early.capacity() * size_of::<u128>()
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
                    5 => {
                        // Of entries of one time any may be the first.
                        let first = wheel.first();
                        assert_eq!(first.map(|(time, _)| time), set.first().map(|(time, _)| *time));
                        assert!(first.is_none_or(|entry| set.contains(&entry)));
                    }
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
