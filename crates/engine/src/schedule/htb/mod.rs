//! HTB, the hierarchical token bucket (Martin Devera 2001-2002; Linux's net/sched/sch_htb.c): link
//! sharing in the kernel's order.
//!
//! Every class has a token bucket for its `rate` and one for its `ceil`. A class is *green* while
//! neither bucket is in debt, *yellow* while only the bucket of its rate is, and *red* while the
//! bucket of its ceil is. A green leaf sends on its own tokens. A yellow leaf borrows from the
//! nearest class above it that is green, if no class on the way is red. Green leaves go first
//! (level 0), then leaves that borrow from the lowest inner classes, then those that borrow from
//! higher ones; within a level the lowest `prio` goes first; classes of equal `prio` take turns of
//! `quantum` bytes, by deficit round robin. A packet is charged to the ceil buckets of its class
//! and of all classes above it, and to the rate buckets of the lender and of all classes above the
//! lender.
//!
//! The order is the kernel's: levels, rounds in the order of classes, and the turns of the classes
//! below one inner class one after the other. The code is not the kernel's: a bucket is held as the
//! time at which it is out of debt (`class`), a round is a bitmap (`round_robin`), and only classes
//! that want to send have a timer for their change of mode (`hierarchical_wheel`). No step looks at
//! all classes. docs/schedulers/htb.md lists what differs from the kernel.
//!
//! Packets of the link itself, or of the class that holds this scheduler, are *direct*, as packets
//! are in tc for which neither a filter nor the default names a class: they go first, unshaped, and
//! are counted. Packets of an inner class, which the kernel does not have, borrow from that class
//! beside its children.

mod advice;
mod check;
mod class;
mod modes;
mod promise;
mod round_robin;
mod tree;
pub mod words;

use super::hierarchical_wheel::HierarchicalWheel;
use super::{Entry, ROOT_SLOT, Scheduler, Slot};
use crate::prefetch::prefetch;
use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::{Nanos, Rate};
use class::{BACKLOGGED, Class, EXISTS, FED, LEVELS, Mode, NIL};
use round_robin::RoundRobin;
use words::{Defaults, Words};

/// The registry's entry.
pub const ENTRY: Entry = words::ENTRY;

/// The caller's time 0 on the clocks here, so that buckets can be full at it.
const EPOCH: Nanos = 1 << 60;

/// Priorities.
const PRIOS: usize = 8;

/// The scheduler.
struct Htb {
    r2q: u64,
    defaults: Defaults,
    link_rate: Rate,
    /// The present, from [`EPOCH`] on.
    now: Nanos,
    classes: Vec<Class>,
    /// The classes' words, by slot.
    words: Vec<Words>,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    /// Green classes that want to send, by level.
    rows: [Row; LEVELS],
    /// Levels whose rows are not empty.
    levels: u8,
    timers: HierarchicalWheel,
    /// Classes that have packets of their own, the root aside.
    waiting: u32,
    /// A class that got packets when no other class had any; else [`NIL`]. It is not put in its
    /// place until another class gets packets or it has to wait.
    lone: Slot,
    /// The answer of `choose`, until something changes.
    chosen: Option<Chosen>,
    direct_packets: u64,
}

/// What only an inner class has.
#[derive(Default)]
struct Node {
    /// Slots of its children by their places; place 0 is its own packets.
    members: Vec<Slot>,
    free: Vec<u32>,
    children: u32,
    /// Its yellow children that want to send, by priority: the kernel's feeds. Made when needed.
    feeds: [Option<Box<RoundRobin>>; PRIOS],
}

/// Green classes of a level, by priority.
#[derive(Default)]
struct Row {
    rings: [RoundRobin; PRIOS],
    /// Priorities in use.
    prios: u8,
}

#[derive(Clone, Copy)]
struct Chosen {
    at: Nanos,
    slot: Slot,
    level: u8,
    prio: u8,
}

impl Htb {
    // ------------------------------------------------------------------ classes that want to send

    /// Puts a class that wants to send at these priorities into the row or the feed that its mode
    /// asks for; and the classes above it, as far as these priorities are new to them.
    #[inline]
    fn activate_prios(&mut self, mut slot: Slot, mut prios: u8) {
        loop {
            let class = &mut self.classes[slot as usize];
            match class.mode {
                Mode::Green => {
                    let level = usize::from(class.level) % LEVELS;
                    for prio in bits(prios) {
                        self.rows[level].rings[prio].insert(slot);
                    }
                    self.rows[level].prios |= prios;
                    self.levels |= 1 << level;
                    return;
                }
                Mode::Yellow => {
                    if class.has(FED) {
                        return;
                    }
                    if class.node == NIL {
                        class.flags |= FED;
                    }
                    let (parent, at) = (class.parent, class.at);
                    prios = self.feed(parent, at, prios);
                    if prios == 0 {
                        return;
                    }
                    slot = parent;
                }
                Mode::Red => return,
            }
        }
    }

