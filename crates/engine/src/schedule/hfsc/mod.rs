//! Hierarchical fair service curves (Stoica, Zhang and Ng 1997): delay apart from rate, and
//! link-sharing along a tree.
//!
//! A class has up to three curves, each of one or two straight pieces. `realtime` is a promise:
//! every packet has a deadline by it, and of all packets that are *eligible* the one with the
//! earliest deadline goes, whatever the tree says; deadlines are missed by at most one packet of
//! the link while the curves add up to no more than the link. When none is eligible, `linkshare`
//! divides what is left: from the link down, the child goes that has had least in proportion to its
//! curve. `upperlimit` bounds what a class may have by the second rule.
//!
//! Not ALTQ's code: service by either rule counts in every class above, also when a class has
//! nothing to send for a moment ([`share`]); classes under a limit wake by themselves; and no step
//! looks at all classes ([`realtime`], [`heap`]).

mod check;
mod class;
mod curve;
mod heap;
mod long_run;
mod promise;
mod realtime;
mod share;
mod words;

use super::hierarchical_wheel::HierarchicalWheel;
use super::{AltqstatForm, Context, Entry, ROOT_SLOT, Role, Scheduler, Slot, TcForm};
use crate::link::Overhead;
use crate::prefetch::prefetch;
use crate::settings::Settings;
use crate::spec::{SpecError, Timer};
use crate::units::{Nanos, Rate};
use class::{ACTIVE, Class, Extra, NIL, OWN};
use curve::{EPOCH, Slope};
use heap::Heap;
use share::Inner;
use words::Words;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    class_words: words::CLASS,
    roles: &[("linkshare", Role::Share), ("realtime", Role::Deadline), ("upperlimit", Role::Ceiling)],
    guarantee: |class| {
        let rate = |word| class.curve(word).map_or(Rate::ZERO, |curve| curve.then);
        Some(rate("realtime").max(rate("linkshare")))
    },
    adds_up_itself: true,
    promises: promise::promises,
    long_run: Some(long_run::long_run),
    check: check::check,
    tc: TcForm::Renamed(&[("realtime", "rt"), ("linkshare", "ls"), ("upperlimit", "ul")]),
    altqstat: AltqstatForm::Curves,
    ..Entry::new(
        "hfsc",
        "hierarchical fair service curves: deadlines, shares along the tree, upper limits",
        |context, settings| Ok(Box::new(Hfsc::new(context, settings))),
    )
};

/// The scheduler.
struct Hfsc {
    now: Nanos,
    mtu: u32,
    overhead: Overhead,
    /// What a packet of the link's MTU takes on the link.
    packet_time: Nanos,
    /// What a timer may be late.
    tick: Nanos,
    classes: Vec<Class>,
    inners: Vec<Inner>,
    /// Records of `inners` whose class is gone.
    free: Vec<u32>,
    /// Classes by eligible time, or an earlier time: a timer is corrected when it comes out. Those
    /// that are due may come in any order, as `ready` has an order of its own.
    waiting: HierarchicalWheel,
    /// A class that waits without a timer, the one that was the last to get something to send, and
    /// its eligible time; else [`NIL`], and [`Nanos::MAX`].
    newest: Slot,
    newest_at: Nanos,
    /// Eligible classes by deadline.
    ready: Heap,
    /// Places in `ready`, and in the heaps of the parent.
    realtime_at: Vec<u32>,
    share_at: Vec<u32>,
    /// The answer of `choose`, until something changes: the class, and whether it goes by deadline.
    chosen: Option<(Slot, bool)>,
    /// Classes with an upper limit. Without any, none is ever parked.
    limits: u32,
    /// The last packet went by deadline.
    by_deadline: bool,
    /// The class that was last thought to send soon.
    likely: Slot,
}

impl Hfsc {
    fn new(context: &Context, _: &Settings) -> Hfsc {
        let mut hfsc = Hfsc {
            now: 0,
            mtu: context.mtu,
            overhead: context.overhead,
            packet_time: 0,
            tick: match context.timer {
                Timer::Exact => 0,
                Timer::Tick(tick) => tick,
            },
            classes: Vec::new(),
            inners: Vec::new(),
            free: Vec::new(),
            waiting: HierarchicalWheel::default(),
            newest: NIL,
            newest_at: Nanos::MAX,
            ready: Heap::new(),
            realtime_at: Vec::new(),
            share_at: Vec::new(),
            chosen: None,
            limits: 0,
            by_deadline: false,
            likely: NIL,
        };
        hfsc.set_link_rate(context.link_rate);
        hfsc.reserve(ROOT_SLOT);
        hfsc
    }

