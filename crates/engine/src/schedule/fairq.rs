//! FAIRQ (DragonFly's ALTQ, 2008; docs/reference/altq.md 5): priorities with a bandwidth up to
//! which they count, and fair flows in each class.
//!
//! Every class has one of eight priorities and a bandwidth. Of the classes that have packets and
//! are not over their bandwidth, the one of the highest priority goes; if all are over, the one of
//! the highest priority of all. So a bandwidth is a preference and no cap: what no other class
//! wants goes to classes that are over. How much a class sends is measured by sums that decay, over
//! about its last eight packets ([`Decay`]).
//!
//! ALTQ has one class a priority, with buckets for flows inside it. Here the two are apart: this is
//! the scheduler, and the words `buckets` and `hogs` are those of the queue that a class has by
//! default ([`fairq`](crate::queue)). Several classes may share a priority, and take turns, a
//! packet each. ALTQ compares what was sent before the packet at hand, over the time up to the last
//! poll, and so lets a class have 8/7 of its bandwidth. Here the packet at hand and the time up to
//! now count, so a class has its bandwidth, however often the scheduler is asked. A class that is
//! over its bandwidth has a timer for the time at which it no longer is.

use std::collections::BTreeMap;

use super::check::{At, Finding, View};
use super::promise::{Place, Promise, none};
use super::timer_heap::TimerHeap;
use super::{Entry, ROOT_SLOT, Rank, Role, Scheduler, Slot};
use crate::packet::NIL;
use crate::prefetch::prefetch;
use crate::queue;
use crate::settings::{Kind, Settings, Value, Word};
use crate::shape::decay::Decay;
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// Levels of priority.
const LEVELS: usize = 8;
/// docs/reference/altq.md 16.
const PRIORITY: u64 = 1;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    class_words: &[
        Word {
            name: "priority",
            kind: Kind::Int { min: 0, max: LEVELS as u64 - 1 },
            help: "who goes first, 7 before all others; equals take turns, a packet each",
            default: "1",
        },
        Word {
            name: "bandwidth",
            kind: Kind::Rate,
            help: "up to which the priority counts; with 0bit/s it never does",
            default: "all of the link or of the class above",
        },
        queue::fairq::BUCKETS,
        queue::fairq::HOGS,
    ],
    roles: &[("priority", Role::Priority)],
    rank: |_, class| Some(Rank::Always(7_u64.saturating_sub(class.int("priority").unwrap_or(1)))),
    side_by_side: true,
    queue: |_, class| queue(class),
    promises,
    check,
    ..Entry::new(
        "fairq",
        "priorities that count up to a bandwidth, and fair flows in each class (FAIRQ)",
        |context, _| Ok(Box::new(Fairq::new(context.rate))),
    )
};

/// The queue of a class that names none.
pub fn queue(class: &Settings) -> QueueSpec {
    let entry = &queue::fairq::ENTRY;
    let mut settings = Settings::new();
    for word in entry.words {
        if let Some(value) = class.get(word.name) {
            settings.set(word.name, value);
        }
    }
    QueueSpec { name: entry.name, limit: entry.limit, settings }
}

/// `buckets` and `hogs` are words of the queue that the class has by default.
fn check(view: &View<'_>, findings: &mut Vec<Finding>) {
    for class in view.classes() {
        let (settings, name) = (view.settings(class), view.name(class));
        let Some(word) = ["buckets", "hogs"].into_iter().find(|word| settings.get(word).is_some()) else { continue };
        let at = At::Word(class, word);
        if view.has_queue(class) {
            let error = Finding::error("given-twice", at, format!("`{word}` and `queue` both say which queue it is"));
            let help = format!("leave one of them out, or write queue fairq {{ {word} … }}");
            findings.push(error.label(At::Word(class, "queue"), "the queue").help(help));
        } else if view.holds_scheduler(class) {
            let message = format!("`{word}` has no effect: `{name}` holds a scheduler");
            findings.push(Finding::warning("no-effect", at, message).help("give it to the classes below"));
        }
    }
}

/// A preference is no promise: classes that are not over go first, and how long a class is not over
/// depends on what it sent.
fn promises(place: &Place<'_>) -> Vec<Result<Promise, String>> {
    match place.classes.len() {
        1 => vec![Ok(place.promised)],
        _ => none(place, "fairq prefers classes, it guarantees nothing"),
    }
}

/// `buckets` and `hogs`, as far as they are stated.
type Made = [Option<Value>; 2];

struct Fairq {
    /// The bandwidth of a class that states none.
    rate: Rate,
    /// Bit n of the first: level n has classes with packets that are not over their bandwidth. Of
    /// the second: that are.
    waiting: [u8; 2],
    /// The class whose turn it is at each level: of those not over their bandwidth, and of those
    /// that are.
    turn: [[Slot; LEVELS]; 2],
    /// When each class that is over its bandwidth no longer is.
    timers: TimerHeap,
    classes: Vec<Class>,
    /// `buckets` and `hogs` of the classes that state any: what their queues were made with.
    made: BTreeMap<Slot, Made>,
}

