//! Classic CBQ: ALTQ's, to the letter (docs/reference/altq.md 2; Cho, USENIX 1998; Floyd and
//! Jacobson 1995).
//!
//! Each class has an estimator that says whether it is over its limit. A class over its limit may
//! borrow from an ancestor that is not. Otherwise it sleeps, for two timer ticks at least, until
//! its timer or another event finds that its time has come. Priorities and weighted round robin
//! decide which class goes first. ALTQ's faults are kept, for old policies and published
//! measurements: coarse timers keep classes below their rates, and rates are off for small packets
//! and fast links. The `exact` estimator is for everything else.
//!
//! - `parameters`: from rates and bursts to the estimator's numbers (2.2)
//! - `estimator`: what a packet does to the classes (2.7)
//! - `borrow`: who may send (2.6)
//! - `wrr`: who goes first (2.4, 2.5)
//! - `timer`: the clock, sleeping and waking (2.8)
//! - `tree`: classes and rings
//!
//! The engine holds the packets. Its `dequeue` is ALTQ's POLL ([`Scheduler::choose`]) and then
//! REMOVE ([`Scheduler::sent`]).

mod borrow;
mod estimator;
mod parameters;
mod timer;
mod tree;
mod wrr;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub use parameters::queue_limit;
use parameters::{Numbers, Words};
use tree::Ring;

use super::super::{Admit, Context, ROOT_SLOT, Scheduler, Slot};
use crate::settings::Settings;
use crate::spec::{SpecError, Timer};
use crate::units::{Nanos, Rate};

/// "No class", in the links between classes.
const NONE: Slot = Slot::MAX;
/// The cutoff that lets every class borrow.
const NO_CUTOFF: u32 = 32;
/// Priorities, 7 first.
const PRIORITIES: usize = 8;

/// A class's counters, as in ALTQ's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stats {
    /// Packets after which the class was over its limit.
    over: u64,
    /// How often the class was asked and might not send, neither on its own nor by borrowing.
    overactions: u64,
    /// How often it was put to sleep for that.
    delays: u64,
    /// Packets of the class, or of one below it, that used the bandwidth of a class above it.
    borrows: u64,
    /// Their own bytes.
    borrowed_bytes: u64,
}

/// Which ancestors may lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    TopLevel,
    AncestorOnly,
    Formal,
}

/// A class.
struct Class {
    // What a pass over the rings reads (`wrr`).
    peer: Slot,
    borrow: Slot,
    parent: Slot,
    depth: u32,
    /// Bytes that it may still send in this round; may be negative by one packet.
    bytes_alloc: i64,
    /// Until when it is over its limit, microseconds; 0: it is not.
    undertime: i64,
    priority: u8,
    sleeping: bool,
    /// It has packets of its own.
    backlogged: bool,
    exists: bool,
    /// Classes with packets here and below.
    waiting: u32,

    // The estimator.
    /// Average idleness, microseconds times 32.
    avgidle: i64,
    /// When the link was done with its latest packet, estimated.
    last: i64,
    /// How long that packet takes at the class's rate, microseconds.
    last_pkttime: i64,
    numbers: Numbers,

    /// The number of its callout, 0 if none is set.
    callout: u64,
    stats: Stats,

    // The other links: `before` in the ring, the rest in the tree.
    before: Slot,
    child: Slot,
    sibling: Slot,
    elder: Slot,
    words: Words,
}

impl Class {
    /// Ends its sleep and stops its callout.
    fn wake(&mut self) {
        self.sleeping = false;
        self.callout = 0;
    }
}

/// The outcome of a pass, kept from POLL to REMOVE.
#[derive(Clone, Copy)]
struct Choice {
    slot: Slot,
    /// The first class of the passes that wanted to borrow and could not.
    first: Slot,
    lender: Slot,
}

struct Classic {
    rate: Rate,
    mtu: u32,
    timer: Timer,
    sharing: Sharing,
    weighted: bool,
    efficient: bool,

    classes: Vec<Class>,
    rings: [Ring; PRIORITIES],
    cutoff: u32,
    /// The link's nanoseconds a byte.
    ns_per_byte: i64,
    /// When the link will be done with all that was taken, estimated; microseconds.
    ifnow: i64,
    /// How far `ifnow` may run ahead of the clock, microseconds.
    maxiftime: i64,

    /// The answer of the latest POLL, and when it was given.
    poll: Option<(Nanos, Choice)>,
    /// Who lent for the latest packet.
    lender: Slot,
    /// The latest pass found no class that may send, and nothing has happened since.
    failed: bool,
    /// The latest pass found no class that may send: the device waits.
    idle: bool,
    /// With `formal`: the greatest depth that may lend, once it was asked for in a pass.
    formal: Option<u32>,
    /// With `formal`: in this pass the rule kept a class from borrowing.
    stopped: bool,
    /// With `formal`: a class that the rule keeps from borrowing is put to sleep.
    last_resort: bool,

