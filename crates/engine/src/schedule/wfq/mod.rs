//! WFQ and CBWFQ as in Cisco's modular QoS: classes with weights, guarantees or low latency, in
//! worst-case fair order.
//!
//! Demers, Keshav and Shenker 1989 and Parekh and Gallager 1993 gave weighted fair queueing;
//! class-based WFQ gives a weight to a class instead of a flow. Three kinds of classes:
//!
//! - `low-latency` (LLQ): served first, level 1 before level 2, all of a level in the order of
//!   arrival. Such a class is policed at its rate, so that it cannot starve others, but only under
//!   congestion: when a packet arrives while another waits for nothing but the link.
//! - `bandwidth`, `bandwidth remaining` or `weight`: served by worst-case fair queueing ([`fair`]:
//!   WF2Q+ with QFQ's groups), in constant time. A class that says nothing shares what nobody
//!   reserved. The excess goes in proportion to bandwidth (`excess proportional`, classic IOS), or
//!   in equal parts (`excess equal`, IOS XE): then guarantees are served first, by a virtual clock
//!   that never jumps, and what that leaves by a second order of equal weights.
//! - any of these may be held to a rate: `shape` makes it wait, `police` drops what comes too
//!   early.
//!
//! A packet that finds the link idle is sent at once, whatever its class (unless `shape` or
//! `police` forbids it).

mod change;
mod check;
mod fair;
mod limits;
mod promise;
mod words;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::fifo::Fifo;
use super::{Admit, Context, Entry, ROOT_SLOT, Scheduler, Slot};
use crate::account::DropReason;
use crate::prefetch::prefetch;
use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::{Nanos, Rate};
use fair::Fair;
use limits::{Policer, Shaper};
use words::{Excess, Kind, Words};

/// The registry's entry.
pub const ENTRY: Entry = words::ENTRY;

/// "No limits".
const NONE: u32 = u32::MAX;

/// What every packet of a class needs to know of it.
#[derive(Clone, Copy)]
struct Class {
    /// Length of its first packet.
    len: u32,
    /// Of a low-latency class: how many places it has in the order of its level. One for each
    /// packet; packets that it had before it became a low-latency class have one place together.
    places: u32,
    /// Length of the longest packet that was announced as a shorter one, because a scheduler or
    /// queue inside the class can only guess what comes next. From then on the class's packets are
    /// taken to be at least as long, so that a wrong guess makes others late only once.
    longest_unannounced: u32,
    /// Its [`Limits`], or [`NONE`].
    limits: u32,
    /// The level of a low-latency class.
    urgent: Option<u8>,
    /// It has something to send. A class whose inner scheduler holds its packets back counts as
    /// empty, unless it is a low-latency class.
    waiting: bool,
    /// Of a low-latency class: the scheduler inside it holds its packets back.
    blocked: bool,
    /// It waits for the time of its shaper.
    parked: bool,
    /// It was made with a queue that keeps flows apart.
    fair_queue: bool,
}

const FREE: Class = Class {
    len: 0,
    places: 0,
    longest_unannounced: 0,
    limits: NONE,
    urgent: None,
    waiting: false,
    blocked: false,
    parked: false,
    fair_queue: false,
};

/// What holds a class to a rate: the policer of `low-latency`, `police`, and `shape`.
#[derive(Clone, Copy, Default)]
struct Limits {
    urgent: Option<Policer>,
    police: Option<Policer>,
    shape: Option<Shaper>,
}

struct Wfq {
    rate: Rate,
    packet: u32,
    excess: Excess,
    now: Nanos,
    /// Low-latency classes, by level.
    urgent: [Fifo; 2],
    /// The order of all other classes: by share, or, with `excess equal`, by guarantee; then
    /// `spare` is the order of what guarantees leave.
    fair: Fair,
    spare: Option<Fair>,
    classes: Vec<Class>,
    kinds: Vec<Option<Kind>>,
    limits: Vec<Limits>,
    free_limits: Vec<u32>,
    /// Times at which parked classes may go on. An entry is void if it is not the time of the
    /// class's shaper.
    timers: BinaryHeap<Reverse<(Nanos, Slot)>>,
    /// The earliest of these times.
    soonest: Nanos,
    /// Classes that have something to send, and the low-latency ones among them.
    waiting: u32,
    urgent_waiting: u32,
    /// There is or was a low-latency or a policed class, which needs to know of every arrival.
    wants_arrivals: bool,
    /// Weights must be computed again.
    stale: bool,
    /// Log2 of the virtual time that a byte takes at a weight of 1.
    unit: u32,
    /// The same in `spare`.
    spare_unit: u32,
}

