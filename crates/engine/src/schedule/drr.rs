//! Deficit round robin (Shreedhar and Varghese 1996): shares by rounds, whatever the length of
//! packets, in constant time.
//!
//! Classes that have packets stand in a ring and take turns. In its turn a class gets its quantum
//! on top of its deficit, which is what it did not use in its last turn. It sends packets as long
//! as the first one is no longer than what it has; then the turn is the next class's. A class keeps
//! its deficit while it has packets, and loses it when it has none. What it owes, because a packet
//! was longer than guessed, it goes on owing. So over time classes are served in proportion to
//! their quanta.
//!
//! With quanta of at least the largest packet every turn sends something, so a packet takes
//! constant time. With smaller quanta the link is shared in smaller portions, but a packet takes
//! several turns. Rounds in which no class can send are computed at once, not gone through. So a
//! packet costs at most about as many steps as it takes turns, or three for every class in the
//! ring, whichever is less.
//!
//! With the frame F = the sum of quanta, Q a class's own, L the largest packet and R the rate:
//! - of two classes with packets over any time, served bytes over quantum differ by at most 1 +
//!   L/Q₁ + L/Q₂ (the authors' theorem on fairness, from their lemma that m turns serve m Q ± L);
//! - a class is served at R Q/F after a latency of ((F - Q)(1 + L/Q) + n L)/R among n classes (from
//!   the same lemma, as Boyer, Stea and Sofack 2012; with quanta of at least L this is within the
//!   (3F - 2Q)/R of Stiliadis and Varma 1998).

use super::check::{At, Finding, View};
use super::promise::{Member, Place, Promise};
use super::{Context, Entry, Order, OwnPackets, ROOT_SLOT, Role, Scheduler, Slot};
use crate::packet::NIL;
use crate::prefetch::prefetch;
use crate::settings::{Kind, Settings, Word};
use crate::spec::SpecError;
use crate::units::{Nanos, Rate};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    class_words: &[Word {
        name: "quantum",
        kind: Kind::Bytes { min: 1, max: MOST },
        help: "bytes a round, counted on the wire: its share is this over the sum of all",
        default: "the link's MTU and its overhead",
    }],
    roles: &[("quantum", Role::Weight)],
    side_by_side: true,
    order: Order::Said("in turn, a quantum each"),
    promises,
    own_packets: OwnPackets::Plain,
    check,
    ..Entry::new("drr", "deficit round robin: shares by quantum, in constant time", build)
};

fn build(context: &Context, _: &Settings) -> Result<Box<dyn Scheduler>, SpecError> {
    let quantum = i64::from(context.overhead.charge(context.mtu).max(1));
    Ok(Box::new(Drr { head: NIL, turn: false, waiting: 0, quantum, classes: vec![Class::new(quantum)] }))
}

/// The largest quantum: far longer than any packet, and so small that sums of deficits do not
/// overflow.
const MOST: u64 = 1 << 30;

/// In p turns a class sends more than p Q - L bytes, and each other class at most p Q' + L
/// (Shreedhar and Varghese 1996, lemma 2). One packet may be on the wire when the class begins to
/// wait. Where the length of a class's next packet is a guess, the packet may be longer, by less
/// than L, which the class's next turns make up for: for such a class it is 2 L in place of L. The
/// proof is in docs/promises.md.
fn promises(place: &Place<'_>) -> Vec<Result<Promise, String>> {
    let packet = u128::from(place.packet);
    let quantum =
        |member: &Member<'_>| u128::from(member.settings.bytes("quantum").unwrap_or(u64::from(place.packet)).max(1));
    let beyond = |member: &Member<'_>| if member.holds { 2 * packet } else { packet };
    let frame: u128 = place.classes.iter().map(quantum).sum();
    let all_beyond: u128 = place.classes.iter().map(beyond).sum();
    let one = |member: &Member<'_>| {
        let own = quantum(member);
        let turns = ((frame - own) * (own + beyond(member))).div_ceil(own);
        let bytes = packet + turns + all_beyond - beyond(member);
        let too_late = || "the bound does not fit into 64 bits of nanoseconds".to_owned();
        let after = place.promised.after(u64::try_from(bytes).map_err(|_| too_late())?);
        after.and_then(|promise| promise.part(own, frame)).ok_or_else(too_late)
    };
    place.classes.iter().map(one).collect()
}

/// With a quantum of at least the largest packet every turn sends something (Shreedhar and Varghese
/// 1996): constant time.
fn check(view: &View<'_>, findings: &mut Vec<Finding>) {
    let largest = view.largest();
    for class in view.classes() {
        let Some(quantum) = view.settings(class).bytes("quantum").filter(|quantum| *quantum < largest) else {
            continue;
        };
        let message = format!(
            "the quantum of `{}`, {quantum} bytes, is less than the largest packet, {largest} on the wire: a packet \
             may take {} rounds",
            view.name(class),
            largest.div_ceil(quantum.max(1)),
        );
        let help = format!("it works, but takes longer; quanta of at least {largest} in the same proportions do not");
        findings.push(Finding::warning("small-quantum", At::Word(class, "quantum"), message).help(help));
    }
}

struct Drr {
    /// The class whose turn it is, or comes next; the ring goes on from it.
    head: Slot,
    /// Its turn has begun: it has its quantum.
    turn: bool,
    /// Classes in the ring.
    waiting: u32,
    /// The quantum of a class that states none.
    quantum: i64,
    classes: Vec<Class>,
}