    /// Callouts by time, then by the order in which they were set. One whose number its class does
    /// not have any more was stopped.
    callouts: BinaryHeap<Reverse<(Nanos, u64, Slot)>>,
    callouts_set: u64,
}

/// Makes the scheduler.
pub fn build(context: &Context, settings: &Settings) -> Result<Box<dyn Scheduler>, SpecError> {
    Ok(Box::new(Classic::new(context, settings)?))
}

impl Classic {
    fn new(context: &Context, settings: &Settings) -> Result<Classic, SpecError> {
        let mut classic = Classic {
            rate: context.rate,
            mtu: context.mtu.max(1),
            timer: context.timer,
            sharing: Sharing::TopLevel,
            weighted: true,
            efficient: false,
            classes: Vec::new(),
            rings: [Ring::EMPTY; PRIORITIES],
            cutoff: NO_CUTOFF,
            ns_per_byte: 0,
            ifnow: 0,
            maxiftime: 0,
            poll: None,
            lender: NONE,
            failed: false,
            idle: true,
            formal: None,
            stopped: false,
            last_resort: false,
            callouts: BinaryHeap::new(),
            callouts_set: 0,
        };
        classic.set_words(settings)?;
        let words = Words::root(context.rate);
        let numbers = parameters::numbers(context.rate, classic.mtu, &words)?;
        classic.insert(ROOT_SLOT, NONE, NONE, 0, words, numbers);
        classic.set_link();
        Ok(classic)
    }

    /// The scheduler's own words.
    fn set_words(&mut self, settings: &Settings) -> Result<(), SpecError> {
        if settings.choice("estimator") != Some("classic") {
            let error = SpecError::word("estimator", "the estimator cannot change while the scheduler works");
            return Err(error.help("make a new link with the other estimator"));
        }
        if settings.get("excess").is_some() {
            let error = SpecError::word("excess", "with estimator classic, excess goes by priority and round robin");
            return Err(error.help("leave it out, or use estimator exact"));
        }
        self.sharing = match settings.choice("link-sharing") {
            Some("formal") => Sharing::Formal,
            Some("ancestor-only") => Sharing::AncestorOnly,
            _ => Sharing::TopLevel,
        };
        self.weighted = settings.choice("rounds") != Some("prr");
        self.efficient = settings.flag("efficient");
        self.cutoff = NO_CUTOFF;
        Ok(())
    }

    /// The link's side of the estimator, from the root's numbers.
    fn set_link(&mut self) {
        self.ns_per_byte = self.classes[ROOT_SLOT as usize].numbers.ns_per_byte;
        let packet = i64::from(self.mtu) * self.ns_per_byte;
        self.maxiftime = packet / 1000 * 16;
        if packet > 10_000_000 {
            self.maxiftime /= 4;
        }
    }

    /// Something has changed since the latest pass, so another one may find a class.
    fn changed(&mut self) {
        self.poll = None;
        self.failed = false;
    }
}

impl Scheduler for Classic {
    fn add(&mut self, _: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        let (words, numbers, priority) = self.read(settings)?;
        self.room_for(priority, numbers.allotment, 0)?;
        let borrow = if settings.flag("borrow") { parent } else { NONE };
        self.insert(slot, parent, borrow, priority, words, numbers);
        self.changed();
        Ok(())
    }

    fn change(&mut self, _: Nanos, slot: Slot, parent: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot == ROOT_SLOT {
            let before = (self.sharing, self.weighted, self.efficient);
            let cutoff = self.cutoff;
            self.set_words(settings)?;
            if before == (self.sharing, self.weighted, self.efficient) {
                self.cutoff = cutoff;
            } else {
                self.changed();
            }
            return Ok(());
        }
        let (words, numbers, priority) = self.read(settings)?;
        let class = &self.classes[slot as usize];
        let borrow = if settings.flag("borrow") { parent } else { NONE };
        if (class.words, class.priority, class.parent, class.borrow) == (words, priority, parent, borrow) {
            // Nothing changes. ALTQ's modification would let the class burst as if it were new.
            return Ok(());
        }
        let old = if class.priority == priority { class.numbers.allotment } else { 0 };
        self.room_for(priority, numbers.allotment, old)?;
        self.set_parent(slot, parent);
        self.set_numbers(slot, words, numbers);
        self.set_priority(slot, priority);
        self.classes[slot as usize].borrow = borrow;
        self.changed();
        Ok(())
    }

    fn remove(&mut self, _: Nanos, slot: Slot) {
        self.take_out(slot);
        self.changed();
    }