impl Wfq {
    fn new(context: &Context, excess: Excess) -> Wfq {
        let packet = context.overhead.charge(context.mtu);
        let mut new = Wfq {
            rate: context.rate,
            packet,
            excess,
            now: 0,
            urgent: [Fifo::new(), Fifo::new()],
            fair: Fair::new(true, packet),
            spare: None,
            classes: vec![FREE],
            kinds: vec![None],
            limits: Vec::new(),
            free_limits: Vec::new(),
            timers: BinaryHeap::new(),
            soonest: Nanos::MAX,
            waiting: 0,
            urgent_waiting: 0,
            wants_arrivals: false,
            stale: true,
            unit: 0,
            spare_unit: 0,
        };
        new.set_excess(excess);
        new
    }

    /// Puts a class into the order, if it has something to send and waits for nothing but the link.
    fn file(&mut self, slot: Slot) {
        let class = &self.classes[slot as usize];
        if class.waiting && !class.parked && class.urgent.is_none() {
            self.insert(slot, class.len);
        }
    }

    /// Puts a class into the order, its first packet of `len` bytes.
    #[inline]
    fn insert(&mut self, slot: Slot, len: u32) {
        self.fair.insert(slot, len);
        if let Some(spare) = &mut self.spare {
            spare.insert(slot, len);
        }
    }

    fn unfile(&mut self, slot: Slot) {
        self.fair.remove(slot);
        if let Some(spare) = &mut self.spare {
            spare.remove(slot);
        }
    }

    /// Parks a class if its shaper does not let it send yet. True if so.
    fn park(&mut self, slot: Slot) -> bool {
        let class = &mut self.classes[slot as usize];
        let Some(Limits { shape: Some(shape), .. }) = self.limits.get(class.limits as usize) else { return false };
        if shape.due <= self.now {
            return false;
        }
        if !class.parked {
            class.parked = true;
            self.timers.push(Reverse((shape.due, slot)));
            self.soonest = self.soonest.min(shape.due);
        }
        true
    }

    /// Until when a class is parked, if it is.
    fn parked_until(&self, slot: Slot) -> Option<Nanos> {
        let class = &self.classes[slot as usize];
        if !class.parked {
            return None;
        }
        self.limits.get(class.limits as usize).and_then(|limits| limits.shape).map(|shape| shape.due)
    }

    /// Time passes: parked classes whose time has come go back into the order.
    #[inline]
    fn advance(&mut self, now: Nanos) {
        self.now = now;
        if now >= self.soonest || self.stale {
            self.catch_up();
        }
    }

    #[cold]
    fn catch_up(&mut self) {
        if self.stale {
            self.compute_weights();
        }
        while let Some(&Reverse((time, slot))) = self.timers.peek() {
            if time > self.now {
                break;
            }
            self.timers.pop();
            if self.parked_until(slot) == Some(time) {
                self.classes[slot as usize].parked = false;
                self.file(slot);
            }
        }
        self.soonest = self.timers.peek().map_or(Nanos::MAX, |Reverse((time, _))| *time);
    }

    /// Whether a packet waits for nothing but the link, or the shaper of the class above.
    fn congested(&mut self) -> bool {
        !self.fair.is_empty()
            || self.spare.as_ref().is_some_and(|spare| !spare.is_empty())
            || self.urgent_waiting > 0 && self.urgent.iter_mut().any(|level| level.next_wakeup().is_some())
    }

    /// A class with limits has sent `len` bytes. Returns the length of its next packet, unless its
    /// shaper makes that wait.
    fn limited(&mut self, slot: Slot, limits: u32, len: u32, next: Option<u32>) -> Option<u32> {
        if let Some(Limits { shape: Some(shape), .. }) = self.limits.get_mut(limits as usize) {
            shape.sent(self.now, len);
        }
        next.filter(|_| !self.park(slot))
    }

    /// Notes whether a class has something to send.
    #[inline]
    fn wait(&mut self, slot: Slot, waiting: bool) {
        let class = &mut self.classes[slot as usize];
        if class.waiting != waiting {
            class.waiting = waiting;
            let urgent = u32::from(class.urgent.is_some());
            if waiting {
                (self.waiting, self.urgent_waiting) = (self.waiting + 1, self.urgent_waiting + urgent);
            } else {
                (self.waiting, self.urgent_waiting) = (self.waiting - 1, self.urgent_waiting - urgent);
            }
        }
    }

    /// A low-latency class takes a place at the end of its level's order.
    fn take_place(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        if let Some(level) = class.urgent {
            class.places += 1;
            self.urgent[usize::from(level)].queued(self.now, slot, class.len, false);
        }
    }