    /// Puts a member into the feeds of an inner class. Returns the priorities that are new to it.
    #[inline]
    fn feed(&mut self, slot: Slot, at: u32, prios: u8) -> u8 {
        let class = &mut self.classes[slot as usize];
        let node = &mut self.nodes[class.node as usize];
        for prio in bits(prios) {
            node.feeds[prio].get_or_insert_default().insert(at);
        }
        let fresh = prios & !class.wants;
        if class.wants == 0 {
            class.mode = class.mode_at(self.now);
            class.wants = fresh;
            self.file(slot);
        } else {
            class.wants |= fresh;
        }
        fresh
    }

    /// Takes a class out of the row and the feed that it stands in; and the classes above it, as
    /// far as nothing below them wants to send at these priorities any more.
    #[inline]
    fn deactivate_prios(&mut self, mut slot: Slot, mut prios: u8) {
        loop {
            let class = &mut self.classes[slot as usize];
            let (fed, mode) = (class.has(FED), class.mode);
            class.flags &= !FED;
            let (parent, at) = (class.parent, class.at);
            if mode == Mode::Green {
                self.remove_from_row(slot, prios);
            }
            if !fed && mode != Mode::Yellow {
                return;
            }
            prios = self.unfeed(parent, at, prios);
            if prios == 0 {
                return;
            }
            slot = parent;
        }
    }