/// One cache line a class.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Class {
    sent: Decay,
    /// Up to which its priority counts.
    bandwidth: Rate,
    /// Neighbours in its ring; [`NIL`] when it has no packets.
    next: Slot,
    previous: Slot,
    /// Length of its first packet.
    len: u32,
    level: u8,
    /// In which of the two rings of its level it stands.
    over: bool,
    /// It states no bandwidth: it has the scheduler's.
    all: bool,
}

const _: () = assert!(size_of::<Class>() == 64);

impl Class {
    const FREE: Class = Class {
        sent: Decay::NEW,
        bandwidth: Rate::ZERO,
        next: NIL,
        previous: NIL,
        len: 0,
        level: PRIORITY as u8,
        over: false,
        all: false,
    };

    /// Whether it is over its bandwidth.
    #[inline]
    fn is_over(&self, now: Nanos) -> bool {
        !self.sent.at_most(now, self.bandwidth, self.len)
    }

    /// When it is no longer over; `None`: never.
    #[inline]
    fn from(&self) -> Option<Nanos> {
        self.sent.at_most_from(self.bandwidth, self.len)
    }
}

impl Fairq {
    fn new(rate: Rate) -> Fairq {
        let mut timers = TimerHeap::default();
        timers.reserve(ROOT_SLOT);
        // Packets of the class that holds the scheduler go as those of a class without words.
        let own = Class { bandwidth: rate, all: true, ..Class::FREE };
        Fairq { rate, waiting: [0; 2], turn: [[NIL; LEVELS]; 2], timers, classes: vec![own], made: BTreeMap::new() }
    }

    /// Gives a class its priority and bandwidth.
    fn set(&mut self, slot: Slot, level: u8, settings: &Settings) {
        let stated = settings.rate("bandwidth");
        let class = &mut self.classes[slot as usize];
        (class.level, class.bandwidth, class.all) = (level, stated.unwrap_or(self.rate), stated.is_none());
    }

    /// Puts a class that has packets at the end of its ring.
    #[inline]
    fn link(&mut self, now: Nanos, slot: Slot) {
        let class = &self.classes[slot as usize];
        if class.next == NIL {
            let over = class.is_over(now);
            self.link_as(slot, over);
        }
    }

    /// Puts a class that is in no ring at the end of one: of the classes that are over their
    /// bandwidth, or of the others.
    #[inline]
    fn link_as(&mut self, slot: Slot, over: bool) {
        let class = &mut self.classes[slot as usize];
        class.over = over;
        let (which, level) = (usize::from(over), usize::from(class.level) % LEVELS);
        if over && let Some(from) = class.from() {
            self.timers.file(slot, from);
        }
        let (next, previous) = if self.waiting[which] & 1 << level == 0 {
            self.waiting[which] |= 1 << level;
            self.turn[which][level] = slot;
            (slot, slot)
        } else {
            let next = self.turn[which][level];
            let previous = std::mem::replace(&mut self.classes[next as usize].previous, slot);
            self.classes[previous as usize].next = slot;
            (next, previous)
        };
        let class = &mut self.classes[slot as usize];
        (class.next, class.previous) = (next, previous);
    }

    /// Has a class that is over wait for the time at which it no longer is.
    fn wait(&mut self, slot: Slot) {
        if let Some(from) = self.classes[slot as usize].from() {
            self.timers.file(slot, from);
        }
    }

    #[inline]
    fn unlink(&mut self, slot: Slot) {
        let class = &mut self.classes[slot as usize];
        let Class { next, previous, level, over, .. } = *class;
        if next == NIL {
            return;
        }
        (class.next, class.previous) = (NIL, NIL);
        let (which, level) = (usize::from(over), usize::from(level) % LEVELS);
        if next == slot {
            self.waiting[which] &= !(1 << level);
        } else {
            self.classes[previous as usize].next = next;
            self.classes[next as usize].previous = previous;
            if self.turn[which][level] == slot {
                self.turn[which][level] = next;
            }
        }
    }

    /// Puts a class at the end of the ring in which it belongs now.
    fn relink(&mut self, now: Nanos, slot: Slot) {
        if self.classes[slot as usize].next != NIL {
            self.unlink(slot);
            self.link(now, slot);
        }
    }

    /// Puts classes that are no longer over their bandwidth among those that are not.
    #[inline]
    fn forgive(&mut self, now: Nanos) {
        if self.timers.first().is_some_and(|(due, _)| due <= now) {
            self.forgive_some(now);
        }
    }