    /// A low-latency class has lost a packet, or sent one: its place is gone.
    fn give_up_place(&mut self, slot: Slot, next: Option<u32>) {
        let class = &mut self.classes[slot as usize];
        class.places = class.places.saturating_sub(1);
        // Packets that it had before it was a low-latency class have no place of their own.
        if next.is_some() && class.places == 0 && !class.blocked {
            self.take_place(slot);
        }
        if next.is_none() {
            self.wait(slot, false);
        }
    }
}

impl Scheduler for Wfq {
    fn add(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        let words = Words::read(settings)?;
        flat(parent)?;
        self.now = now;
        if self.classes.len() <= slot as usize {
            self.classes.resize(slot as usize + 1, FREE);
            self.kinds.resize(slot as usize + 1, None);
        }
        self.make_room(slot);
        self.classes[slot as usize] = FREE;
        self.set(slot, words);
        Ok(())
    }

    fn change(&mut self, now: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot == ROOT_SLOT {
            let excess = words::scheduler(settings);
            if excess != self.excess {
                self.advance(now);
                self.set_excess(excess);
            }
            return Ok(());
        }
        let words = Words::read(settings)?;
        flat(parent)?;
        if self.classes[slot as usize].fair_queue != words.fair_queue {
            return Err(SpecError::word(
                "fair-queue",
                "fair-queue says which queue a class is made with, and it is made",
            )
            .help("give the class a queue of another kind"));
        }
        if self.has_words(slot, &words) {
            return Ok(());
        }
        self.advance(now);
        self.set(slot, words);
        Ok(())
    }

    fn remove(&mut self, now: Nanos, slot: Slot) {
        self.advance(now);
        self.unfile(slot);
        self.wait(slot, false);
        let class = self.classes[slot as usize];
        if let Some(level) = class.urgent {
            self.urgent[usize::from(level)].remove(now, slot);
        }
        if class.limits != NONE {
            self.free_limits.push(class.limits);
        }
        self.classes[slot as usize] = FREE;
        self.kinds[slot as usize] = None;
        self.weights_changed();
    }

    fn set_rate(&mut self, now: Nanos, rate: Rate, _: Rate) {
        if rate == self.rate {
            return;
        }
        self.advance(now);
        self.rate = rate;
        self.weights_changed();
    }

    fn wants_arrivals(&self) -> bool {
        self.wants_arrivals
    }

    #[inline]
    fn admit(&mut self, now: Nanos, slot: Slot, len: u32) -> Admit {
        let at = self.classes[slot as usize].limits;
        if at == NONE {
            return Admit::Take;
        }
        self.advance(now);
        let congested = self.congested();
        let Some(limits) = self.limits.get_mut(at as usize) else { return Admit::Take };
        if limits.police.as_mut().is_some_and(|meter| !meter.take(now, len)) {
            return Admit::Drop(DropReason::Policed);
        }
        // All of its packets are counted, so that congestion finds the bucket as it is; only under
        // congestion it decides.
        if limits.urgent.as_mut().is_some_and(|meter| !meter.take(now, len)) && congested {
            return Admit::Drop(DropReason::Policed);
        }
        Admit::Take
    }

    #[inline]
    fn queued(&mut self, now: Nanos, slot: Slot, len: u32, first: bool) {
        let class = &mut self.classes[slot as usize];
        if first {
            class.len = len.max(class.longest_unannounced);
            self.advance(now);
            self.wait(slot, true);
            let Class { len, limits, urgent, .. } = self.classes[slot as usize];
            if urgent.is_none() && limits == NONE {
                // Nothing but the link holds the class back.
                return self.insert(slot, len);
            }
        }
        if self.classes[slot as usize].urgent.is_some() {
            self.take_place(slot);
        } else if first && !self.park(slot) {
            self.file(slot);
        }
    }

    fn head_lost(&mut self, now: Nanos, slot: Slot, next: Option<u32>) {
        self.advance(now);
        let class = &mut self.classes[slot as usize];
        if let Some(len) = next {
            class.len = len.max(class.longest_unannounced);
        }
        if let Some(level) = class.urgent {
            // A class without packets holds none back, and the engine does not unblock it.
            class.blocked &= next.is_some();
            if class.places > 0 {
                self.urgent[usize::from(level)].head_lost(now, slot, next);
            }
            return self.give_up_place(slot, next);
        }
        let len = class.len;
        if next.is_none() {
            self.wait(slot, false);
            return self.unfile(slot);
        }
        self.fair.set_length(slot, len);
        if let Some(spare) = &mut self.spare {
            spare.set_length(slot, len);
        }
    }