/// 32 bytes a class.
#[derive(Clone, Copy)]
struct Class {
    /// What it may still send in this turn, bytes. Negative after a packet that was longer than
    /// guessed.
    deficit: i64,
    quantum: i64,
    /// Neighbours in the ring; [`NIL`] when it has no packets.
    next: Slot,
    previous: Slot,
    /// Length of its first packet.
    len: u32,
}

impl Class {
    fn new(quantum: i64) -> Class {
        Class { deficit: 0, quantum, next: NIL, previous: NIL, len: 0 }
    }

    /// Turns until it can send.
    fn turns(&self) -> i64 {
        let missing = i64::from(self.len) - self.deficit;
        if missing <= 0 { 0 } else { (missing - 1) / self.quantum + 1 }
    }
}

impl Drr {
    fn quantum(&self, settings: &Settings) -> Result<i64, SpecError> {
        match settings.bytes("quantum") {
            None => Ok(self.quantum),
            Some(n @ 1..=MOST) => Ok(n as i64),
            Some(n) => Err(SpecError::word("quantum", format!("a quantum of {n} bytes is not one of 1 to {MOST}"))),
        }
    }

    /// Puts a class that has packets at the end of the ring: before the one whose turn it is.
    fn link(&mut self, slot: Slot, len: u32) {
        let class = &mut self.classes[slot as usize];
        class.len = len;
        if class.next != NIL {
            return;
        }
        self.waiting += 1;
        let (next, previous) = if self.head == NIL {
            (self.head, self.turn) = (slot, false);
            (slot, slot)
        } else {
            (self.head, self.classes[self.head as usize].previous)
        };
        self.classes[previous as usize].next = slot;
        self.classes[next as usize].previous = slot;
        let class = &mut self.classes[slot as usize];
        (class.next, class.previous) = (next, previous);
    }

    fn unlink(&mut self, slot: Slot) {
        let Class { next, previous, .. } = self.classes[slot as usize];
        if next == NIL {
            return;
        }
        self.waiting -= 1;
        if next == slot {
            self.head = NIL;
        } else {
            self.classes[previous as usize].next = next;
            self.classes[next as usize].previous = previous;
            if self.head == slot {
                (self.head, self.turn) = (next, false);
            }
        }
        let class = &mut self.classes[slot as usize];
        // A debt is kept: a scheduler inside that often holds packets back would be rid of it each
        // time that it leaves the ring.
        (class.next, class.previous, class.deficit) = (NIL, NIL, class.deficit.min(0));
    }

    /// A whole round went by in which no class could send. Gives every class at once the quanta of
    /// all further rounds in which none could.
    #[cold]
    fn skip(&mut self) {
        let from = self.head;
        let mut least = i64::MAX;
        let mut at = from;
        loop {
            let class = &self.classes[at as usize];
            least = least.min(class.turns());
            at = class.next;
            if at == from {
                break;
            }
        }
        let rounds = least.saturating_sub(1);
        if rounds <= 0 {
            return;
        }
        loop {
            let class = &mut self.classes[at as usize];
            class.deficit += rounds * class.quantum;
            at = class.next;
            if at == from {
                break;
            }
        }
    }
}

impl Scheduler for Drr {
    fn add(&mut self, _: Nanos, slot: Slot, _: Slot, settings: &Settings) -> Result<(), SpecError> {
        let quantum = self.quantum(settings)?;
        if self.classes.len() <= slot as usize {
            self.classes.resize(slot as usize + 1, Class::new(self.quantum));
        }
        self.classes[slot as usize] = Class::new(quantum);
        Ok(())
    }

    /// A new quantum holds from the class's next turn on; what it has left stays.
    fn change(&mut self, _: Nanos, slot: Slot, _: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot != ROOT_SLOT {
            self.classes[slot as usize].quantum = self.quantum(settings)?;
        }
        Ok(())
    }

    fn remove(&mut self, _: Nanos, slot: Slot) {
        self.unlink(slot);
    }

    fn set_rate(&mut self, _: Nanos, _: Rate, _: Rate) {}

    #[inline]
    fn queued(&mut self, _: Nanos, slot: Slot, len: u32, first: bool) {
        if first {
            self.link(slot, len);
        }
    }

    fn head_lost(&mut self, _: Nanos, slot: Slot, next: Option<u32>) {
        match next {
            Some(len) => self.classes[slot as usize].len = len,
            None => self.unlink(slot),
        }
    }

    #[inline]
    fn choose(&mut self, _: Nanos) -> Option<Slot> {
        if self.head == NIL {
            return None;
        }
        let mut turns = 0;
        loop {
            let class = &mut self.classes[self.head as usize];
            if !self.turn {
                class.deficit += class.quantum;
                self.turn = true;
            }
            if i64::from(class.len) <= class.deficit {
                return Some(self.head);
            }
            (self.head, self.turn) = (class.next, false);
            turns += 1;
            if turns > self.waiting {
                self.skip();
                turns = 0;
            }
        }
    }

    #[inline]
    fn sent(&mut self, _: Nanos, slot: Slot, len: u32, next: Option<u32>) -> bool {
        let class = &mut self.classes[slot as usize];
        class.deficit -= i64::from(len);
        match next {
            Some(next) => class.len = next,
            None => self.unlink(slot),
        }
        false
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        (self.head != NIL).then_some(0)
    }

    fn report_counters(&self, slot: Slot, counter: &mut dyn FnMut(&'static str, u64)) {
        let class = &self.classes[slot as usize];
        counter("deficit", u64::try_from(class.deficit).unwrap_or(0));
    }

    fn fetch(&self, slot: Slot) {
        prefetch(&self.classes, slot as usize);
    }

    fn memory(&self) -> usize {
        self.classes.capacity() * size_of::<Class>()
    }
}