    fn set_link_rate(&mut self, rate: Rate) {
        self.packet_time = rate.time_for(u64::from(self.overhead.charge(self.mtu)));
    }

    fn reserve(&mut self, slot: Slot) {
        if self.classes.len() <= slot as usize {
            self.classes.resize_with(slot as usize + 1, Class::default);
            self.realtime_at.resize(slot as usize + 1, 0);
            self.share_at.resize(slot as usize + 1, 0);
        }
        self.waiting.reserve(slot);
    }

    #[inline]
    fn update_now(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.chosen = None;
    }

    fn set_words(&mut self, slot: Slot, words: Words) {
        let (packet, tick) = (self.overhead.charge(self.mtu), self.tick);
        self.classes[slot as usize].set(words, |slope: Slope| {
            let two = Rate::bit_s(slope.rate()).time_for(2 * u64::from(packet));
            two.saturating_add(tick)
        });
    }

    /// Puts a class below another one.
    fn attach(&mut self, slot: Slot, parent: Slot) {
        if self.classes[parent as usize].inner == NIL {
            self.classes[parent as usize].inner = match self.free.pop() {
                Some(at) => {
                    self.inners[at as usize] = Inner::new();
                    at
                }
                None => {
                    self.inners.push(Inner::new());
                    self.inners.len() as u32 - 1
                }
            };
        }
        let inner = self.classes[parent as usize].inner;
        self.inners[inner as usize].children += 1;
        self.classes[slot as usize].parent = parent;
        self.classes[slot as usize].above = inner;
    }

    fn detach(&mut self, slot: Slot) {
        let above = self.classes[slot as usize].above;
        if let Some(inner) = self.inners.get_mut(above as usize) {
            inner.children -= 1;
        }
    }

    /// The class has a first packet, of `len` bytes.
    fn became_backlogged(&mut self, slot: Slot, len: u32) {
        let now = EPOCH + u128::from(self.now);
        let class = &mut self.classes[slot as usize];
        class.len = len;
        class.flags |= OWN;
        if class.has_realtime() {
            let (curve, first) = class.realtime_parts();
            curve.restart(first, now);
            self.begin_realtime(slot);
        }
        self.activate(slot);
    }

    /// It has none any more, but for a reason that is not service.
    fn became_empty(&mut self, slot: Slot) {
        self.classes[slot as usize].flags &= !OWN;
        self.unfile_realtime(slot);
        self.deactivate(slot);
    }
}

impl Scheduler for Hfsc {
    fn add(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        let words = Words::read(settings)?;
        self.update_now(now);
        self.reserve(slot);
        self.classes[slot as usize] = Class::default();
        self.limits += u32::from(words.limit.is_some());
        self.set_words(slot, words);
        self.attach(slot, parent);
        Ok(())
    }

    fn change(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot == ROOT_SLOT {
            return Ok(());
        }
        let words = Words::read(settings)?;
        self.update_now(now);
        let class = &self.classes[slot as usize];
        // The same again changes nothing, not even what a limit has made up for.
        if class.parent == parent && class.has_words(&words) {
            return Ok(());
        }
        let (before, had_realtime, had_limit) = (class.parent, class.has_realtime(), class.has_limit());
        // Not less until nothing is parked by this class's any more.
        self.limits += u32::from(words.limit.is_some());
        if class.has(ACTIVE) {
            self.leave_siblings(slot);
            self.deactivate(before);
        }
        self.unfile_realtime(slot);
        self.set_words(slot, words);
        if parent != before {
            self.detach(slot);
            self.attach(slot, parent);
            // Virtual time is its parent's: below another one it begins at that one's present.
            let (curve, first) = self.classes[slot as usize].share_parts();
            curve.clear(first);
        }
        let class = &mut self.classes[slot as usize];
        if class.has(OWN) && class.has_realtime() {
            if !had_realtime {
                let (curve, first) = class.realtime_parts();
                curve.restart(first, EPOCH + u128::from(self.now));
            }
            self.file_realtime(slot);
        }
        if self.has_backlog(slot) {
            self.activate(slot);
        }
        self.limits -= u32::from(had_limit);
        Ok(())
    }