    /// Takes a class out of the row of its level.
    #[inline]
    fn remove_from_row(&mut self, slot: Slot, prios: u8) {
        let level = usize::from(self.classes[slot as usize].level) % LEVELS;
        let row = &mut self.rows[level];
        for prio in bits(prios) {
            row.rings[prio].remove(slot);
            if row.rings[prio].is_empty() {
                row.prios &= !(1 << prio);
            }
        }
        if row.prios == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Takes a member out of the feeds of an inner class. Returns the priorities at which no member
    /// is left. At these the inner class still stands in its own row or feed.
    #[inline]
    fn unfeed(&mut self, slot: Slot, at: u32, prios: u8) -> u8 {
        let class = &mut self.classes[slot as usize];
        let node = &mut self.nodes[class.node as usize];
        let mut gone = 0;
        for prio in bits(prios) {
            if let Some(feed) = &mut node.feeds[prio] {
                feed.remove(at);
                if feed.is_empty() {
                    gone |= 1 << prio;
                }
            }
        }
        class.wants &= !gone;
        gone
    }

    /// The class has packets of its own now.
    #[inline]
    fn activate(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        if class.has(BACKLOGGED) {
            return;
        }
        class.flags |= BACKLOGGED;
        if slot == ROOT_SLOT {
            return;
        }
        self.waiting += 1;
        if self.waiting == 1 {
            self.lone = slot;
            return;
        }
        self.place_lone();
        self.place_backlogged(slot);
    }

    /// Puts the class that was the only one with packets in its place.
    fn place_lone(&mut self) {
        let slot = std::mem::replace(&mut self.lone, NIL);
        if slot != NIL {
            self.place_backlogged(slot);
            let class = &mut self.classes[slot as usize];
            if class.node == NIL {
                class.overlimits = class.overlimits.wrapping_add(u32::from(class.mode == Mode::Red));
            }
        }
    }

    /// Puts a class that has packets of its own in its place.
    fn place_backlogged(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        let prios = 1 << class.prio;
        if class.node != NIL {
            let fresh = self.feed(slot, 0, prios);
            if fresh != 0 {
                self.activate_prios(slot, fresh);
            }
            return;
        }
        class.wants = prios;
        class.mode = class.mode_at(self.now);
        self.activate_prios(slot, prios);
        self.file(slot);
    }

    /// The class has no packets of its own any more.
    #[inline]
    fn deactivate(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        if !class.has(BACKLOGGED) {
            return;
        }
        class.flags &= !BACKLOGGED;
        if slot == ROOT_SLOT {
            return;
        }
        self.waiting -= 1;
        if slot == self.lone {
            self.lone = NIL;
            return;
        }
        if class.node != NIL {
            let prios = 1 << class.prio;
            let gone = self.unfeed(slot, 0, prios);
            if gone != 0 {
                self.deactivate_prios(slot, gone);
            }
            return;
        }
        let prios = std::mem::take(&mut class.wants);
        self.deactivate_prios(slot, prios);
    }

    #[inline]
    fn update_now(&mut self, now: Nanos) {
        self.chosen = None;
        self.advance(now);
    }

    // ------------------------------------------------------------------ which class goes next

    /// The level of the class that lends to the only class with packets: that class itself, or the
    /// nearest green class above it with no red class on the way.
    #[inline]
    fn lender_of(&self, slot: Slot) -> Option<u8> {
        let mut at = slot;
        while at != NIL {
            let class = &self.classes[at as usize];
            match class.mode_at(self.now) {
                Mode::Green => return Some(class.level),
                Mode::Yellow => at = class.parent,
                Mode::Red => return None,
            }
        }
        None
    }

    #[inline(always)]
    fn choose_now(&mut self) -> Option<(Slot, u8, u8)> {
        if self.classes[ROOT_SLOT as usize].has(BACKLOGGED) {
            return Some((ROOT_SLOT, 0, 0));
        }
        if self.lone != NIL {
            if let Some(level) = self.lender_of(self.lone) {
                return Some((self.lone, level, self.classes[self.lone as usize].prio));
            }
            self.place_lone();
        }
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let row = &self.rows[level % LEVELS];
        let prio = row.prios.trailing_zeros() as usize % PRIOS;
        let mut slot = row.rings[prio].current()?;
        // Down from the lender to a leaf: in each feed the member whose turn it is.
        loop {
            let class = &self.classes[slot as usize];
            if class.node == NIL {
                return Some((slot, level as u8, prio as u8));
            }
            let node = &self.nodes[class.node as usize];
            match node.feeds[prio].as_ref()?.current()? {
                0 => return Some((slot, level as u8, prio as u8)),
                at => slot = node.members[at as usize],
            }
        }
    }

    /// The kernel's deficit round robin: a turn ends with the packet that takes the deficit
    /// below 0. If it was the last turn in the round of an inner class, the turn of that class
    /// among its own siblings ends, too.
    #[inline]
    fn charge_deficit(&mut self, slot: Slot, level: usize, prio: usize, len: u32) {
        let class = &mut self.classes[slot as usize];
        let deficit = class.deficit[level].saturating_sub_unsigned(len);
        class.deficit[level] = deficit;
        if deficit >= 0 {
            return;
        }
        class.deficit[level] = deficit.saturating_add_unsigned(class.quantum);
        // Packets of an inner class stand in the feed of that class, at place 0; a leaf stands in
        // the feed of its parent.
        let (mut at, mut above) = if class.node == NIL { (class.at, class.parent) } else { (0, slot) };
        let mut lender = slot;
        if level > 0 {
            loop {
                lender = above;
                let class = &self.classes[above as usize];
                // The only class with packets stands in no feed.
                if let Some(feed) = &mut self.nodes[class.node as usize].feeds[prio] {
                    if feed.next(at + 1).is_some() {
                        feed.hand = at + 1;
                        return;
                    }
                    feed.hand = 0;
                }
                if usize::from(class.level) >= level {
                    break;
                }
                (at, above) = (class.at, class.parent);
            }
        }
        self.rows[level].rings[prio].hand = lender + 1;
    }

    /// Takes the tokens of a packet from its class and from all classes above it. Returns whether
    /// another class than its own lent them.
    #[inline]
    fn charge(&mut self, leaf: Slot, level: usize, len: u32) -> bool {
        let now = self.now;
        let mut slot = leaf;
        // Classes below the lender borrow.
        loop {
            let class = &mut self.classes[slot as usize];
            if usize::from(class.level) >= level {
                break;
            }
            class.borrows = class.borrows.wrapping_add(1);
            class.charge_ceil(now, class.charged(len));
            slot = self.charged(slot);
        }
        let lender = slot;
        let class = &mut self.classes[lender as usize];
        class.lends = class.lends.wrapping_add(1);
        while slot != ROOT_SLOT {
            let class = &mut self.classes[slot as usize];
            let bytes = class.charged(len);
            class.charge_ceil(now, bytes);
            class.charge_rate(now, bytes);
            slot = self.charged(slot);
        }
        // The root's ceil is its rate.
        let root = &mut self.classes[ROOT_SLOT as usize];
        root.charge_ceil(now, root.charged(len));
        self.charged(ROOT_SLOT);
        lender != leaf
    }
}

impl Scheduler for Htb {
    fn add(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        let words = Words::read(settings, &self.defaults)?;
        self.check_depth(parent, 0)?;
        self.update_now(now);
        self.add_class(slot, parent, words);
        Ok(())
    }

