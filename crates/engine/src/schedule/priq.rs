//! Strict priorities, as ALTQ's PRIQ (docs/reference/altq.md 4; Cho 1998): a packet goes when no
//! class of a higher priority has any.
//!
//! There are sixteen levels; level 15 goes first. A bitmap says which levels have packets, so the
//! highest of them is found with one instruction. Each level is a ring of those of its classes that
//! have packets. So no step depends on the number of classes.
//!
//! ALTQ allows one class a priority. Here several may share one, and take turns, a packet each. A
//! policy with one class a level is served exactly as by ALTQ. Nothing holds a level back. So only
//! a class that is alone on the highest level is promised anything: all that the link has, after
//! the packet that is on the wire when its own arrives.

use super::promise::{Member, Place, Promise};
use super::{AltqstatForm, Entry, Order, OwnPackets, ROOT_SLOT, Rank, Role, Scheduler, Slot};
use crate::packet::NIL;
use crate::prefetch::prefetch;
use crate::settings::{Kind, Settings, Word};
use crate::spec::SpecError;
use crate::units::{Nanos, Rate};

/// Levels of priority.
const LEVELS: usize = 16;
/// The priority of a class that states none, as in pf; in altqd it was 0 (docs/reference/altq.md
/// 16).
const PRIORITY: u64 = 1;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    class_words: &[Word {
        name: "priority",
        kind: Kind::Int { min: 0, max: LEVELS as u64 - 1 },
        help: "who goes first, 15 before all others; equals take turns, a packet each",
        default: "1",
    }],
    roles: &[("priority", Role::Priority)],
    side_by_side: true,
    order: Order::Said("by priority, 15 first; equals in turn, a packet each"),
    promises,
    own_packets: OwnPackets::Plain,
    rank: |_, class| Some(Rank::Always((LEVELS as u64 - 1).saturating_sub(class.int("priority").unwrap_or(PRIORITY)))),
    altqstat: AltqstatForm::Priorities,
    ..Entry::new("priq", "strict priorities: a packet goes when no higher class has any", |_, _| {
        Ok(Box::new(Priq::new()))
    })
};

/// A class alone on the highest level has all that the place has, except that one packet of a lower
/// level may be on the wire first: [β - L]⁺ (Le Boudec and Thiran 2001, proposition 1.3.4).
fn promises(place: &Place<'_>) -> Vec<Result<Promise, String>> {
    let highest = place.classes.iter().map(priority_of).max();
    let alone = place.classes.iter().filter(|member| Some(priority_of(member)) == highest).count() == 1;
    let one = |member: &Member<'_>| {
        if Some(priority_of(member)) != highest {
            return Err("classes of higher priority may take all there is".to_owned());
        }
        if !alone {
            return Err(
                "it takes turns with classes of the same priority by packets, however long theirs are".to_owned()
            );
        }
        place
            .promised
            .after(u64::from(place.packet))
            .ok_or_else(|| "the bound does not fit into 64 bits of nanoseconds".to_owned())
    };
    place.classes.iter().map(one).collect()
}

fn priority_of(member: &Member<'_>) -> u64 {
    member.settings.int("priority").unwrap_or(PRIORITY)
}

struct Priq {
    /// Bit n: level n has packets.
    waiting: u16,
    /// The class at each level whose turn it is; the ring goes on from it.
    turn: [Slot; LEVELS],
    classes: Vec<Class>,
}

#[derive(Clone, Copy)]
struct Class {
    /// Neighbours in its level's ring; [`NIL`] when it has no packets.
    next: Slot,
    previous: Slot,
    level: u8,
    /// How often its queue ran empty: ALTQ's `period`.
    periods: u64,
}

impl Default for Class {
    fn default() -> Class {
        Class { next: NIL, previous: NIL, level: 0, periods: 0 }
    }
}

impl Priq {
    fn new() -> Priq {
        // Packets of the class that holds the scheduler go as those of a class without words.
        Priq { waiting: 0, turn: [NIL; LEVELS], classes: vec![Class { level: PRIORITY as u8, ..Class::default() }] }
    }