    fn forgive_some(&mut self, now: Nanos) {
        while let Some((due, slot)) = self.timers.first().filter(|(due, _)| *due <= now) {
            let class = &self.classes[slot as usize];
            if !class.over || class.next == NIL {
                self.timers.pop();
            } else if !class.is_over(now) {
                self.timers.pop();
                self.unlink(slot);
                self.link_as(slot, false);
            } else {
                // An entry may lie there too early.
                match class.from() {
                    Some(from) => self.timers.put_off(from.max(due)),
                    None => self.timers.pop(),
                }
            }
        }
    }
}

impl Scheduler for Fairq {
    fn add(&mut self, _: Nanos, slot: Slot, _: Slot, settings: &Settings) -> Result<(), SpecError> {
        if self.classes.len() <= slot as usize {
            self.classes.resize(slot as usize + 1, Class::FREE);
            self.timers.reserve(slot);
        }
        let level = level(settings)?;
        let made = made(settings);
        if made != [None; 2] {
            self.made.insert(slot, made);
        }
        self.classes[slot as usize] = Class::FREE;
        self.set(slot, level, settings);
        Ok(())
    }

    fn change(&mut self, now: Nanos, slot: Slot, _: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot == ROOT_SLOT {
            return Ok(());
        }
        let level = level(settings)?;
        let (made, before) = (made(settings), self.made.get(&slot).copied().unwrap_or_default());
        if made != before {
            let word = if made[0] != before[0] { "buckets" } else { "hogs" };
            return Err(SpecError::word(word, format!("{word} says which queue a class is made with, and it is made"))
                .help("give the class a queue fairq with the words that it is to have"));
        }
        let class = &self.classes[slot as usize];
        let stated = settings.rate("bandwidth");
        // The same words again leave the class at its place among its equals.
        if (class.level, class.all, class.bandwidth) == (level, stated.is_none(), stated.unwrap_or(self.rate)) {
            return Ok(());
        }
        self.forgive(now);
        let waits = self.classes[slot as usize].next != NIL;
        self.unlink(slot);
        self.set(slot, level, settings);
        if waits {
            self.link(now, slot);
        }
        Ok(())
    }

    fn remove(&mut self, _: Nanos, slot: Slot) {
        self.unlink(slot);
        self.timers.remove(slot);
        self.made.remove(&slot);
    }

    fn set_rate(&mut self, now: Nanos, rate: Rate, _: Rate) {
        self.forgive(now);
        self.rate = rate;
        for slot in 0..self.classes.len() as Slot {
            let class = &mut self.classes[slot as usize];
            // A class that states a bandwidth keeps its place.
            if class.all && class.bandwidth != rate {
                class.bandwidth = rate;
                self.relink(now, slot);
            }
        }
    }

    #[inline]
    fn queued(&mut self, now: Nanos, slot: Slot, len: u32, first: bool) {
        if first {
            // Classes that are no longer over are put before this one, whether or not `choose` was
            // called in between.
            self.forgive(now);
            self.classes[slot as usize].len = len;
            self.link(now, slot);
        }
    }

    fn head_lost(&mut self, now: Nanos, slot: Slot, next: Option<u32>) {
        let Some(len) = next else { return self.unlink(slot) };
        self.forgive(now);
        let class = &mut self.classes[slot as usize];
        class.len = len;
        if class.over && class.next != NIL {
            self.wait(slot);
        }
    }

    #[inline]
    fn choose(&mut self, now: Nanos) -> Option<Slot> {
        self.forgive(now);
        let which = usize::from(self.waiting[0] == 0);
        let level = self.waiting[which].checked_ilog2()?;
        Some(self.turn[which][level as usize])
    }

    #[inline]
    fn sent(&mut self, now: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        let class = &mut self.classes[slot as usize];
        let over = class.over;
        class.sent.add(now, len);
        let (which, level) = (usize::from(over), usize::from(class.level) % LEVELS);
        let Some(len) = next else {
            self.unlink(slot);
            return over;
        };
        class.len = len;
        let still = class.is_over(now);
        if self.turn[which][level] == slot && still == over {
            // The class moves from the head of its ring to the end: the turn is the next class's.
            self.turn[which][level] = class.next;
            if over {
                self.wait(slot);
            }
        } else if class.next != NIL {
            self.unlink(slot);
            self.link_as(slot, still);
        }
        over
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        (self.waiting != [0; 2]).then_some(0)
    }

    fn fetch(&self, slot: Slot) {
        prefetch(&self.classes, slot as usize);
    }

    fn memory(&self) -> usize {
        self.classes.capacity() * size_of::<Class>()
            + self.made.len() * size_of::<(Slot, Made)>()
            + self.timers.memory()
    }
}

fn made(settings: &Settings) -> Made {
    ["buckets", "hogs"].map(|word| settings.get(word))
}

fn level(settings: &Settings) -> Result<u8, SpecError> {
    match settings.get("priority") {
        None => Ok(PRIORITY as u8),
        Some(Value::Int(n)) if n < LEVELS as u64 => Ok(n as u8),
        Some(_) => Err(SpecError::word("priority", format!("the priority is one of 0 to {}", LEVELS - 1))),
    }
}