    fn change(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot == ROOT_SLOT {
            self.update_now(now);
            self.set_r2q(words::r2q(settings));
            return Ok(());
        }
        let words = Words::read(settings, &self.defaults)?;
        if self.classes[slot as usize].parent != parent {
            self.check_depth(parent, self.height(slot))?;
        }
        self.update_now(now);
        self.change_class(slot, parent, words);
        Ok(())
    }

    fn remove(&mut self, now: Nanos, slot: Slot) {
        self.update_now(now);
        self.remove_class(slot);
    }

    fn set_rate(&mut self, now: Nanos, _: Rate, link_rate: Rate) {
        self.update_now(now);
        self.set_link_rate(link_rate);
    }

    #[inline]
    fn queued(&mut self, now: Nanos, slot: Slot, _: u32, first: bool) {
        if first {
            self.update_now(now);
            self.activate(slot);
        }
    }

    fn head_lost(&mut self, now: Nanos, slot: Slot, next: Option<u32>) {
        if next.is_none() {
            self.update_now(now);
            self.deactivate(slot);
        }
    }

    #[inline]
    fn choose(&mut self, now: Nanos) -> Option<Slot> {
        if let Some(chosen) = self.chosen.filter(|chosen| chosen.at == now) {
            return Some(chosen.slot);
        }
        self.update_now(now);
        let (slot, level, prio) = self.choose_now()?;
        self.chosen = Some(Chosen { at: now, slot, level, prio });
        Some(slot)
    }

    #[inline]
    fn sent(&mut self, now: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        // Read field by field: a copy of what was just written in small pieces would hold the
        // processor up.
        let chosen = match &self.chosen {
            Some(chosen) if chosen.slot == slot => Some((chosen.at, chosen.level, chosen.prio)),
            _ => None,
        };
        self.chosen = None;
        if chosen.is_none_or(|(at, ..)| at != now) {
            self.advance(now);
        }
        if slot == ROOT_SLOT {
            self.direct_packets += 1;
            if next.is_none() {
                self.deactivate(slot);
            }
            return false;
        }
        let class = &self.classes[slot as usize];
        let (level, prio) = chosen.map_or((class.level, class.prio), |(_, level, prio)| (level, prio));
        let (level, prio) = (usize::from(level) % LEVELS, usize::from(prio) % PRIOS);
        self.charge_deficit(slot, level, prio, len);
        if next.is_none() {
            self.deactivate(slot);
        }
        self.charge(slot, level, len)
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        let now = self.now - EPOCH;
        if self.choose(now).is_some() {
            return Some(now);
        }
        loop {
            let (at, slot) = self.timers.first()?;
            let due = if self.classes[slot as usize].wants == 0 { Nanos::MAX } else { self.due(slot) };
            if due <= at {
                return Some(at.saturating_sub(EPOCH));
            }
            self.timers.remove(slot);
            if due != Nanos::MAX {
                self.timers.file(self.now, slot, due);
            }
        }
    }

    fn report_counters(&self, slot: Slot, counter: &mut dyn FnMut(&'static str, u64)) {
        let Some(class) = self.classes.get(slot as usize).filter(|class| class.has(EXISTS)) else { return };
        counter("lends", u64::from(class.lends));
        counter("borrows", u64::from(class.borrows));
        counter("overlimits", u64::from(class.overlimits));
        // Levels, for `tc -s class`: nanoseconds of tokens, and what the buckets hold in bytes.
        let [carry, ceil_carry] = class.carry;
        let (rate, carry) = if slot == ROOT_SLOT { (&class.ceil, ceil_carry) } else { (&class.rate, carry) };
        counter("tokens", rate.tokens(carry, self.now) as u64);
        counter("ctokens", class.ceil.tokens(ceil_carry, self.now) as u64);
        counter("burst", rate.bytes());
        counter("cburst", class.ceil.bytes());
        if slot == ROOT_SLOT {
            counter("direct_packets", self.direct_packets);
        }
    }

    #[inline]
    fn fetch(&self, slot: Slot) {
        if let Some(class) = self.classes.get(slot as usize) {
            prefetch(std::slice::from_ref(&class.rate), 0);
            prefetch(std::slice::from_ref(&class.overlimits), 0);
        }
    }

    fn likely_next(&mut self, _: Slot) -> [Slot; 2] {
        // The next class to send borrows, as the last one did, or turns green soon.
        self.timers.likely_next()
    }

    fn memory(&self) -> usize {
        self.tree_memory()
            + self.timers.memory()
            + self.rows.iter().flat_map(|row| &row.rings).map(RoundRobin::memory).sum::<usize>()
    }
}

/// The numbers of the bits that are set.
#[inline]
fn bits(mut mask: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(at)
    })
}