    /// Puts a class that has packets at the end of its level's ring: before the one whose turn it
    /// is.
    fn link(&mut self, slot: Slot) {
        let class = self.classes[slot as usize];
        if class.next != NIL {
            return;
        }
        let level = usize::from(class.level);
        let (next, previous) = if self.waiting & 1 << level == 0 {
            self.waiting |= 1 << level;
            self.turn[level] = slot;
            (slot, slot)
        } else {
            let next = self.turn[level];
            (next, self.classes[next as usize].previous)
        };
        self.classes[previous as usize].next = slot;
        self.classes[next as usize].previous = slot;
        let class = &mut self.classes[slot as usize];
        (class.next, class.previous) = (next, previous);
    }

    fn unlink(&mut self, slot: Slot) {
        let Class { next, previous, level, .. } = self.classes[slot as usize];
        if next == NIL {
            return;
        }
        let level = usize::from(level);
        if next == slot {
            self.waiting &= !(1 << level);
        } else {
            self.classes[previous as usize].next = next;
            self.classes[next as usize].previous = previous;
            if self.turn[level] == slot {
                self.turn[level] = next;
            }
        }
        let class = &mut self.classes[slot as usize];
        (class.next, class.previous) = (NIL, NIL);
    }
}

impl Scheduler for Priq {
    fn add(&mut self, _: Nanos, slot: Slot, _: Slot, settings: &Settings) -> Result<(), SpecError> {
        if self.classes.len() <= slot as usize {
            self.classes.resize(slot as usize + 1, Class::default());
        }
        self.classes[slot as usize] = Class { level: level(settings)?, ..Class::default() };
        Ok(())
    }

    fn change(&mut self, _: Nanos, slot: Slot, _: Slot, settings: &Settings) -> Result<(), SpecError> {
        if slot == ROOT_SLOT {
            return Ok(());
        }
        let level = level(settings)?;
        let class = self.classes[slot as usize];
        if class.level != level {
            self.unlink(slot);
            self.classes[slot as usize].level = level;
            if class.next != NIL {
                self.link(slot);
            }
        }
        Ok(())
    }

    fn remove(&mut self, _: Nanos, slot: Slot) {
        self.unlink(slot);
    }

    fn set_rate(&mut self, _: Nanos, _: Rate, _: Rate) {}

    #[inline]
    fn queued(&mut self, _: Nanos, slot: Slot, _: u32, first: bool) {
        if first {
            self.link(slot);
        }
    }

    fn head_lost(&mut self, _: Nanos, slot: Slot, next: Option<u32>) {
        if next.is_none() {
            self.unlink(slot);
        }
    }

    #[inline]
    fn choose(&mut self, _: Nanos) -> Option<Slot> {
        let level = self.waiting.checked_ilog2()?;
        Some(self.turn[level as usize])
    }

    #[inline]
    fn sent(&mut self, _: Nanos, slot: Slot, _: u32, next: Option<u32>) -> bool {
        if next.is_none() {
            self.classes[slot as usize].periods += 1;
            self.unlink(slot);
        } else {
            let class = &self.classes[slot as usize];
            self.turn[usize::from(class.level)] = class.next;
        }
        false
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        (self.waiting != 0).then_some(0)
    }

    fn report_counters(&self, slot: Slot, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("period", self.classes[slot as usize].periods);
    }

    fn fetch(&self, slot: Slot) {
        prefetch(&self.classes, slot as usize);
    }

    fn memory(&self) -> usize {
        self.classes.capacity() * size_of::<Class>()
    }
}

fn level(settings: &Settings) -> Result<u8, SpecError> {
    match settings.int("priority").unwrap_or(PRIORITY) {
        n if n < LEVELS as u64 => Ok(n as u8),
        n => Err(SpecError::word("priority", format!("priority {n} is not one of 0 to {}", LEVELS - 1))),
    }
}