    fn guesses(&mut self, slot: Slot, guesses: bool) {
        let largest = self.overhead.charge(self.mtu);
        if let Some(class) = self.classes.get_mut(slot as usize) {
            class.least = if guesses { largest } else { 0 };
            self.renew_deadline(slot);
            self.chosen = None;
        }
    }

    fn remove(&mut self, now: Nanos, slot: Slot) {
        self.update_now(now);
        self.became_empty(slot);
        self.waiting.remove(slot);
        self.detach(slot);
        let gone = std::mem::take(&mut self.classes[slot as usize]);
        self.limits -= u32::from(gone.has_limit());
        if gone.inner != NIL {
            self.free.push(gone.inner);
        }
    }

    fn set_rate(&mut self, now: Nanos, _: Rate, link_rate: Rate) {
        self.update_now(now);
        self.set_link_rate(link_rate);
    }

    #[inline]
    fn queued(&mut self, now: Nanos, slot: Slot, len: u32, first: bool) {
        if !first {
            return;
        }
        self.update_now(now);
        if self.classes[slot as usize].has(OWN) {
            self.classes[slot as usize].len = len;
            return self.renew_deadline(slot);
        }
        self.became_backlogged(slot, len);
    }

    fn head_lost(&mut self, now: Nanos, slot: Slot, next: Option<u32>) {
        self.update_now(now);
        match next {
            Some(len) => {
                self.classes[slot as usize].len = len;
                self.renew_deadline(slot);
            }
            None => self.became_empty(slot),
        }
    }

    #[inline]
    fn choose(&mut self, now: Nanos) -> Option<Slot> {
        if now > self.now {
            self.update_now(now);
        }
        if self.chosen.is_none() {
            self.make_eligible();
            self.chosen = match self.ready.first() {
                Some((_, slot)) => Some((slot, true)),
                None => self.choose_by_share().map(|slot| (slot, false)),
            };
        }
        self.chosen.map(|(slot, _)| slot)
    }

    #[inline]
    fn sent(&mut self, now: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        let by_deadline = matches!(self.chosen, Some((chosen, true)) if chosen == slot);
        self.by_deadline = by_deadline;
        self.update_now(now);
        let class = &mut self.classes[slot as usize];
        match next {
            Some(len) => class.len = len,
            None => class.flags &= !OWN,
        }
        if by_deadline {
            self.served_realtime(slot, len, next.is_some());
        } else if next.is_some() {
            self.renew_deadline(slot);
        } else {
            self.unfile_realtime(slot);
        }
        self.charge(slot, len, !by_deadline);
        // No class lends: what went by its share is the class's own.
        false
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        if !self.ready.is_empty() {
            return Some(0);
        }
        self.next_eligible().into_iter().chain(self.share_wakeup()).min()
    }

    fn report_counters(&self, slot: Slot, counter: &mut dyn FnMut(&'static str, u64)) {
        if let Some(class) = self.classes.get(slot as usize).filter(|class| class.has_realtime()) {
            counter("realtime_bytes", class.served);
        }
    }

    #[inline]
    fn fetch(&self, slot: Slot) {
        if let Some(class) = self.classes.get(slot as usize) {
            prefetch(std::slice::from_ref(&class.share), 0);
            prefetch(std::slice::from_ref(&class.realtime), 0);
        }
    }

    #[inline]
    fn likely_next(&mut self, slot: Slot) -> [Slot; 2] {
        // With many classes the two rules mostly take turns. So the next packet is the one that was
        // looked for after the last packet, and the packet after it goes by this packet's rule.
        let far = match self.ready.first() {
            _ if !self.by_deadline => self.likely_by_share(slot),
            Some((_, slot)) => slot,
            None => self.waiting.likely_first(),
        };
        [std::mem::replace(&mut self.likely, far), far]
    }

    fn memory(&self) -> usize {
        let extras = self.classes.iter().filter(|class| class.extra.is_some()).count();
        self.classes.capacity() * size_of::<Class>()
            + extras * size_of::<Extra>()
            + self.inners.iter().map(Inner::memory).sum::<usize>()
            + (self.realtime_at.capacity() + self.share_at.capacity() + self.free.capacity()) * 4
            + self.waiting.memory()
            + self.ready.memory()
    }
}