    fn check_rate(&self, rate: Rate) -> Result<(), SpecError> {
        let mut sums = [0; PRIORITIES];
        for class in self.classes.iter().filter(|c| c.exists) {
            let words = if class.parent == NONE { Words::root(rate) } else { class.words };
            sums[class.priority as usize] += parameters::numbers(rate, self.mtu, &words)?.allotment;
        }
        match sums.into_iter().max() {
            Some(most) => tree::fits(most),
            None => Ok(()),
        }
    }

    fn set_rate(&mut self, _: Nanos, rate: Rate, _: Rate) {
        if rate == self.rate {
            return;
        }
        self.rate = rate;
        for slot in 0..self.classes.len() as Slot {
            let class = &self.classes[slot as usize];
            if !class.exists {
                continue;
            }
            let words = if slot == ROOT_SLOT { Words::root(rate) } else { class.words };
            // `check_rate` was asked before: there is no error.
            if let Ok(numbers) = parameters::numbers(rate, self.mtu, &words) {
                self.set_numbers(slot, words, numbers);
            }
        }
        self.set_link();
        self.changed();
    }

    fn wants_arrivals(&self) -> bool {
        true
    }

    fn admit(&mut self, now: Nanos, slot: Slot, _: u32) -> Admit {
        // Timers come before arrivals.
        while self.run_callout_due(now) {}
        if self.sharing == Sharing::TopLevel {
            self.lower_cutoff(timer::micros(now), slot);
        }
        Admit::Take
    }

    fn queued(&mut self, _: Nanos, slot: Slot, _: u32, first: bool) {
        if first {
            self.set_backlogged(slot, true);
        }
        self.changed();
    }

    fn head_lost(&mut self, _: Nanos, slot: Slot, next: Option<u32>) {
        // With a next packet the class stays as it was: backlogged, or not, if a scheduler inside
        // it holds packets back.
        if next.is_none() {
            self.set_backlogged(slot, false);
        }
        self.changed();
    }

    fn choose(&mut self, now: Nanos) -> Option<Slot> {
        if let Some((at, choice)) = self.poll {
            if at == now {
                return Some(choice.slot);
            }
            self.poll = None;
        }
        self.run_callouts_before(now);
        // In ALTQ each callout starts the device, so a pass follows each. At equal times a
        // completed transmission comes before timers. A device that was busy asks because its
        // transmission is complete: its pass comes before the callouts that are due now. A device
        // that was idle asks because a timer fired: that callout comes first.
        if self.idle {
            self.run_callout_due(now);
        }
        loop {
            if let Some(choice) = self.pass(now) {
                self.poll = Some((now, choice));
                self.idle = false;
                return Some(choice.slot);
            }
            self.failed = true;
            self.idle = true;
            if !self.run_callout_due(now) {
                return None;
            }
        }
    }

    fn sent(&mut self, now: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        let choice = match self.poll.take() {
            Some((_, choice)) if choice.slot == slot => choice,
            _ => Choice { slot, first: NONE, lender: NONE },
        };
        self.set_backlogged(slot, next.is_some());
        self.advance(&choice, len);
        self.update(now, slot, len, choice.lender);
        self.failed = false;
        self.lender = choice.lender;
        choice.lender != NONE
    }

    fn count_borrowed(&mut self, slot: Slot, bytes: u32) {
        let mut at = slot;
        while at != self.lender && at != NONE {
            self.classes[at as usize].stats.borrowed_bytes += u64::from(bytes);
            at = self.classes[at as usize].parent;
        }
    }

    fn borrowed_bytes(&self, slot: Slot) -> Option<u64> {
        self.classes.get(slot as usize).map(|class| class.stats.borrowed_bytes)
    }

    fn report_counters(&self, slot: Slot, counter: &mut dyn FnMut(&'static str, u64)) {
        if let Some(class) = self.classes.get(slot as usize) {
            let stats = &class.stats;
            counter("over", stats.over);
            counter("overactions", stats.overactions);
            counter("delays", stats.delays);
            counter("borrows", stats.borrows);
            // What `altqstat` shows besides (docs/reference/altq.md 13): levels, in the kernel's
            // units.
            counter("priority", u64::from(class.priority));
            counter("depth", u64::from(class.depth));
            counter("ns_per_byte", class.numbers.ns_per_byte as u64);
            counter("wrr_allot", self.weight(slot) as u64);
            counter("offtime", class.numbers.offtime as u64);
            counter("maxidle", class.numbers.maxidle as u64);
            counter("minidle", class.numbers.minidle as u64);
            counter("avgidle", class.avgidle as u64);
        }
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        if self.failed { self.next_callout() } else { Some(0) }
    }

    fn memory(&self) -> usize {
        self.classes.capacity() * size_of::<Class>() + self.callouts.capacity() * size_of::<(Nanos, u64, Slot)>()
    }
}