    fn heads_dropped(&mut self, now: Nanos, slot: Slot, packets: u32) {
        let class = &mut self.classes[slot as usize];
        if let Some(level) = class.urgent {
            let places = packets.min(class.places.saturating_sub(1));
            class.places -= places;
            self.urgent[usize::from(level)].heads_dropped(now, slot, places);
        }
    }

    fn tail_lost(&mut self, now: Nanos, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        if let Some(level) = class.urgent
            && class.places > 1
        {
            class.places -= 1;
            self.urgent[usize::from(level)].tail_lost(now, slot);
        }
    }

    fn blocked(&mut self, now: Nanos, slot: Slot) {
        self.advance(now);
        match self.classes[slot as usize].urgent {
            Some(level) => {
                self.classes[slot as usize].blocked = true;
                self.urgent[usize::from(level)].blocked(now, slot);
            }
            None => {
                self.wait(slot, false);
                self.unfile(slot);
            }
        }
    }

    fn unblocked(&mut self, now: Nanos, slot: Slot, len: u32) {
        self.advance(now);
        let class = &mut self.classes[slot as usize];
        (class.blocked, class.len) = (false, len.max(class.longest_unannounced));
        self.wait(slot, true);
        let class = &self.classes[slot as usize];
        if let Some(level) = class.urgent {
            self.urgent[usize::from(level)].unblocked(now, slot, len);
            if self.classes[slot as usize].places == 0 {
                self.take_place(slot);
            }
        } else if !self.park(slot) {
            self.file(slot);
        }
    }

    #[inline]
    fn choose(&mut self, now: Nanos) -> Option<Slot> {
        self.advance(now);
        if self.urgent_waiting > 0
            && let Some(slot) = self.urgent.iter_mut().find_map(|level| level.choose(now))
        {
            return Some(slot);
        }
        self.fair.pick().or_else(|| self.spare.as_ref().and_then(Fair::pick))
    }

    #[inline]
    fn sent(&mut self, now: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        self.advance(now);
        let class = &mut self.classes[slot as usize];
        if len > class.len {
            class.longest_unannounced = len;
        }
        let next = next.map(|len| len.max(class.longest_unannounced));
        class.len = next.unwrap_or_default();
        if let Some(level) = class.urgent {
            self.urgent[usize::from(level)].sent(now, slot, len, next);
            self.give_up_place(slot, next);
            if self.spare.is_some() {
                // Guarantees are parts of all that the link sends.
                self.fair.advance(len);
            }
            return false;
        }
        let limits = class.limits;
        if next.is_none() {
            self.wait(slot, false);
        }
        let next = if limits == NONE { next } else { self.limited(slot, limits, len, next) };
        let Some(spare) = &mut self.spare else {
            self.fair.served(slot, len, next);
            return false;
        };
        let guaranteed = self.fair.pick() == Some(slot);
        if guaranteed {
            self.fair.served(slot, len, next);
        } else {
            spare.served(slot, len, next);
            self.fair.advance(len);
        }
        let other = if guaranteed { spare } else { &mut self.fair };
        match next {
            Some(next) => other.set_length(slot, next),
            None => other.remove(slot),
        }
        !guaranteed
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        if self.stale {
            self.compute_weights();
        }
        if self.congested() {
            return Some(self.now);
        }
        while let Some(&Reverse((time, slot))) = self.timers.peek() {
            if self.parked_until(slot) == Some(time) {
                let class = &mut self.classes[slot as usize];
                if class.waiting {
                    self.soonest = time;
                    return Some(time);
                }
                // A class without packets does not wait: it is parked again when it has some.
                class.parked = false;
            }
            self.timers.pop();
        }
        self.soonest = Nanos::MAX;
        None
    }

    #[inline]
    fn fetch(&self, slot: Slot) {
        prefetch(&self.classes, slot as usize);
        self.fair.fetch(slot);
    }

    #[inline]
    fn likely_next(&mut self, _: Slot) -> [Slot; 2] {
        self.fair.likely_next()
    }

    fn memory(&self) -> usize {
        self.urgent.iter().map(Scheduler::memory).sum::<usize>()
            + self.fair.memory()
            + self.spare.as_ref().map_or(0, Fair::memory)
            + self.classes.capacity() * size_of::<Class>()
            + self.kinds.capacity() * size_of::<Option<Kind>>()
            + self.limits.capacity() * size_of::<Limits>()
            + self.timers.capacity() * size_of::<Reverse<(Nanos, Slot)>>()
    }
}

/// CBWFQ's classes are flat.
fn flat(parent: Slot) -> Result<(), SpecError> {
    if parent == ROOT_SLOT {
        return Ok(());
    }
    Err(SpecError::new("a class of wfq has no classes below it")
        .help("write scheduler wfq, or another, in the class above"))
}
